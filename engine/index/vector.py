"""The semantic side of one segment: codes propose, `vectors.npy` decides.

Three ways to find the nearest allowed passages (`vector_plan.py` chooses): copy the allowed rows
and score them, scan all in place, or go through compressed codes and score the most promising. The
first two are exact, and proved so by error bounds; the third says that it is not.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.index.vector_builder import VectorFacts, VectorSettings, build_index
from engine.index.vector_codes import read_codes, scan_half, scan_product, scan_rows
from engine.index.vector_plan import choose_way
from engine.index.vector_rows import (
    UNIT_TOLERANCE,
    VectorHits,
    check_vectors,
    exact_cosines,
    gathered_products,
    nearest,
    product_error,
)

__all__ = [
    "UNIT_TOLERANCE",
    "VectorFacts",
    "VectorHits",
    "VectorIndex",
    "VectorSettings",
    "build_index",
    "check_vectors",
    "exact_cosines",
]

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Allowed = NDArray[np.bool_]

_SLACK = 32
"""Candidates taken beyond the depth, so that the error bound rarely asks for a second scan."""

_FILTERED = 4
"""Under a filter so many times the depth is taken, at little cost: what is left of the rows may lie
far from the query, where many lie within the error of one another."""

_RESCANS = 4
"""A second scan takes so many times the candidates, by the rows themselves, whose error is a tenth;
once it would take that share of all rows, every row is scored instead: a heap of many candidates is
slower."""

_DEVIATIONS = 2.0
"""Candidates of compressed codes are enough when a row at the edge would have to lie so many
standard deviations farther from its code than usual to have been missed: 1 in 40, and rows nearer
than the edge far more rarely. Of 60 real queries over 60,000 rows those that passed found 0.97 at
the least, 0.99 in the mean; 2.6 sent a quarter to a half of them back for little more."""

_HOPELESS = 0.5
"""Below so many deviations the search is exact at once: more candidates are seldom enough."""

_JUDGED = 100
"""How many of the best candidates tell how far codes usually lie from their rows, at least."""


class VectorIndex:
    """Searches the vectors of one segment. Thread-safe: holds no state of queries."""

    def __init__(self, index: Any, vectors: Float32, facts: VectorFacts, *, prove: bool) -> None:
        """Take over open codes; use `open`."""
        self._index, self._vectors, self._facts = index, vectors, facts
        self._prove = prove
        self.passages, self.dimension = vectors.shape
        self._row_error = product_error(self.dimension)
        self._code_error = product_error(self.dimension, facts.code_error)

    @classmethod
    def open(
        cls,
        path: Path,
        vectors: Float32,
        facts: VectorFacts,
        settings: VectorSettings | None = None,
    ) -> VectorIndex:
        """Open an index file.

        Args:
            path: what `build_index` wrote.
            vectors: the memory-mapped float32 rows of shape (n, dimension).
            facts: what `build_index` returned.
            settings: with `search` "exact", compressed codes are there but not used; default:
                what is there is used.

        Raises:
            SegmentRefusedError: FAISS cannot read it, or it holds another number, dimension or
                kind.
        """
        index = read_codes(path, vectors.shape, product=facts.approximate)
        prove = settings is not None and settings.search == "exact"
        return cls(index, vectors, facts, prove=prove)

    @property
    def exact(self) -> bool:
        """Say whether every search is exact, so that every frontier is certified."""
        return self._prove or not self._facts.approximate

    def close(self) -> None:
        """Drop the files. The index must not be used afterwards."""
        self._index = None
        self._vectors = np.empty((0, self.dimension), dtype=np.float32)

    def search(
        self, query: Float32, depth: int, allowed: Allowed | None = None, *, exact: bool = False
    ) -> VectorHits:
        """Return the `depth` nearest allowed passages, never fewer while there are some.

        Equal scores go to the lower ordinal.

        Args:
            query: float32 of shape (dimension,), of unit length.
            depth: at least 1.
            allowed: bool of shape (passages,), or None for all.
            exact: search exactly even where there are compressed codes.

        Raises:
            ValueError: depth < 1, or a shape is wrong.
            InvalidValueError: the query is not a finite unit vector.
        """
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        if allowed is not None and allowed.shape != (self.passages,):
            raise ValueError(f"allowed has shape {allowed.shape}, expected ({self.passages},)")
        query = np.ascontiguousarray(query, dtype=np.float32)
        check_vectors(query[None, :], self.dimension)
        count = self.passages if allowed is None else int(np.count_nonzero(allowed))
        if not count:
            return VectorHits(np.empty(0, np.int32), np.empty(0, np.float64), -math.inf, True)
        if count == self.passages:
            allowed = None
        places = min(depth, count)
        # Whoever takes all wants a proof that it is all: without one, nobody stops asking.
        approximate = not self.exact and not exact and places < count
        if approximate:
            hits = self._compressed(query, places, allowed, count)
            if hits is not None:
                return hits
        if choose_way(self.passages, count) == "gather":
            return self._gathered(query, places, allowed)
        return self._scanned(query, places, allowed, count)

    def _gathered(self, query: Float32, places: int, allowed: Allowed | None) -> VectorHits:
        rows = np.arange(self.passages) if allowed is None else np.flatnonzero(allowed)
        products = gathered_products(self._vectors, rows, query)
        return nearest(self._vectors, query, (products, rows), places, self._row_error)

    def _scanned(
        self, query: Float32, places: int, allowed: Allowed | None, count: int
    ) -> VectorHits:
        """Search exactly: take more candidates until the error bound cannot hide a better one."""
        wanted = places + _SLACK if allowed is None else _FILTERED * places + _SLACK
        taken = min(wanted, count)
        rows_only = self._facts.approximate
        while True:
            if rows_only:
                found, error = scan_rows(self._vectors, query, taken, allowed), self._row_error
            else:
                found, error = scan_half(self._index, query, taken, allowed), self._code_error
            hits = nearest(self._vectors, query, found, places, error)
            if taken == count:
                return hits
            hidden = float(found[0].min()) + error
            if hits.scores[-1] > hidden:
                return VectorHits(hits.ordinals, hits.scores, max(hits.frontier, hidden), True)
            rows_only = True
            taken *= _RESCANS
            if taken * _RESCANS >= count:
                return self._gathered(query, places, allowed)

    def _compressed(
        self, query: Float32, places: int, allowed: Allowed | None, count: int
    ) -> VectorHits | None:
        """Search compressed codes and score candidates again, or return None: search exactly."""
        taken = self._facts.candidates(places)
        while choose_way(self.passages, count, taken) == "codes":
            proposed, rows = scan_product(self._index, query, taken, allowed)
            if len(rows) < taken:
                return None
            products = gathered_products(self._vectors, rows, query)
            hits = nearest(self._vectors, query, (products, rows), places, self._row_error)
            certainty = _certainty(proposed, products, places)
            if certainty > _DEVIATIONS:
                return VectorHits(hits.ordinals, hits.scores, float(hits.scores[-1]), False)
            if certainty < _HOPELESS:
                return None
            taken *= _RESCANS
        return None


def _certainty(proposed: Float32, products: Float32, places: int) -> float:
    """Say how unlikely it is that a row that was no candidate belongs to the best.

    Such a row must be as near as the last of the best, while its code lies below every
    candidate's. How far codes lie from their rows is seen on the best candidates themselves: a
    filter that leaves only far rows, which lie densely, is noticed here.

    Args:
        proposed: scores of the candidates' codes, of shape (m,).
        products: scores of their rows, of shape (m,).
        places: how many are wanted.

    Returns:
        By how many standard deviations such a row would lie farther from its code than is usual.
    """
    best = np.argsort(-products, kind="stable")
    seen = best[: max(places, _JUDGED)]
    gaps = proposed[seen].astype(np.float64) - products[seen]
    needed = float(proposed.min()) - float(products[best[places - 1]])
    spread, room = float(gaps.std()), float(gaps.mean()) - needed
    if spread == 0.0:  # codes that hold the rows themselves
        return math.copysign(math.inf, room)
    return room / spread
