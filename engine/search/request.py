"""What the coordinator asks a shard group, and what it hears back. Frozen values, no behaviour.

Every question names the generation and the catalog version that the whole query is pinned to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.ids import BaseId, ItemId, RevisionId, ShardId

Readable = frozenset[BaseId] | None
"""The bases a caller may read; None: every active base."""

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Pin:
    """The state that a query is answered from."""

    generation: int
    catalog: str


@dataclass(frozen=True, slots=True)
class Depth:
    """Candidates to take from one shard: per language field, and on the semantic side."""

    lexical: int
    semantic: int

    def doubled(self) -> Depth:
        """Return twice the depth on both sides."""
        return Depth(self.lexical * 2, self.semantic * 2)


@dataclass(frozen=True, slots=True)
class FieldTerms:
    """A query in one language field, with what the caller may read counted in that field.

    Attributes:
        terms: distinct terms, in order of first occurrence in the query.
        query_frequencies: how often each occurs in the query.
        passages: readable live passages of the field (N).
        tokens: their tokens (T).
        document_frequencies: readable live passages that hold each term (n).
    """

    terms: tuple[str, ...]
    query_frequencies: tuple[int, ...]
    passages: int
    tokens: int
    document_frequencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Positions:
    """Passages of one shard: `segments` and `ordinals`, int32 of shape (n,), any order."""

    segments: Int32
    ordinals: Int32


# -------------------------------------------------------------------------------- questions


@dataclass(frozen=True, slots=True)
class StatisticsQuery:
    """Ask a group to analyse a query and to count its terms."""

    pin: Pin
    readable: Readable
    text: str


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Ask a group for candidates of some of its shards.

    Attributes:
        pin: the state to answer from.
        readable: the caller's bases; they were counted in `fields`.
        base: narrows the candidates, never the statistics.
        fields: the lexical side, by language field; empty: none.
        vector: the query's vector, float32 of shape (dimension,), unit length; None: no side.
        k1: BM25's saturation.
        b: BM25's length normalisation.
        depths: how deep to search, by shard; only these shards are asked.
        complete: compute the score that a side did not return, on both sides.
    """

    pin: Pin
    readable: Readable
    base: BaseId | None
    fields: Mapping[str, FieldTerms]
    vector: Float32 | None
    k1: float
    b: float
    depths: Mapping[ShardId, Depth]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class RefineQuery:
    """Ask a group for BM25 in float64 of given passages."""

    pin: Pin
    fields: Mapping[str, FieldTerms]
    k1: float
    b: float
    positions: Mapping[ShardId, Positions]


@dataclass(frozen=True, slots=True)
class HydrateQuery:
    """Ask a group for what is shown of given passages; `text` is the query, for the excerpt."""

    pin: Pin
    text: str
    positions: Mapping[ShardId, Positions]


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """Ask a group what the scores of given passages were computed from.

    Attributes:
        pin: the state to answer from.
        terms: the query's distinct terms, by language field.
        positions: the passages, by shard; a shard named without any tells its segments only.
    """

    pin: Pin
    terms: Mapping[str, tuple[str, ...]]
    positions: Mapping[ShardId, Positions]


@dataclass(frozen=True, slots=True)
class GenerationsQuery:
    """Ask a group which generations it has open."""


Question = (
    StatisticsQuery | SearchQuery | RefineQuery | HydrateQuery | ExplainQuery | GenerationsQuery
)

# ---------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Statistics:
    """The query as one group counted it, by language field its passages have."""

    fields: Mapping[str, FieldTerms]


@dataclass(frozen=True, slots=True)
class Frontier:
    """What a shard left out: nothing it did not return can beat these scores, ties possible.

    Attributes:
        lexical: float32 BM25 by language field; a field not named returned every match.
        semantic: cosine; None: every passage that the caller may see was returned.
    """

    lexical: Mapping[str, float] = field(default_factory=dict)
    semantic: float | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one shard, in any order. All arrays have shape (n,).

    Attributes:
        shard: whose they are.
        segments: int32, position of each passage's segment in the shard.
        ordinals: int32, the passage's ordinal in its segment.
        items: int32, index into `item_ids`.
        starts: int32, first character of the passage in its revision.
        fields: int32, index into `field_names`.
        lexical: float64, BM25 as Lucene computed it in float32; 0 where no term of the query is.
        semantic: float64, exact cosine; NaN where the query has no vector.
        item_ids: the items, distinct.
        field_names: the language fields.
        frontier: what was left out.
        certified: whether the frontier is proved; False after an approximate vector search.
        excess_errors: what to add to `LEXICAL_RELATIVE_ERROR` for the shard's BM25, by language
            field; a field not named needs nothing added.
    """

    shard: ShardId
    segments: Int32
    ordinals: Int32
    items: Int32
    starts: Int32
    fields: Int32
    lexical: Float64
    semantic: Float64
    item_ids: tuple[ItemId, ...]
    field_names: tuple[str, ...]
    frontier: Frontier
    certified: bool = True
    excess_errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """The candidates of the shards asked, in ascending order of shard."""

    shards: tuple[Candidates, ...]


@dataclass(frozen=True, slots=True)
class Refined:
    """Exact BM25, float64, in the order of the positions asked, by shard."""

    lexical: Mapping[ShardId, Float64]


@dataclass(frozen=True, slots=True)
class Passage:
    """What is shown of a passage. `excerpt` starts at code point `excerpt_offset`."""

    base: BaseId
    item: ItemId
    revision: RevisionId
    title: str
    excerpt: str
    excerpt_offset: int
    source_type: str
    source_ref: str
    content_sha256: str


@dataclass(frozen=True, slots=True)
class Hydrated:
    """Passages in the order of the positions asked, by shard."""

    passages: Mapping[ShardId, tuple[Passage, ...]]


@dataclass(frozen=True, slots=True)
class PassageFacts:
    """What the scores of a passage were computed from.

    Attributes:
        segment: the name of its segment.
        ordinal: its ordinal in the segment.
        field: its language field.
        start, end: its characters in the revision.
        tokens: its tokens, title included.
        length: the same as BM25 sees it: decoded from Lucene's one byte.
        frequencies: how often it holds each term that was asked of its field; empty when none was.
    """

    segment: str
    ordinal: int
    field: str
    start: int
    end: int
    tokens: int
    length: int
    frequencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment: whether its vectors are scanned exactly, else its recall.

    The recall is the one measured when it was built, at about the depth of the rank window.
    """

    name: str
    exact: bool
    recall: float | None


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """The segments of one shard, in its order, and the passages asked, in their order."""

    shard: ShardId
    segments: tuple[SegmentFacts, ...]
    passages: tuple[PassageFacts, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """The facts of the shards asked, in ascending order of shard."""

    shards: tuple[ShardFacts, ...]


@dataclass(frozen=True, slots=True)
class Generations:
    """The generations that a group has open, and the shards it holds of each."""

    shards: Mapping[int, tuple[ShardId, ...]]


Answer = Statistics | Found | Refined | Hydrated | Explained | Generations
