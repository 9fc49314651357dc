"""The semantic side of one segment: FAISS finds candidates, `vectors.npy` decides their scores.

The only door to FAISS. A scan over half-precision codes with a known error bound is exact after
re-scoring; HNSW is approximate and says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidValueError, SegmentRefusedError, StorageFullError, StoreError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Allowed = NDArray[np.bool_]

UNIT_TOLERANCE = 1e-3
"""Stored vectors and queries have a Euclidean length of 1 within this."""

SCAN_AT_MOST = 10_000
SCAN_SHARE = 0.02
"""With HNSW, allowed passages are scanned exactly up to the larger of this number and share."""

_SLACK = 32
"""Candidates taken beyond the depth, so that the error bound rarely asks for a second scan."""


@dataclass(frozen=True, slots=True)
class VectorSettings:
    """How the vectors of a segment are searched.

    Attributes:
        search: `auto` scans exactly up to `exact_limit` vectors and uses HNSW above.
        exact_limit: vectors.
        neighbours: HNSW's M.
        ef_construction: HNSW's candidates while building.
        ef_search: HNSW's candidates while searching.
    """

    search: Literal["auto", "exact", "approximate"] = "auto"
    exact_limit: int = 200_000
    neighbours: int = 32
    ef_construction: int = 200
    ef_search: int = 128

    def approximate(self, vectors: int) -> bool:
        """Say whether so many vectors get an approximate index."""
        if self.search == "auto":
            return vectors > self.exact_limit
        return self.search == "approximate"


@dataclass(frozen=True, slots=True)
class VectorHits:
    """The nearest passages of one segment.

    Attributes:
        ordinals: int32 of shape (m,), by (-score, ordinal).
        scores: cosines, float64 of shape (m,), as `exact_cosines` computes them.
        frontier: no allowed passage that is not here has a larger cosine (if `certified`);
            negative infinity when every allowed passage is here.
        certified: whether the frontier is a proof; False after an approximate search.
    """

    ordinals: Int32
    scores: Float64
    frontier: float
    certified: bool


def exact_cosines(rows: Float32, query: Float32) -> Float64:
    """Return the dot products of unit rows with a unit query, in float64.

    Each row's value depends on that row and the query only, not on the other rows, their number
    or their layout: products in float64, summed per row in numpy's fixed pairwise order, no BLAS.

    Args:
        rows: float32 of shape (n, dimension).
        query: float32 of shape (dimension,).

    Returns:
        float64 of shape (n,).
    """
    products = np.ascontiguousarray(rows).astype(np.float64)
    products *= query.astype(np.float64)
    return np.asarray(np.add.reduce(products, axis=1))


def check_vectors(vectors: NDArray[Any], dimension: int) -> None:
    """Refuse vectors that are not finite unit rows of the dimension.

    Raises:
        InvalidValueError: the dtype, shape or a row is wrong; the message names the first row.
    """
    if vectors.dtype != np.float32 or vectors.ndim != 2 or vectors.shape[1] != dimension:
        raise InvalidValueError(
            f"vectors are {vectors.dtype} of shape {vectors.shape}, expected float32 of "
            f"(n, {dimension})"
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    good = np.abs(lengths - 1.0) <= UNIT_TOLERANCE  # False for NaN and infinity too
    if not good.all():
        row = int(np.argmin(good))
        raise InvalidValueError(f"vector {row} has length {lengths[row]}, expected 1")


def _faiss() -> Any:
    import faiss

    # One query uses one thread anyway, and one thread makes HNSW reproducible.
    faiss.omp_set_num_threads(1)
    return faiss


def build_index(path: Path, vectors: Float32, settings: VectorSettings) -> float:
    """Write the FAISS index of vectors, with one thread: the same input gives the same bytes.

    Args:
        path: the file to write.
        vectors: float32 of shape (n, dimension), unit rows, see `check_vectors`.
        settings: which index to make.

    Returns:
        The largest Euclidean distance between a row and its half-precision code.

    Raises:
        StorageFullError: no space is left.
        StoreError: the file cannot be written.
    """
    faiss = _faiss()
    dimension, half = vectors.shape[1], faiss.ScalarQuantizer.QT_fp16
    if settings.approximate(len(vectors)):
        index = faiss.IndexHNSWSQ(dimension, half, settings.neighbours, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = settings.ef_construction
    else:
        index = faiss.IndexScalarQuantizer(dimension, half, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    error = _code_error(index, vectors)
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as fault:
        if "No space left" in str(fault):
            raise StorageFullError("no space left while writing vectors: free some") from fault
        raise StoreError(f"cannot write {path.name}: FAISS refused") from fault
    return error


def _code_error(index: Any, vectors: Float32) -> float:
    largest, step = 0.0, 4096
    for start in range(0, len(vectors), step):
        rows = vectors[start : start + step]
        coded = index.reconstruct_n(start, len(rows))
        gaps = np.linalg.norm(coded.astype(np.float64) - rows, axis=1)
        largest = max(largest, float(gaps.max()))
    return largest


class VectorIndex:
    """Searches the vectors of one segment. Thread-safe: parameters go with each call."""

    def __init__(
        self, index: Any, vectors: Float32, code_error: float, settings: VectorSettings
    ) -> None:
        """Take over an open index; use `open`."""
        self._faiss = _faiss()
        self._index, self._vectors = index, vectors
        self._ef_search = settings.ef_search
        self.passages, self.dimension = vectors.shape
        self._graph = isinstance(index, self._faiss.IndexHNSW)
        self._codes = self._faiss.downcast_index(index.storage) if self._graph else index
        # |q.v - computed| <= |q| |v - code| + float32 summation, d + 2 roundings of 2^-24 (Higham
        # 2002, section 3.1) on sum |q_j v_j| <= |q| |v|; lengths up to 1 + UNIT_TOLERANCE.
        longest = 1.0 + UNIT_TOLERANCE
        summation = 1.1 * (self.dimension + 2) * 2.0**-24 * longest
        self._error = longest * (code_error + summation)

    @classmethod
    def open(
        cls,
        path: Path,
        vectors: Float32,
        code_error: float,
        settings: VectorSettings | None = None,
    ) -> VectorIndex:
        """Open an index file, memory-mapped.

        Args:
            path: what `build_index` wrote.
            vectors: the memory-mapped float32 rows of shape (n, dimension).
            code_error: what `build_index` returned.
            settings: `ef_search` is used; default the defaults.

        Raises:
            SegmentRefusedError: FAISS cannot read it, or it holds another number or dimension.
        """
        faiss = _faiss()
        try:
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except (RuntimeError, MemoryError) as error:
            raise SegmentRefusedError(path.parent.name, "FAISS cannot read faiss.index") from error
        if (index.ntotal, index.d) != vectors.shape:
            raise SegmentRefusedError(
                path.parent.name,
                f"faiss.index holds {index.ntotal} vectors of dimension {index.d}, "
                f"vectors.npy {vectors.shape[0]} of {vectors.shape[1]}",
            )
        return cls(index, vectors, code_error, settings or VectorSettings())

    @property
    def exact(self) -> bool:
        """Say whether every search is a scan, so that every frontier is certified."""
        return not self._graph

    def close(self) -> None:
        """Drop the files. The index must not be used afterwards."""
        self._index = self._codes = None
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
            exact: scan even where there is an approximate index.

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
        places, few = min(depth, count), max(SCAN_AT_MOST, int(SCAN_SHARE * self.passages))
        # Whoever takes all wants a proof that it is all: without one, nobody stops asking.
        graph = self._graph and not exact and places < count
        if graph and (allowed is None or count > few):
            found = self._approximate(query, places, allowed)
            if len(found.ordinals) == places:
                return found
        return self._scan(query, places, allowed, count)

    def _scan(self, query: Float32, places: int, allowed: Allowed | None, count: int) -> VectorHits:
        """Search exactly: take more candidates until the error bound cannot hide a better one."""
        taken = min(places + _SLACK, count)
        while True:
            parameters = self._faiss.SearchParameters(sel=self._selector(allowed))
            rough, ordinals = self._candidates(self._codes, query, taken, parameters)
            scores = exact_cosines(self._vectors[ordinals], query)
            order = np.lexsort((ordinals, -scores))
            hidden = float(rough.min()) + self._error if taken < count else -math.inf
            if taken == count or scores[order[places - 1]] > hidden:
                break
            taken = min(2 * taken, count)
        kept, dropped = order[:places], order[places:]
        best_dropped = float(scores[dropped[0]]) if len(dropped) else -math.inf
        return VectorHits(ordinals[kept], scores[kept], max(hidden, best_dropped), True)

    def _approximate(self, query: Float32, places: int, allowed: Allowed | None) -> VectorHits:
        taken = places + _SLACK
        parameters = self._faiss.SearchParametersHNSW(
            sel=self._selector(allowed), efSearch=max(self._ef_search, 2 * taken)
        )
        _, ordinals = self._candidates(self._index, query, taken, parameters)
        scores = exact_cosines(self._vectors[ordinals], query)
        kept = np.lexsort((ordinals, -scores))[:places]
        frontier = float(scores[kept[-1]]) if len(kept) else math.inf
        return VectorHits(ordinals[kept], scores[kept], frontier, False)

    def _selector(self, allowed: Allowed | None) -> Any:
        if allowed is None:
            return None
        return self._faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))

    def _candidates(
        self, index: Any, query: Float32, taken: int, parameters: Any
    ) -> tuple[Float32, Int32]:
        rough, labels = index.search(query[None, :], taken, params=parameters)
        real = labels[0] >= 0  # FAISS pads with -1
        return rough[0][real], labels[0][real].astype(np.int32)
