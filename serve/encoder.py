"""A deployment around the encoder: queries that arrive together are encoded in one call."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from ray import serve as rayserve

from engine.config import undump_config
from engine.encoders.opening import open_encoder
from serve.loopback import keep_replica_local

BATCH = 32
BATCH_WAIT_S = 0.003


class EncoderDeployment:
    """Encodes queries. Vectors travel as packed float32."""

    def __init__(self, config_text: str) -> None:
        """Open the encoder of the configuration, as `dump_config` wrote it."""
        keep_replica_local()
        self._encoder = open_encoder(undump_config(config_text).encoder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")

    def _encode(self, queries: list[str]) -> list[bytes]:
        # one at a time: padding to a batch's longest query would change the last bits
        rows = [self._encoder.encode_queries([query])[0] for query in queries]
        return [np.ascontiguousarray(row, np.float32).tobytes() for row in rows]

    @rayserve.batch(max_batch_size=BATCH, batch_wait_timeout_s=BATCH_WAIT_S)
    async def encode(self, queries: list[str]) -> list[bytes]:
        """Return the vector of one query: float32, unit length, as bytes."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._encode, queries)

    async def fingerprint(self) -> str:
        """Name the vector space."""
        return self._encoder.fingerprint
