"""The certificate of Fagin's threshold algorithm: what is still unknown before a ranking is final.

"Optimal aggregation algorithms for middleware", PODS 2001, with three additions: a bound per
shard instead of one, scores known only to lie in an interval (Lucene computes in float32), and
items that are ranked by their best passage. Ties always count as unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.ids import ShardId
from engine.search.fusion import (
    best_rows,
    hybrid_scores,
    item_scores,
    lexical_parts,
    reciprocal_rank_fusion,
    semantic_parts,
)
from engine.search.pool import Pool
from engine.search.request import Float64

Rows = NDArray[np.int64]
Bounds = Mapping[ShardId, float | None]


def _no_rows() -> Rows:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Goal:
    """What to rank: the mode, results wanted, rank window in items, and hybrid's two constants."""

    mode: str
    limit: int
    window: int
    alpha: float = 0.5
    floor: float = 0.0


@dataclass(frozen=True, slots=True)
class Placed:
    """A result: a row of the pool, its score, and its item's rank on each side or None."""

    row: int
    score: float
    lexical_rank: int | None = None
    semantic_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """What must be learnt next. The ranking is final when nothing must.

    Attributes:
        deepen: shards that may hold a passage that would change the answer.
        refine: rows whose BM25 must be known exactly, int64.
        placed: best first; final only when the other two are empty.
    """

    deepen: frozenset[ShardId] = frozenset()
    refine: Rows = field(default_factory=_no_rows)
    placed: tuple[Placed, ...] = ()

    @property
    def final(self) -> bool:
        """Say whether the ranking can no longer change."""
        return not self.deepen and not len(self.refine)


@dataclass(frozen=True, slots=True)
class Side:
    """One ranking of passages: scores between `low` and `high`, and what shards left out.

    A passage is on the side when its score can be above `minimum`.
    """

    low: Float64
    high: Float64
    bounds: Bounds
    minimum: float

    @staticmethod
    def lexical(pool: Pool) -> Side:
        """Return the side of BM25: only passages with a term of the query are on it."""
        return Side(pool.low, pool.high, pool.lexical_bounds(), 0.0)

    @staticmethod
    def semantic(pool: Pool) -> Side:
        """Return the side of the cosine: every passage is on it."""
        return Side(pool.semantic, pool.semantic, pool.semantic_bounds(), -np.inf)

    def item_low(self, pool: Pool) -> Float64:
        """Return what each item has at least, shape (items,); -inf: not known to be here."""
        on_side = np.where(self.low > self.minimum, self.low, -np.inf)
        return item_scores(on_side, pool.items, len(pool.item_ids))

    def beyond(self, threshold: float) -> frozenset[ShardId]:
        """Return the shards that may hold something at or above a threshold."""
        return frozenset(
            shard
            for shard, bound in self.bounds.items()
            if bound is not None and bound >= threshold and bound > self.minimum
        )


def _edge(item_low: Float64, count: int, otherwise: float) -> float:
    """Return the `count`-th largest score, which the true one is not below."""
    known = item_low[item_low > -np.inf]
    if len(known) < count:
        return otherwise
    return float(np.partition(known, len(known) - count)[len(known) - count])


# -------------------------------------------------------------------------------- top results


def _hybrid_side(pool: Pool, goal: Goal) -> Side:
    semantic = semantic_parts(pool.semantic, goal.floor)
    ends = [
        hybrid_scores(lexical_parts(end, pool.bounds), semantic, goal.alpha)
        for end in (pool.low, pool.high)
    ]
    bounds: dict[ShardId, float | None] = {}
    for shard, frontier in pool.frontiers.items():
        if frontier.semantic is None:
            bounds[shard] = None
            continue
        uppers = np.array([pool.fields[name].upper for name in frontier.lexical] + [0.0])
        scores = np.array([*frontier.lexical.values(), 0.0], np.float64)
        beyond = semantic_parts(np.full(len(scores), frontier.semantic), goal.floor)
        reach = hybrid_scores(lexical_parts(scores, uppers), beyond, goal.alpha)
        bounds[shard] = float(reach.max())
    return Side(ends[0], ends[1], bounds, 0.0)


def _top(pool: Pool, side: Side, limit: int) -> Step:
    """Settle the best `limit` items of a side, each by its best passage."""
    edge = _edge(side.item_low(pool), limit, side.minimum)
    contenders = (side.high >= edge) & (side.high > side.minimum)
    rows = best_rows(side.low, pool.items, pool.starts)
    rows = rows[side.low[rows] > side.minimum][:limit]
    return Step(
        deepen=side.beyond(edge),
        refine=np.flatnonzero(contenders & pool.inexact),
        placed=tuple(Placed(int(row), float(side.low[row])) for row in rows),
    )


# --------------------------------------------------------------------------------------- ranks


def _rank_of(
    pool: Pool, side: Side, item_ends: tuple[Float64, Float64], item: int, edge: float
) -> Step | int | None:
    """Return an item's rank on a side, None for surely outside, or what must be learnt first.

    Args:
        pool: the candidates.
        side: the side.
        item_ends: what each item has at least, and at most as far as its passages are known.
        item: its code.
        edge: what the last item of the window has at least.
    """
    low, high = float(item_ends[0][item]), float(item_ends[1][item])
    own_bound = side.bounds.get(ShardId(int(pool.item_shards[item])))
    reach = high if own_bound is None else max(high, own_bound)
    if reach < edge or reach <= side.minimum:
        return None
    deepen = side.beyond(max(low, edge))
    # Rows of others that may lie on either side of it, and its own that may be its best.
    unclear = (side.low <= high) & (side.high >= low) & (side.low < side.high)
    unclear &= item_ends[0][pool.items] <= high
    if deepen or unclear.any():
        return Step(deepen=deepen, refine=np.flatnonzero(unclear))
    ahead = np.count_nonzero(item_ends[0] > low) + np.count_nonzero(item_ends[0][:item] == low)
    return int(ahead) + 1


