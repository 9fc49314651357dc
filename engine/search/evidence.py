"""What a search knew when its ranking was final: all that an explanation is made from.

It is kept by the run that ranked, so an explanation can tell of no other search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.contract import SearchRequest
from engine.ids import ShardId
from engine.search.fusion import best_rows
from engine.search.pool import Pool
from engine.search.request import FieldTerms, PassageFacts, Pin, ShardFacts
from engine.search.threshold import Goal, Placed, Rows, Side


@dataclass(frozen=True, slots=True)
class Shown:
    """A result, and where its ranks come from. Rows are rows of the pool.

    Attributes:
        placed: the result.
        lexical_row: the passage that gave the item its lexical rank; None without a rank.
        semantic_row: the same on the semantic side.
        candidates: how many passages of the item were candidates.
    """

    placed: Placed
    lexical_row: int | None
    semantic_row: int | None
    candidates: int

    @property
    def rows(self) -> frozenset[int]:
        """Return the distinct rows."""
        rows = (self.placed.row, self.lexical_row, self.semantic_row)
        return frozenset(row for row in rows if row is not None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A final ranking and what it was computed from.

    Attributes:
        request: the query.
        goal: what was ranked, with the floor of `hybrid`.
        pin: the state that was pinned.
        shards: how many shards the generation has.
        encoder: fingerprint of the generation's vectors.
        sample: vectors of its reference sample.
        similarity: BM25's (k1, b).
        fields: the query's terms by language field, as counted.
        pool: the candidates.
        shown: the results, best first.
        certified: by shard that answered, whether its frontier is proved.
        facts: by shard that answered.
        passages: the facts of every row that `shown` names.
    """

    request: SearchRequest
    goal: Goal
    pin: Pin
    shards: int
    encoder: str
    sample: int
    similarity: tuple[float, float]
    fields: Mapping[str, FieldTerms]
    pool: Pool
    shown: tuple[Shown, ...]
    certified: Mapping[ShardId, bool]
    facts: Mapping[ShardId, ShardFacts]
    passages: Mapping[int, PassageFacts]


def trace(pool: Pool, placed: Sequence[Placed]) -> tuple[Shown, ...]:
    """Find the passages that gave the items of a final ranking their ranks."""
    lexical = _best_of_items(pool, Side.lexical(pool))
    semantic = _best_of_items(pool, Side.semantic(pool))
    candidates = np.bincount(pool.items, minlength=len(pool.item_ids))
    shown = []
    for result in placed:
        item = int(pool.items[result.row])
        shown.append(
            Shown(
                placed=result,
                lexical_row=None if result.lexical_rank is None else lexical[item],
                semantic_row=None if result.semantic_rank is None else semantic[item],
                candidates=int(candidates[item]),
            )
        )
    return tuple(shown)


def _best_of_items(pool: Pool, side: Side) -> dict[int, int]:
    rows = best_rows(side.low, pool.items, pool.starts)
    return {int(pool.items[row]): int(row) for row in rows if side.low[row] > side.minimum}


def rows_to_describe(shown: Sequence[Shown]) -> Rows:
    """Return the distinct rows whose facts an explanation needs, ascending."""
    rows = frozenset[int]().union(*(one.rows for one in shown))
    return np.array(sorted(rows), np.int64)
