"""Vectors of queries: encoded alone, one at a time, remembered by fingerprint and text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from engine.encoders.encoder import Encoder
from engine.search.cache import BoundedCache
from engine.search.request import Float32


class QueryEncoder(Protocol):
    """Makes the vector of one query; in this process or elsewhere."""

    @property
    def fingerprint(self) -> str:
        """Name the vector space. The first call may have to open a model.

        Raises:
            EncoderError: the encoder cannot be opened.
        """
        ...

    async def encode(self, query: str, seconds: float) -> Float32:
        """Return float32 of shape (dimension,), unit length.

        Raises:
            EncoderError: the query cannot be encoded.
            OverloadedError: no encoder could be reached.
            TimeoutError: it took longer than `seconds`.
        """
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...


class LocalQueryEncoder:
    """Encodes in one thread of this process, by an encoder that is opened when first needed."""

    def __init__(self, encoder: Encoder | Callable[[], Encoder]) -> None:
        """Take the encoder, or what opens it: reads and lexical searches need none."""
        self._open = encoder if callable(encoder) else lambda: encoder
        self._opened = None if callable(encoder) else encoder
        self._opening = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")

    def _encoder(self) -> Encoder:
        with self._opening:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    @property
    def fingerprint(self) -> str:
        """Name the vector space."""
        return self._encoder().fingerprint

    def _encode(self, query: str) -> Float32:
        row: Float32 = self._encoder().encode_queries([query])[0]
        return row

    async def encode(self, query: str, seconds: float) -> Float32:
        """Return float32 of shape (dimension,), unit length."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(seconds):
            return await loop.run_in_executor(self._thread, self._encode, query)

    async def close(self) -> None:
        """End the thread when its last query is encoded."""
        await asyncio.to_thread(self._thread.shutdown, wait=True)


class RememberedQueryEncoder:
    """Remembers the vectors of the queries asked last, by fingerprint and text."""

    def __init__(self, encoder: QueryEncoder, size: int) -> None:
        """Stand before an encoder; `size` 0 remembers nothing."""
        self._encoder = encoder
        self._vectors: BoundedCache[tuple[str, str], Float32] = BoundedCache(size)

    @property
    def fingerprint(self) -> str:
        """Name the vector space."""
        return self._encoder.fingerprint

    async def encode(self, query: str, seconds: float) -> Float32:
        """Return float32 of shape (dimension,), unit length, not to be written to."""
        key = (self._encoder.fingerprint, query)
        known = self._vectors.get(key)
        if known is not None:
            return known
        vector = np.array(await self._encoder.encode(query, seconds), np.float32)
        vector.setflags(write=False)
        self._vectors.put(key, vector)
        return vector

    async def close(self) -> None:
        """Close the encoder behind."""
        await self._encoder.close()