def _ranks(pool: Pool, side: Side, items: Rows, window: int) -> tuple[Step, dict[int, int]]:
    """Find the ranks of some items on a side; those outside the window are left out."""
    item_low = side.item_low(pool)
    item_high = item_scores(
        np.where(side.high > side.minimum, side.high, -np.inf), pool.items, len(pool.item_ids)
    )
    edge = _edge(item_low, window, -np.inf)
    refine = np.zeros(len(pool), np.bool_)
    deepen: frozenset[ShardId] = frozenset()
    ranks: dict[int, int] = {}
    for item in items.tolist():
        rank = _rank_of(pool, side, (item_low, item_high), item, edge)
        if isinstance(rank, Step):
            deepen |= rank.deepen
            refine[rank.refine] = True
        elif rank is not None and rank <= window:
            ranks[item] = rank
    return Step(deepen=deepen, refine=np.flatnonzero(refine)), ranks


def _window(pool: Pool, side: Side, window: int) -> tuple[Step, Rows]:
    """Settle the whole window of a side: the best rows of its first items, in order."""
    edge = _edge(side.item_low(pool), window, side.minimum)
    order = np.argsort(side.low, kind="stable")
    order = order[(side.high[order] >= edge) & (side.high[order] > side.minimum)]
    ambiguous = np.zeros(len(order), np.bool_)
    if len(order) > 1:
        touching = np.maximum.accumulate(side.high[order])[:-1] >= side.low[order][1:]
        ambiguous[1:] |= touching
        ambiguous[:-1] |= side.high[order][:-1] >= side.low[order][1:]
    ambiguous |= side.low[order] <= side.minimum  # it may not be on the side at all
    refine = order[ambiguous & (side.low[order] < side.high[order])]
    rows = best_rows(side.low, pool.items, pool.starts)
    rows = rows[side.low[rows] > side.minimum][:window]
    return Step(deepen=side.beyond(edge), refine=np.sort(refine)), rows


# --------------------------------------------------------------------------------------- modes


def _joined(*steps: Step, placed: tuple[Placed, ...] = ()) -> Step:
    rows = np.unique(np.concatenate([_no_rows(), *(step.refine for step in steps)]))
    return Step(frozenset().union(*(step.deepen for step in steps)), rows, placed)


def _decide_one_side(pool: Pool, goal: Goal) -> Step:
    lexical = goal.mode == "lexical"
    side = Side.lexical(pool) if lexical else Side.semantic(pool)
    step = _top(pool, side, goal.limit)
    ranks = [(rank, None) if lexical else (None, rank) for rank in range(1, goal.limit + 1)]
    placed = tuple(
        Placed(result.row, result.score, *rank)
        for result, rank in zip(step.placed, ranks, strict=False)
    )
    return Step(step.deepen, step.refine if lexical else _no_rows(), placed)


def _decide_hybrid(pool: Pool, goal: Goal) -> Step:
    step = _top(pool, _hybrid_side(pool, goal), goal.limit)
    # Ranks of results that are not sure yet are worked on at once: that saves rounds.
    items = pool.items[[result.row for result in step.placed]].astype(np.int64)
    lexical_step, lexical = _ranks(pool, Side.lexical(pool), items, goal.window)
    semantic_step, semantic = _ranks(pool, Side.semantic(pool), items, goal.window)
    placed = tuple(
        Placed(result.row, result.score, lexical.get(item), semantic.get(item))
        for result, item in zip(step.placed, items.tolist(), strict=True)
    )
    return _joined(step, lexical_step, semantic_step, placed=placed)


def _decide_rrf(pool: Pool, goal: Goal) -> Step:
    lexical_step, lexical_rows = _window(pool, Side.lexical(pool), goal.window)
    semantic_step, semantic_rows = _window(pool, Side.semantic(pool), goal.window)
    sides = [
        {int(pool.items[row]): (rank, int(row)) for rank, row in enumerate(rows, start=1)}
        for rows in (lexical_rows, semantic_rows)
    ]
    fused = reciprocal_rank_fusion(
        [{item: rank for item, (rank, _) in side.items()} for side in sides]
    )
    placed = []
    for item in list(fused)[: goal.limit]:
        (lexical_rank, _), (semantic_rank, _) = (side.get(item, (None, 0)) for side in sides)
        # The smaller rank shows the item; on equal ranks the lexical side does.
        _, _, row = min(
            (rank, number, row)
            for number, side in enumerate(sides)
            for rank, row in ([side[item]] if item in side else [])
        )
        placed.append(Placed(row, fused[item], lexical_rank, semantic_rank))
    step = _joined(lexical_step, semantic_step, placed=tuple(placed))
    if not step.final:
        return step
    shown = np.array([result.row for result in placed], np.int64)
    return Step(refine=shown[pool.inexact[shown]], placed=step.placed)


def decide(pool: Pool, goal: Goal, given_up: Collection[ShardId] = ()) -> Step:
    """Rank what is known, and say what must be learnt before the ranking is final.

    Args:
        pool: the candidates gathered so far, both scores of each where the mode needs both.
        goal: what to rank.
        given_up: shards that will not be asked again; what they left out is ignored.

    Returns:
        The next step. Following steps until one is final gives the true ranking, however deep
        the candidates were at first: every shard is exhausted in the end.
    """
    if given_up:
        pool = pool.without_frontiers(given_up)
    if goal.mode == "hybrid":
        return _decide_hybrid(pool, goal)
    if goal.mode == "rrf":
        return _decide_rrf(pool, goal)
    return _decide_one_side(pool, goal)
