"""Cosines of every passage: a matrix product screens, correctly rounded sums decide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import SegmentRefusedError
from jobs.ranking.corpus import Float64, Rows

Float32 = NDArray[np.float32]

_CHUNK_ROWS = 16_384

SCREEN = 1e-9
"""More than a matrix product in float64 can miss a cosine of unit rows by, many times over."""


class Vectors:
    """The stored vectors of some segments, memory-mapped."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Map `vectors.npy` of each segment.

        Raises:
            SegmentRefusedError: a file cannot be read.
        """
        self._parts = [_mapped(folder) for folder in folders]
        self._firsts = np.cumsum([0, *map(len, self._parts)])

    def row(self, row: int) -> Float32:
        """Return one vector, float32 of shape (dimension,)."""
        part = int(np.searchsorted(self._firsts, row, side="right")) - 1
        found: Float32 = self._parts[part][row - self._firsts[part]]
        return found

    def products(self, queries: Float32) -> Float64:
        """Return the dot products of all vectors with queries, by matrix products in float64.

        Args:
            queries: float32 of shape (m, dimension).

        Returns:
            float64 of shape (m, n). Last bits depend on the linear algebra library.
        """
        wide = queries.astype(np.float64)
        blocks = [wide @ chunk.T for chunk in self._chunks()]
        found: Float64 = np.concatenate([np.empty((len(wide), 0)), *blocks], axis=1)
        return found

    def _chunks(self) -> Iterator[Float64]:
        for part in self._parts:
            for first in range(0, len(part), _CHUNK_ROWS):
                yield part[first : first + _CHUNK_ROWS].astype(np.float64)

    def decided(self, rows: Rows, query: Float32) -> Float64:
        """Return the dot products of some vectors with one query, each correctly rounded.

        The product of two float32 numbers is exact in float64, and `math.fsum` rounds once: the
        value depends on nothing but the two vectors.
        """
        wide = query.astype(np.float64)
        return np.array([_dot(self.row(int(row)), wide) for row in rows], np.float64)


def mean_cosine(sample: Float32, query: Float32) -> float:
    """Return the mean cosine of a query with the reference sample: what chance gives."""
    wide = query.astype(np.float64)
    return math.fsum(_dot(row, wide) for row in sample) / len(sample)


def _dot(row: Float32, query: Float64) -> float:
    return math.fsum((row.astype(np.float64) * query).tolist())


def _mapped(folder: Path) -> Float32:
    try:
        found: Float32 = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise SegmentRefusedError(folder.name, "vectors.npy cannot be read") from error
    return found
