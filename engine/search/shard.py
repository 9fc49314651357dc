"""One shard at one generation: candidates of both sides, completed scores, exact scores, texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.ids import ItemId, ShardId
from engine.index.languages import FIELD_CODES, FIELD_NAMES
from engine.index.lexical import LexicalQuery
from engine.index.statistics import NORM_LENGTHS, FieldStatistics, bm25_exact, term_weights
from engine.index.vector import exact_cosines
from engine.search.excerpt import choose_excerpt
from engine.search.request import (
    Candidates,
    Depth,
    FieldTerms,
    Float64,
    Frontier,
    Int32,
    Passage,
    PassageFacts,
    Positions,
    RefineQuery,
    SearchQuery,
    SegmentFacts,
    ShardFacts,
)
from engine.search.visibility import View, Visible, VisibleSegment


@dataclass(frozen=True, slots=True)
class _Hits:
    """Hits of one side in several segments: columns of shape (n,), and their frontier."""

    segments: Int32
    ordinals: Int32
    scores: Float64
    frontier: float | None
    certified: bool = True

    def cut(self, depth: int) -> _Hits:
        """Keep the best `depth`; what falls away moves the frontier."""
        if len(self.scores) <= depth:
            return self
        order = np.lexsort((self.ordinals, self.segments, -self.scores))
        kept, dropped = order[:depth], float(self.scores[order[depth]])
        frontier = dropped if self.frontier is None else max(dropped, self.frontier)
        return replace(
            self,
            segments=self.segments[kept],
            ordinals=self.ordinals[kept],
            scores=self.scores[kept],
            frontier=frontier,
        )


_Part = tuple[int, Int32, NDArray[np.floating], float | None]
_Column = tuple[int, Int32, Float64, Float64]
"""Of one segment: its position, ordinals, BM25 and cosines."""


def _join(parts: Sequence[_Part]) -> _Hits:
    frontiers = [frontier for *_, frontier in parts if frontier is not None]
    return _Hits(
        np.concatenate(
            [np.empty(0, np.int32), *(np.full(len(o), s, np.int32) for s, o, *_ in parts)]
        ),
        np.concatenate([np.empty(0, np.int32), *(ordinals for _, ordinals, *_ in parts)]),
        np.concatenate([np.empty(0, np.float64), *(s.astype(np.float64) for _, _, s, _ in parts)]),
        max(frontiers, default=None),
    )


def whole_statistics(terms: FieldTerms) -> FieldStatistics:
    """Return the counts of a query in one field as the index takes them."""
    frequencies = dict(zip(terms.terms, terms.document_frequencies, strict=True))
    return FieldStatistics(terms.passages, terms.tokens, frequencies)


def query_frequencies(terms: FieldTerms) -> dict[str, int]:
    """Return how often each term occurs in the query, in order of first occurrence."""
    return dict(zip(terms.terms, terms.query_frequencies, strict=True))


class Shard:
    """The segments that one shard has in one generation. Thread-safe, holds no state of queries."""

    def __init__(self, shard: ShardId, segments: Sequence[VisibleSegment]) -> None:
        """Take the open segments in the order of the generation's list."""
        self.shard = shard
        self.segments = tuple(segments)

    @property
    def fields(self) -> frozenset[str]:
        """Return the language fields that any passage has."""
        return frozenset(name for part in self.segments for name in part.segment.lexical.fields)

    def count(self, view: View, terms: Mapping[str, Sequence[str]]) -> dict[str, FieldStatistics]:
        """Count, by language field, what a caller may read, and how much of it holds each term."""
        found: dict[str, FieldStatistics] = {}
        for name, wanted in terms.items():
            passages = tokens = 0
            holding = np.zeros(len(wanted), np.int64)
            for part in self.segments:
                visible = part.visible(view)
                if name in visible.passages:
                    passages += visible.passages[name]
                    tokens += visible.tokens[name]
                    lexical = part.segment.lexical
                    holding += lexical.document_frequencies(name, wanted, visible.lexical)
            frequencies = dict(zip(wanted, holding.tolist(), strict=True))
            found[name] = FieldStatistics(passages, tokens, frequencies)
        return found

    # ------------------------------------------------------------------------------- search

    def search(
        self, query: SearchQuery, view: View, depth: Depth, check: Callable[[], None]
    ) -> Candidates:
        """Return candidates of both sides with both scores, and what was left out.

        Args:
            query: the question.
            view: the state it names.
            depth: candidates per language field, and of the semantic side.
            check: called between stages; raises when the deadline has passed.
        """
        visible = [part.visible(view, query.base) for part in self.segments]
        lexical: list[_Hits] = []
        frontiers: dict[str, float] = {}
        localized = {name: self._localize(query, name) for name in query.fields}
        for name in query.fields:
            check()
            hits = self._lexical(localized[name], visible, depth.lexical).cut(depth.lexical)
            lexical.append(hits)
            if hits.frontier is not None:
                frontiers[name] = hits.frontier
        check()
        semantic = self._semantic(query, visible, depth.semantic).cut(depth.semantic)
        check()
        completing = localized if query.complete else {}
        columns = self._complete(query, lexical, semantic, completing)
        found = self._candidates(
            columns, Frontier(frontiers, semantic.frontier), certified=semantic.certified
        )
        return replace(found, excess_errors=_excess_errors(localized))

    def _localize(self, query: SearchQuery, name: str) -> list[LexicalQuery]:
        terms = query.fields[name]
        counts, whole = query_frequencies(terms), whole_statistics(terms)
        return [
            part.segment.lexical.localize(name, counts, whole, (query.k1, query.b))
            for part in self.segments
        ]

    def _lexical(
        self, queries: Sequence[LexicalQuery], visible: Sequence[Visible], depth: int
    ) -> _Hits:
        parts: list[_Part] = []
        for number, part in enumerate(self.segments):
            hits = part.segment.lexical.search(queries[number], depth, visible[number].lexical)
            frontier = hits.frontier if hits.frontier > 0.0 else None
            parts.append((number, hits.ordinals, hits.scores, frontier))
        return _join(parts)

    def _semantic(self, query: SearchQuery, visible: Sequence[Visible], depth: int) -> _Hits:
        if query.vector is None:
            return _join([])
        parts: list[_Part] = []
        certified = True
        for number, part in enumerate(self.segments):
            hits = part.segment.semantic.search(query.vector, depth, visible[number].allowed)
            frontier = hits.frontier if hits.frontier > -math.inf else None
            parts.append((number, hits.ordinals, hits.scores, frontier))
            certified = certified and hits.certified
        return replace(_join(parts), certified=certified)

    def _complete(
        self,
        query: SearchQuery,
        lexical: Sequence[_Hits],
        semantic: _Hits,
        localized: Mapping[str, Sequence[LexicalQuery]],
    ) -> list[_Column]:
        """Give every hit both scores: BM25 by an ordinal-filtered query, cosines from the rows."""
        columns: list[_Column] = []
        for number, part in enumerate(self.segments):
            hits = [side.segments == number for side in lexical]
            known = np.concatenate(
                [
                    np.empty(0, np.int32),
                    *(s.ordinals[h] for s, h in zip(lexical, hits, strict=True)),
                ]
            )
            scores = np.concatenate(
                [np.empty(0), *(side.scores[h] for side, h in zip(lexical, hits, strict=True))]
            )
            near = semantic.ordinals[semantic.segments == number]
            ordinals = np.union1d(known, near).astype(np.int32)
            bm25 = np.zeros(len(ordinals), np.float64)
            bm25[np.searchsorted(ordinals, known)] = scores
            missing = np.isin(ordinals, known, invert=True)
            for name, queries in localized.items():
                rows = missing & (part.segment.field[ordinals] == FIELD_CODES[name])
                if rows.any():
                    bm25[rows] = part.segment.lexical.score(queries[number], ordinals[rows])
            columns.append((number, ordinals, bm25, self._cosines(query, part, ordinals)))
        return columns

    def _cosines(self, query: SearchQuery, part: VisibleSegment, ordinals: Int32) -> Float64:
        if query.vector is None:
            return np.full(len(ordinals), np.nan)
        return exact_cosines(part.segment.vectors[ordinals], query.vector)

    def _candidates(
        self, columns: Iterable[_Column], frontier: Frontier, *, certified: bool
    ) -> Candidates:
        codes: dict[ItemId, int] = {}
        segments, ordinals, items, starts, fields = [], [], [], [], []
        lexical, semantic = [], []
        for number, rows, bm25, cosines in columns:
            part = self.segments[number]
            names = [part.items[entry] for entry in part.segment.entry[rows].tolist()]
            items.append(np.array([codes.setdefault(n, len(codes)) for n in names], np.int32))
            segments.append(np.full(len(rows), number, np.int32))
            ordinals.append(rows)
            starts.append(part.segment.char_start[rows])
            fields.append(part.segment.field[rows].astype(np.int32))
            lexical.append(bm25)
            semantic.append(cosines)
        none, nothing = np.empty(0, np.int32), np.empty(0, np.float64)
        return Candidates(
            shard=self.shard,
            segments=np.concatenate([none, *segments]),
            ordinals=np.concatenate([none, *ordinals]),
            items=np.concatenate([none, *items]),
            starts=np.concatenate([none, *starts]),
            fields=np.concatenate([none, *fields]),
            lexical=np.concatenate([nothing, *lexical]),
            semantic=np.concatenate([nothing, *semantic]),
            item_ids=tuple(codes),
            field_names=FIELD_NAMES,
            frontier=frontier,
            certified=certified,
        )

    # ------------------------------------------------------------------------------- winners

    def refine(self, query: RefineQuery, positions: Positions) -> Float64:
        """Return BM25 in float64, shape (n,), in the order of `positions`."""
        scores = np.zeros(len(positions.ordinals), np.float64)
        for number, part in enumerate(self.segments):
            mine = np.flatnonzero(positions.segments == number)
            fields = part.segment.field[positions.ordinals[mine]]
            for name, terms in query.fields.items():
                rows = mine[fields == FIELD_CODES[name]]
                if len(rows):
                    ordinals = positions.ordinals[rows]
                    scores[rows] = _exact(part, name, terms, ordinals, (query.k1, query.b))
        return scores

    def hydrate(self, text: str, positions: Positions) -> tuple[Passage, ...]:
        """Return what is shown of passages, in the order of `positions`.

        Args:
            text: the query, for the excerpt.
            positions: where the passages lie.
        """
        pairs = zip(positions.segments.tolist(), positions.ordinals.tolist(), strict=True)
        return tuple(_passage(self.segments[number], ordinal, text) for number, ordinal in pairs)

    def explain(self, terms: Mapping[str, tuple[str, ...]], positions: Positions) -> ShardFacts:
        """Return what the scores of passages were computed from, in the order of `positions`.

        Args:
            terms: the query's distinct terms, by language field.
            positions: where the passages lie.
        """
        pairs = zip(positions.segments.tolist(), positions.ordinals.tolist(), strict=True)
        return ShardFacts(
            self.shard,
            tuple(_segment_facts(part) for part in self.segments),
            tuple(_facts(self.segments[number], ordinal, terms) for number, ordinal in pairs),
        )


