"""The fixed functions that turn the two sides into one score. Pure, float64, order independent.

Contract, "Scoring". No function here looks at a window, a page, a shard or another result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.search.request import Float64

RANK_CONSTANT = 60


def lexical_parts(bm25: Float64, bounds: Float64) -> Float64:
    """Scale BM25 by its least upper bound.

    Args:
        bm25: shape (n,), raw scores.
        bounds: shape (n,), `sum of qtf(t) * idf(t)` in each passage's language field; 0 where
            the query has no term in that field.

    Returns:
        float64 of shape (n,), 0..1; 0 where the bound is 0.
    """
    parts: Float64 = np.zeros(len(bm25), np.float64)
    np.divide(bm25, bounds, out=parts, where=bounds > 0.0)
    return parts


def semantic_parts(cosines: Float64, floor: float) -> Float64:
    """Scale cosines to what they exceed chance by.

    Args:
        cosines: shape (n,).
        floor: mean cosine of the query with the reference sample.

    Returns:
        `max(0, cos - floor) / (1 - floor)`, float64 of shape (n,); 0 when the floor leaves no room.
    """
    if floor >= 1.0:
        return np.zeros(len(cosines), np.float64)
    parts: Float64 = np.maximum(cosines - floor, 0.0) / (1.0 - floor)
    return parts


def hybrid_scores(lexical: Float64, semantic: Float64, alpha: float) -> Float64:
    """Return `alpha * lex + (1 - alpha) * sem`, shape (n,), of parts scaled by the above."""
    scores: Float64 = alpha * lexical + (1.0 - alpha) * semantic
    return scores


def item_scores(scores: Float64, items: NDArray[np.int32], count: int) -> Float64:
    """Return each item's best score, float64 of shape (count,); -inf for one without a row."""
    best: Float64 = np.full(count, -np.inf)
    np.maximum.at(best, items, scores)
    return best


def best_rows(
    scores: Float64, items: NDArray[np.int32], starts: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the row of each item's best passage, best item first.

    Args:
        scores: shape (n,).
        items: shape (n,), item codes whose order is that of the item ids.
        starts: shape (n,), first characters: of equal passages of an item the smallest wins.

    Returns:
        Rows, one per item, ordered by score descending, then item.
    """
    order = np.lexsort((starts, -scores, items))
    first = np.ones(len(order), np.bool_)
    first[1:] = items[order][1:] != items[order][:-1]
    heads = order[first]
    ranked: NDArray[np.int64] = heads[np.lexsort((items[heads], -scores[heads]))]
    return ranked


def reciprocal_rank_fusion(
    sides: Sequence[Mapping[int, int]], *, rank_constant: int = RANK_CONSTANT
) -> dict[int, float]:
    """Fuse ranks ("Reciprocal rank fusion outperforms ...", SIGIR 2009).

    Args:
        sides: one mapping per side, item to its rank, from 1. Their order is the order of
            addition, so it must be fixed.
        rank_constant: the paper's k.

    Returns:
        The fused score of every item of any side, best first, equal ones by item.

    Raises:
        ValueError: `rank_constant` < 0, or a rank < 1.
    """
    if rank_constant < 0:
        raise ValueError(f"rank_constant must not be negative, got {rank_constant}")
    fused: dict[int, float] = {}
    for side in sides:
        for item, rank in side.items():
            if rank < 1:
                raise ValueError(f"ranks start at 1, got {rank}")
            fused[item] = fused.get(item, 0.0) + 1.0 / (rank_constant + rank)
    return {item: fused[item] for item in sorted(fused, key=lambda item: (-fused[item], item))}
