"""A deployment around the encoder: one thread that encodes queries in the order they arrive."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from engine.config import undump_config
from engine.encoders.opening import open_encoder
from serve.loopback import keep_replica_local


class EncoderDeployment:
    """Encodes queries. Vectors travel as packed float32.

    Queries are not batched: padding to the longest would change the last bits of the others, and
    one that is refused would fail them.
    """

    def __init__(self, config_text: str) -> None:
        """Open the encoder of the configuration, as `dump_config` wrote it."""
        keep_replica_local()
        self._encoder = open_encoder(undump_config(config_text).encoder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")

    def _encode(self, query: str) -> bytes:
        row = self._encoder.encode_queries([query])[0]
        return np.ascontiguousarray(row, np.float32).tobytes()

    async def encode(self, query: str) -> bytes:
        """Return the vector of one query: float32, unit length, as bytes.

        A query whose caller has gone before its turn is not encoded.

        Raises:
            EncoderError: its vector is zero or not finite.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._encode, query)

    async def fingerprint(self) -> str:
        """Name the vector space."""
        return self._encoder.fingerprint
