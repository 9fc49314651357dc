"""The candidates that a query has gathered, as columns, with what every shard left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.ids import ItemId, ShardId
from engine.index.statistics import LEXICAL_RELATIVE_ERROR
from engine.search.request import Candidates, Float64, Frontier, Int32, Positions

Place = int
"""Shard, segment in the shard and ordinal in the segment, in one number: see `places`."""

_SHARD_BITS, _SEGMENT_BITS = 48, 32


@dataclass(frozen=True, slots=True)
class FieldBound:
    """What a query can reach in one language field.

    Attributes:
        upper: `sum of qtf(t) * idf(t)`: no passage has a greater BM25.
        error: how far Lucene's float32 score may lie from the true one, in a shard that reports no
            excess error.
    """

    upper: float
    error: float

    @staticmethod
    def of(upper: float) -> FieldBound:
        """Return the bound of a field whose least upper bound is `upper`."""
        return FieldBound(upper, LEXICAL_RELATIVE_ERROR * upper)

    def exceeded(self, excess: float) -> FieldBound:
        """Return the bound in a shard that reports an excess error."""
        return replace(self, error=self.error + excess * self.upper) if excess else self


_NOTHING = FieldBound(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates of all shards. Columns have shape (n,); a row is one passage.

    Attributes:
        shards, segments, ordinals: where the passage lies.
        items: index into `item_ids`; a smaller one is a smaller id.
        starts: first character.
        bounds: BM25's least upper bound in the passage's field.
        low, high: BM25 lies between them; equal once it is known exactly.
        semantic: exact cosine, NaN without a vector.
        item_ids: the items, ascending.
        item_shards: the shard of each item.
        frontiers: what each shard left out, its lexical scores widened by float32's error.
        fields: the bounds by language field.
    """

    shards: Int32
    segments: Int32
    ordinals: Int32
    items: Int32
    starts: Int32
    bounds: Float64
    low: Float64
    high: Float64
    semantic: Float64
    item_ids: tuple[ItemId, ...]
    item_shards: Int32
    frontiers: Mapping[ShardId, Frontier]
    fields: Mapping[str, FieldBound]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.items)

    @property
    def inexact(self) -> NDArray[np.bool_]:
        """Return which rows have no exact BM25 yet, bool of shape (n,)."""
        rows: NDArray[np.bool_] = self.low < self.high
        return rows

    def lexical_bounds(self) -> dict[ShardId, float | None]:
        """Return the greatest BM25 each shard may have left out; None: it returned every match."""
        return {
            shard: max(frontier.lexical.values(), default=None)
            for shard, frontier in self.frontiers.items()
        }

    def semantic_bounds(self) -> dict[ShardId, float | None]:
        """Return the greatest cosine each shard may have left out; None: it returned all."""
        return {shard: frontier.semantic for shard, frontier in self.frontiers.items()}

    def without_frontiers(self, shards: Collection[ShardId]) -> Pool:
        """Return the pool as if some shards had left nothing out."""
        kept = {
            shard: Frontier() if shard in shards else frontier
            for shard, frontier in self.frontiers.items()
        }
        return replace(self, frontiers=kept)

    def places(self) -> NDArray[np.int64]:
        """Return where each passage lies: int64 of shape (n,), distinct."""
        shards = self.shards.astype(np.int64) << _SHARD_BITS
        segments = self.segments.astype(np.int64) << _SEGMENT_BITS
        found: NDArray[np.int64] = shards | segments | self.ordinals
        return found


def positions_of(pool: Pool, rows: NDArray[np.int64]) -> dict[ShardId, tuple[Positions, list[int]]]:
    """Sort rows by shard.

    Returns:
        By shard, the positions to ask for, and the rows they stand for, in that order.
    """
    found: dict[ShardId, tuple[Positions, list[int]]] = {}
    for shard in np.unique(pool.shards[rows]):
        mine = rows[pool.shards[rows] == shard]
        where = Positions(pool.segments[mine], pool.ordinals[mine])
        found[ShardId(int(shard))] = (where, [int(row) for row in mine])
    return found


def _fields_of(part: Candidates, fields: Mapping[str, FieldBound]) -> dict[str, FieldBound]:
    """Return the bounds as they hold for the scores of one shard."""
    excess = part.excess_errors
    return {name: bound.exceeded(excess.get(name, 0.0)) for name, bound in fields.items()}


def _widened(frontier: Frontier, fields: Mapping[str, FieldBound]) -> Frontier:
    lexical = {
        name: score + fields[name].error
        for name, score in frontier.lexical.items()
        if name in fields
    }
    return Frontier(lexical, frontier.semantic)


def _integers(parts: Sequence[Int32]) -> Int32:
    return np.concatenate([np.empty(0, np.int32), *parts])


def _floats(parts: Sequence[Float64]) -> Float64:
    return np.concatenate([np.empty(0, np.float64), *parts])


def _known(
    places: NDArray[np.int64], exact: Mapping[Place, float]
) -> tuple[NDArray[np.int64], Float64]:
    """Return the rows whose exact score is known, and the scores."""
    keys = np.fromiter(exact, np.int64, len(exact))
    scores = np.fromiter(exact.values(), np.float64, len(exact))
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(keys, places, sorter=order), len(keys) - 1)
    rows = np.flatnonzero(keys[order[at]] == places)
    return rows, scores[order[at[rows]]]


def gather(
    found: Sequence[Candidates],
    fields: Mapping[str, FieldBound],
    exact: Mapping[Place, float],
) -> Pool:
    """Make one pool of the candidates of several shards, in any order.

    Args:
        found: at most one entry per shard.
        fields: the query's bounds by language field.
        exact: BM25 scores that are known in float64.
    """
    found = sorted(found, key=lambda part: part.shard)
    of_shard = {part.shard: _fields_of(part, fields) for part in found}
    names = sorted({item for part in found for item in part.item_ids})
    codes = {item: code for code, item in enumerate(names)}
    items, shards, bounds, errors = [], [], [], []
    item_shards = np.zeros(len(names), np.int32)
    for part in found:
        mine = np.array([codes[item] for item in part.item_ids], np.int32)
        item_shards[mine] = part.shard
        items.append(mine[part.items])
        shards.append(np.full(len(part.items), part.shard, np.int32))
        known = [of_shard[part.shard].get(name, _NOTHING) for name in part.field_names]
        bounds.append(np.array([bound.upper for bound in known], np.float64)[part.fields])
        errors.append(np.array([bound.error for bound in known], np.float64)[part.fields])
    lexical = _floats([part.lexical for part in found])
    error = np.where(lexical > 0.0, _floats(errors), 0.0)
    pool = Pool(
        shards=_integers(shards),
        segments=_integers([part.segments for part in found]),
        ordinals=_integers([part.ordinals for part in found]),
        items=_integers(items),
        starts=_integers([part.starts for part in found]),
        bounds=_floats(bounds),
        low=np.maximum(lexical - error, 0.0),
        high=lexical + error,
        semantic=_floats([part.semantic for part in found]),
        item_ids=tuple(names),
        item_shards=item_shards,
        frontiers={part.shard: _widened(part.frontier, of_shard[part.shard]) for part in found},
        fields=fields,
    )
    if exact:
        rows, scores = _known(pool.places(), exact)
        pool.low[rows] = pool.high[rows] = scores
    return pool
