"""Vectors of queries, kept between runs of a benchmark as those of passages are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.encoders.encoder import Encoder, Vectors
from jobs.vectorcache import VectorCache, query_key


class KeptQueries:
    """An encoder whose queries are looked up before they are encoded. All else is its encoder's.

    Attributes:
        encoded: queries that were not kept.
    """

    def __init__(self, encoder: Encoder, cache: VectorCache) -> None:
        """Stand before an encoder.

        Args:
            encoder: makes what is not kept.
            cache: of the encoder's space; gets what was made. Closed by the caller.
        """
        self._encoder = encoder
        self._cache = cache
        self.encoded = 0

    @property
    def fingerprint(self) -> str:
        """Name the vector space."""
        return self._encoder.fingerprint

    @property
    def dimension(self) -> int:
        """Return the number of columns of a vector."""
        return self._encoder.dimension

    @property
    def max_tokens(self) -> int:
        """Return the window."""
        return self._encoder.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of whole passage inputs."""
        return self._encoder.count_tokens(texts)

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Return float32 of shape (len(queries), dimension), rows of unit length, in order."""
        keys = [query_key(query) for query in queries]
        found = self._cache.find(keys)
        missing = {key: query for key, query in zip(keys, queries, strict=True) if key not in found}
        if missing:
            made = self._encoder.encode_queries(list(missing.values()))
            self.encoded += len(missing)
            added = dict(zip(missing, made, strict=True))
            self._cache.store(added)
            found |= added
        rows = [
            np.empty((0, self.dimension), np.float32),
            *(found[key][np.newaxis] for key in keys),
        ]
        return np.concatenate(rows)

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        """Encode passages given as (title, text)."""
        return self._encoder.encode_passages(passages)
