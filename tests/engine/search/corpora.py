"""Imagined corpora for the pure parts: passages with scores, shards that answer at a depth."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from engine.ids import ItemId, ShardId
from engine.search.pool import FieldBound
from engine.search.request import Candidates, Depth, Frontier

FIELDS = {"text_en": FieldBound(8.0, 1e-3), "text_de": FieldBound(4.0, 1e-3)}
NAMES = tuple(FIELDS)


@dataclass(frozen=True, slots=True)
class Imagined:
    """A passage with its true scores, and Lucene's error on one of them."""

    item: ItemId
    start: int
    shard: ShardId
    field: str
    lexical: float
    semantic: float
    noise: float

    @property
    def seen_lexical(self) -> float:
        """Return BM25 as a shard reports it."""
        return self.lexical + self.noise * FIELDS[self.field].error if self.lexical else 0.0


@st.composite
def corpora(draw: st.DrawFn) -> list[Imagined]:
    """Draw passages with few different scores, so that ties are common."""
    shards = draw(st.integers(1, 4))
    items = draw(st.integers(1, 12))
    homes = draw(st.lists(st.integers(0, shards - 1), min_size=items, max_size=items))
    passages = []
    for item, home in enumerate(homes):
        field = draw(st.sampled_from(NAMES))
        for start in range(draw(st.integers(1, 3))):
            step = draw(st.integers(0, 4))
            # Differences below twice the error: only exact scores tell these apart.
            fine = draw(st.sampled_from([0.0, 0.0, 4e-4, 9e-4]))
            passages.append(
                Imagined(
                    ItemId(f"item-{item:02d}"),
                    start,
                    ShardId(home),
                    field,
                    step / 2 + fine if step else 0.0,
                    draw(st.integers(-2, 4)) / 4,
                    draw(st.sampled_from([-1.0, 0.0, 0.5, 1.0])),
                )
            )
    return passages


def _cut(ranked: list[int], scores: Sequence[float], depth: int) -> tuple[list[int], float | None]:
    kept = ranked[:depth]
    return kept, None if len(ranked) <= depth else scores[kept[-1]]


def answer(
    passages: Sequence[Imagined], shard: ShardId, depth: Depth, rng: random.Random
) -> Candidates:
    """Answer as a shard does: the best of each side, completed, in shuffled order."""
    mine = [at for at, passage in enumerate(passages) if passage.shard == shard]
    seen = [passage.seen_lexical for passage in passages]
    cosines = [passage.semantic for passage in passages]
    found: set[int] = set()
    frontiers = {}
    for name in NAMES:
        matches = [at for at in mine if passages[at].field == name and seen[at] > 0]
        matches.sort(key=lambda at: (-seen[at], at))
        kept, frontier = _cut(matches, seen, depth.lexical)
        found.update(kept)
        if frontier is not None:
            frontiers[name] = frontier
    near = sorted(mine, key=lambda at: (-cosines[at], at))
    kept, semantic_frontier = _cut(near, cosines, depth.semantic)
    rows = rng.sample(sorted(found | set(kept)), len(found | set(kept)))
    items = sorted({passages[at].item for at in rows})
    rng.shuffle(items)
    return Candidates(
        shard=shard,
        segments=np.zeros(len(rows), np.int32),
        ordinals=np.array(rows, np.int32),
        items=np.array([items.index(passages[at].item) for at in rows], np.int32),
        starts=np.array([passages[at].start for at in rows], np.int32),
        fields=np.array([NAMES.index(passages[at].field) for at in rows], np.int32),
        lexical=np.array([seen[at] for at in rows], np.float64),
        semantic=np.array([cosines[at] for at in rows], np.float64),
        item_ids=tuple(items),
        field_names=NAMES,
        frontier=Frontier(frontiers, semantic_frontier),
    )
