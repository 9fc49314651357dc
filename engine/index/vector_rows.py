"""Scores from the stored rows: exact ones in float64, proposals in float32 with their error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidValueError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

UNIT_TOLERANCE = 1e-3
"""Stored vectors and queries have a Euclidean length of 1 within this."""

_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class VectorHits:
    """The nearest passages of one segment.

    Attributes:
        ordinals: int32 of shape (m,), by (-score, ordinal).
        scores: cosines, float64 of shape (m,), as `exact_cosines` computes them.
        frontier: no allowed passage that is not here has a larger cosine (if `certified`);
            negative infinity when every allowed passage is here.
        certified: whether the frontier is a proof; False after a search of compressed codes.
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


def product_error(dimension: int, code_error: float = 0.0) -> float:
    """Bound how far a float32 product of codes lies from the cosine of the stored row.

    |q.v - computed| <= |q| |v - code| + float32 summation: d + 2 roundings of 2^-24 (Higham 2002,
    section 3.1) on sum |q_j v_j| <= |q| |v|; lengths up to 1 + UNIT_TOLERANCE.

    Args:
        dimension: columns.
        code_error: the largest distance between a row and its code; 0 for the rows themselves.
    """
    longest = 1.0 + UNIT_TOLERANCE
    return longest * (code_error + 1.1 * (dimension + 2) * 2.0**-24 * longest)


def gathered_products(vectors: Float32, rows: Int64, query: Float32) -> Float32:
    """Return float32 products of some rows, copied block by block; see `product_error`.

    Args:
        vectors: float32 of shape (n, dimension).
        rows: which, of shape (m,).
        query: float32 of shape (dimension,).

    Returns:
        float32 of shape (m,), in the order of `rows`.
    """
    products = np.empty(len(rows), np.float32)
    buffer = np.empty((min(_BLOCK, len(rows)), vectors.shape[1]), np.float32)
    for start in range(0, len(rows), _BLOCK):
        wanted = rows[start : start + _BLOCK]
        block = buffer[: len(wanted)]
        np.take(vectors, wanted, axis=0, out=block, mode="clip")  # other modes copy twice
        np.dot(block, query, out=products[start : start + _BLOCK])
    return products


def nearest(
    vectors: Float32, query: Float32, candidates: tuple[Float32, Int64], places: int, error: float
) -> VectorHits:
    """Return the best `places` of some candidates, exactly.

    Args:
        vectors: float32 of shape (n, dimension).
        query: float32 of shape (dimension,).
        candidates: proposed scores and rows, each of shape (m,), in any order.
        places: at least 1; all candidates when there are fewer.
        error: no proposed score is farther than this from the cosine.

    Returns:
        Certified among the candidates: its frontier bounds those that were dropped.
    """
    proposed, rows = candidates[0].astype(np.float64), candidates[1]
    frontier = -math.inf
    if len(rows) > places:
        edge = np.partition(proposed, len(rows) - places)[len(rows) - places]
        near = proposed >= edge - 2.0 * error  # below it, `places` others are surely better
        if not near.all():
            frontier = float(proposed[~near].max()) + error
        rows = rows[near]
    scores = exact_cosines(vectors[rows], query)
    order = np.lexsort((rows, -scores))
    kept, dropped = order[:places], order[places:]
    if len(dropped):
        frontier = max(frontier, float(scores[dropped[0]]))
    return VectorHits(rows[kept].astype(np.int32), scores[kept], frontier, True)
