"""Vectors that exist already, found by the hash of their title and text.

A vector is stored once by (text hash, encoder fingerprint) and copied ever after, so that every
layout of an index agrees to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_HIGH, _LOW, _PLACE = "stock-high.npy", "stock-low.npy", "stock-place.npy"


def write_stock(folder: Path, hashes: Sequence[NDArray[np.uint8]]) -> None:
    """Write the sorted index of the hashes of some segments.

    Args:
        folder: where its three files go.
        hashes: one array a segment, uint8 of shape (n, 16), by ordinal. Of equal hashes the first
            segment's, then the smallest ordinal's vector is the one that is copied.
    """
    words = [part.reshape(-1, 16).copy().view(">u8").astype(np.uint64) for part in hashes]
    keys = np.concatenate(words) if words else np.zeros((0, 2), np.uint64)
    places = [
        (np.uint64(segment) << np.uint64(32)) | np.arange(len(part), dtype=np.uint64)
        for segment, part in enumerate(words)
    ]
    place = np.concatenate(places) if places else np.zeros(0, np.uint64)
    order = np.lexsort((place, keys[:, 1], keys[:, 0]))
    np.save(folder / _HIGH, keys[order, 0])
    np.save(folder / _LOW, keys[order, 1])
    np.save(folder / _PLACE, place[order])


class VectorStock:
    """Finds stored vectors. Memory-mapped: any number of processes share one copy."""

    def __init__(self, folder: Path, vectors: Sequence[Path]) -> None:
        """Open the index that `write_stock` wrote.

        Args:
            folder: where it lies.
            vectors: `vectors.npy` of each segment, in the order given to `write_stock`.
        """
        self._high = np.load(folder / _HIGH, mmap_mode="r")
        self._low = np.load(folder / _LOW, mmap_mode="r")
        self._place = np.load(folder / _PLACE, mmap_mode="r")
        self._vectors = [np.load(path, mmap_mode="r") for path in vectors]

    def find(self, key: bytes) -> NDArray[np.float32] | None:
        """Return the vector of a text hash (16 bytes), float32 (dimension,), or None."""
        high, low = np.uint64(int.from_bytes(key[:8], "big")), int.from_bytes(key[8:], "big")
        at = int(np.searchsorted(self._high, high))
        while at < len(self._high) and self._high[at] == high:
            if int(self._low[at]) == low:
                place = int(self._place[at])
                row = self._vectors[place >> 32][place & 0xFFFFFFFF]
                return np.array(row, np.float32)
            at += 1
        return None