def _excess_errors(localized: Mapping[str, Sequence[LexicalQuery]]) -> dict[str, float]:
    largest = {
        name: max((part.excess_error for part in parts), default=0.0)
        for name, parts in localized.items()
    }
    return {name: error for name, error in largest.items() if error}


def _segment_facts(part: VisibleSegment) -> SegmentFacts:
    segment = part.segment
    recall = segment.manifest.vectors.recall
    return SegmentFacts(segment.name, segment.semantic.exact, recall[-1] if recall else None)


def _facts(
    part: VisibleSegment, ordinal: int, terms: Mapping[str, tuple[str, ...]]
) -> PassageFacts:
    segment = part.segment
    name = FIELD_NAMES[int(segment.field[ordinal])]
    row = segment.lexical.frequencies(name, terms.get(name, ()), np.array([ordinal], np.int32))
    return PassageFacts(
        segment=segment.name,
        ordinal=ordinal,
        field=name,
        start=int(segment.char_start[ordinal]),
        end=int(segment.char_end[ordinal]),
        tokens=int(segment.length[ordinal]),
        length=int(NORM_LENGTHS[segment.norm[ordinal]]),
        frequencies=tuple(row[0].tolist()),
    )


def _exact(
    part: VisibleSegment,
    name: str,
    terms: FieldTerms,
    ordinals: Int32,
    similarity: tuple[float, float],
) -> Float64:
    whole = whole_statistics(terms)
    return bm25_exact(
        part.segment.lexical.frequencies(name, terms.terms, ordinals),
        part.segment.norm[ordinals],
        term_weights(query_frequencies(terms), whole, terms.terms),
        whole.average_length,
        similarity,
    )


def _passage(part: VisibleSegment, ordinal: int, query: str) -> Passage:
    segment = part.segment
    entry = segment.describe(int(segment.entry[ordinal]))
    text = segment.text(ordinal)
    span = choose_excerpt(text, query)
    return Passage(
        base=entry.base_id,
        item=entry.item_id,
        revision=entry.revision_id,
        title=entry.title,
        excerpt=text[span.start : span.end],
        excerpt_offset=int(segment.char_start[ordinal]) + span.start,
        source_type=entry.source_type,
        source_ref=entry.source_ref,
        content_sha256=entry.content_sha256,
    )
