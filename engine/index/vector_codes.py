"""The only door to FAISS: codes of vectors on disk, and scans over codes and over plain rows.

Two kinds of index. `half`: half-precision codes, whose error is known, so that a scan can be
proved. `product`: a code of 4 bits for every two columns (product quantisation, Jégou, Douze,
Schmid, PAMI 2011; scanned in registers as André, Kermarrec, Le Scouarnec, VLDB 2015), an eighth of
the time and of the bytes, without a useful bound. Both go through every row: a filter cannot lead
them astray.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import SegmentRefusedError, StorageFullError, StoreError

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Allowed = NDArray[np.bool_]

_COLUMNS_PER_CODE = 2
_BITS = 4
TRAINING_ROWS = 256 << _BITS
"""Rows that a product code is learnt from, and the least that one is learnt of."""

_BLOCK = 4096


def _faiss() -> Any:
    import faiss

    # One query uses one thread anyway, and one thread makes building reproducible.
    faiss.omp_set_num_threads(1)
    return faiss


def half_codes(vectors: Float32) -> Any:
    """Return an index of half-precision codes.

    Args:
        vectors: float32 of shape (n, dimension).
    """
    faiss = _faiss()
    kind = faiss.ScalarQuantizer.QT_fp16
    index = faiss.IndexScalarQuantizer(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[:1])  # nothing is learnt
    index.add(vectors)
    return index


def product_codes(vectors: Float32, seed: int) -> Any:
    """Return an index of 4-bit product codes: one list, since only FAISS's lists take a filter.

    Args:
        vectors: float32 of shape (n, dimension), n at least `TRAINING_ROWS`.
        seed: chooses the rows that the codes are learnt from.
    """
    faiss = _faiss()
    rows, dimension = vectors.shape
    parts = max(dimension // _COLUMNS_PER_CODE, 1)
    while dimension % parts:
        parts -= 1
    centre = faiss.IndexFlatIP(dimension)
    centre.add(np.zeros((1, dimension), np.float32))
    index = faiss.IndexIVFPQFastScan(centre, dimension, 1, parts, _BITS, faiss.METRIC_INNER_PRODUCT)
    index.by_residual = False
    index.pq.cp.seed = seed
    chosen = np.random.default_rng(seed).choice(rows, TRAINING_ROWS, replace=False)
    index.train(vectors[np.sort(chosen)])
    for start in range(0, rows, _BLOCK * 16):
        index.add(vectors[start : start + _BLOCK * 16])
    return index


def code_error(index: Any, vectors: Float32) -> float:
    """Return the largest Euclidean distance between a row and its half-precision code."""
    largest = 0.0
    for start in range(0, len(vectors), _BLOCK):
        rows = vectors[start : start + _BLOCK]
        coded = index.reconstruct_n(start, len(rows))
        gaps = np.linalg.norm(coded.astype(np.float64) - rows, axis=1)
        largest = max(largest, float(gaps.max()))
    return largest


def write_codes(index: Any, path: Path) -> None:
    """Write an index.

    Raises:
        StorageFullError: no space is left.
        StoreError: the file cannot be written.
    """
    try:
        _faiss().write_index(index, str(path))
    except RuntimeError as fault:
        if "No space left" in str(fault):
            raise StorageFullError("no space left while writing vectors: free some") from fault
        raise StoreError(f"cannot write {path.name}: FAISS refused") from fault


def read_codes(path: Path, shape: tuple[int, ...], *, product: bool) -> Any:
    """Read an index, memory-mapped where FAISS can.

    Args:
        path: what `write_codes` wrote.
        shape: of the vectors it must hold.
        product: which kind it must be.

    Raises:
        SegmentRefusedError: FAISS cannot read it, or it holds another number, dimension or kind.
    """
    faiss = _faiss()
    name = path.parent.name
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    except (RuntimeError, MemoryError) as error:
        raise SegmentRefusedError(name, "FAISS cannot read faiss.index") from error
    if (index.ntotal, index.d) != shape:
        raise SegmentRefusedError(
            name,
            f"faiss.index holds {index.ntotal} vectors of dimension {index.d}, "
            f"vectors.npy {shape[0]} of {shape[1]}",
        )
    wanted = faiss.IndexIVFPQFastScan if product else faiss.IndexScalarQuantizer
    if not isinstance(index, wanted):
        raise SegmentRefusedError(name, "faiss.index is of another kind than segment.json says")
    return index


def _selector(allowed: Allowed | None) -> Any:
    if allowed is None:
        return None
    return _faiss().IDSelectorBitmap(np.packbits(allowed, bitorder="little"))


def scan_half(
    index: Any, query: Float32, taken: int, allowed: Allowed | None
) -> tuple[Float32, Int64]:
    """Return the `taken` allowed rows whose half-precision codes are nearest.

    Args:
        index: half-precision codes.
        query: float32 of shape (dimension,).
        taken: at most as many as are allowed.
        allowed: bool of shape (n,), or None for all.

    Returns:
        Products with the codes, and rows, each of shape (m,), best first.
    """
    parameters = _faiss().SearchParameters(sel=_selector(allowed))
    return _real(*index.search(query[None, :], taken, params=parameters))


def scan_product(
    index: Any, query: Float32, taken: int, allowed: Allowed | None
) -> tuple[Float32, Int64]:
    """Return the `taken` allowed rows whose product codes are nearest; else as `scan_half`."""
    parameters = _faiss().SearchParametersIVF(sel=_selector(allowed), nprobe=1)
    return _real(*index.search(query[None, :], taken, params=parameters))


def scan_rows(
    vectors: Float32, query: Float32, taken: int, allowed: Allowed | None
) -> tuple[Float32, Int64]:
    """Return the `taken` allowed rows nearest in float32, read in place; else as `scan_half`."""
    faiss = _faiss()
    count, dimension = vectors.shape
    scores, rows = np.empty((1, taken), np.float32), np.empty((1, taken), np.int64)
    at, selector = faiss.swig_ptr, _selector(allowed)
    faiss.knn_inner_product(
        at(query), at(vectors), dimension, 1, count, taken, at(scores), at(rows), selector
    )
    return _real(scores, rows)


def _real(scores: Float32, rows: Int64) -> tuple[Float32, Int64]:
    real = rows[0] >= 0  # FAISS pads with -1
    return scores[0][real], rows[0][real]
