"""The lexical side of one segment: a Lucene index whose doc ids are the segment's ordinals.

Nothing here parses a query: terms come from the analyzers, and every character is just text.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import JavaError, SegmentRefusedError
from engine.index.analysis import java_failures
from engine.index.languages import FIELD_NAMES
from engine.index.lucene import lucene
from engine.index.statistics import (
    FieldStatistics,
    excess_error,
    local_similarity,
    term_boost,
)

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Allowed = NDArray[np.bool_]

_NO_MORE = 2**31 - 1
_FREQS, _NO_FREQS = 8, 0  # PostingsEnum.FREQS, PostingsEnum.NONE
_SEARCHERS = 32
_CACHED_TERMS = 16_384
_EXACT_HITS = 1_000
"""Hits after which Lucene may skip passages that cannot compete; the ranking stays the same."""


@dataclass(frozen=True, slots=True)
class LexicalFilter:
    """The passages of one segment that may be found. Build once, use for many queries.

    Attributes:
        allowed: bool of shape (passages,), or None: all of them. Not to be changed.
        count: how many are allowed.
        bits: the same for Lucene (a FixedBitSet), or None.
    """

    allowed: Allowed | None
    count: int
    bits: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class LexicalQuery:
    """A query of one field, as one segment must be asked so that its scores are global.

    Attributes:
        field: a name of `languages.FIELDS`.
        weights: (term, boost times query frequency), terms that the segment holds.
        similarity: the local (k1', b').
        excess_error: of the scores, see `statistics.excess_error`.
    """

    field: str
    weights: tuple[tuple[str, float], ...]
    similarity: tuple[float, float]
    excess_error: float = 0.0


@dataclass(frozen=True, slots=True)
class LexicalHits:
    """The best passages of one segment.

    Attributes:
        ordinals: int32 of shape (m,), by (-score, ordinal).
        scores: Lucene's float32 of shape (m,), see `LEXICAL_RELATIVE_ERROR`.
        frontier: no passage that is allowed and not here scores more; 0 when all are here.
    """

    ordinals: Int32
    scores: Float32
    frontier: float


@lru_cache(maxsize=_CACHED_TERMS)
def _term_query(field_name: str, term: str) -> Any:
    java = lucene()
    return java.TermQuery(java.Term(field_name, term))


def _decode_heap(codes: Sequence[int]) -> tuple[Int32, Float32]:
    """Decode Lucene's `DocScoreEncoder`: sortable float bits above, MAX_VALUE - doc below.

    Unused places hold the code of (MAX_VALUE, negative infinity), elements outside the heap 0.
    """
    packed = np.sort(np.array(codes, dtype=np.int64))[::-1]
    bits = (packed >> 32).astype(np.int32)
    scores = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int32).view(np.float32)
    ordinals = (_NO_MORE - (packed & 0xFFFFFFFF)).astype(np.int32)
    used = scores > 0.0
    return ordinals[used], scores[used]


class LexicalIndex:
    """Reads the Lucene index of one segment. Thread-safe until it is closed."""

    def __init__(self, directory: Any, reader: Any, name: str) -> None:
        """Take over an open directory and reader; use `open`."""
        self._java = lucene()
        self._directory, self._reader = directory, reader
        leaves = reader.leaves()
        self._context = leaves.get(0)
        self._leaf = self._context.reader()
        self._lock = threading.Lock()
        self._searchers: OrderedDict[tuple[float, float], Any] = OrderedDict()
        self._name = name
        self.passages = int(reader.maxDoc())
        counts = {name: int(self._leaf.getDocCount(name)) for name in FIELD_NAMES}
        self.fields: tuple[str, ...] = tuple(name for name in FIELD_NAMES if counts[name])
        self._totals = {
            name: (counts[name], int(self._leaf.getSumTotalTermFreq(name))) for name in self.fields
        }

    @classmethod
    def open(cls, path: Path, name: str = "") -> LexicalIndex:
        """Open the index in a folder, memory-mapped.

        Args:
            path: the folder.
            name: what to call the segment in an error; default the folder.

        Raises:
            SegmentRefusedError: Lucene cannot read it, or it is not one Lucene segment.
            JavaError: the JVM is not running.
        """
        java, name = lucene(), name or str(path)
        directory = java.open_directory(str(path))
        try:
            with java_failures("opening the lexical index"):
                reader = java.DirectoryReader.open(directory)
        except JavaError as error:
            directory.close()
            raise SegmentRefusedError(name, f"Lucene cannot read it ({error})") from error
        leaves = reader.leaves()
        if leaves.size() != 1 or reader.numDocs() != reader.maxDoc():
            reader.close()
            directory.close()
            raise SegmentRefusedError(name, "its Lucene index is not one whole Lucene segment")
        return cls(directory, reader, name)

    def close(self) -> None:
        """Release the files. Searches that still run fail with JavaError."""
        with self._lock:
            self._searchers.clear()
        with java_failures("closing a lexical index"):
            self._reader.close()
            self._directory.close()

    def filter(self, allowed: Allowed | None) -> LexicalFilter:
        """Prepare a filter over this segment.

        Args:
            allowed: bool of shape (passages,), or None for all.

        Raises:
            ValueError: the shape is wrong.
        """
        if allowed is None:
            return LexicalFilter(None, self.passages)
        if allowed.shape != (self.passages,):
            raise ValueError(f"allowed has shape {allowed.shape}, expected ({self.passages},)")
        count = int(np.count_nonzero(allowed))
        if count == self.passages:
            return LexicalFilter(None, count)
        padded = np.zeros(-(-self.passages // 64) * 64, dtype=np.bool_)
        padded[: self.passages] = allowed
        words = np.packbits(padded, bitorder="little").view("<i8").tolist()
        return LexicalFilter(allowed, count, self._java.FixedBitSet(words, self.passages))

    def local_statistics(self, field_name: str, terms: Sequence[str]) -> FieldStatistics:
        """Return N_i, T_i and n_i(t) as Lucene sees them: dead and hidden passages included."""
        passages, tokens = self._totals.get(field_name, (0, 0))
        if not passages:
            return FieldStatistics(0, 0, {})
        with java_failures("counting terms"):
            asked = {term: self._java.Term(field_name, term) for term in terms}
            counts = {term: int(self._leaf.docFreq(known)) for term, known in asked.items()}
        return FieldStatistics(passages, tokens, counts)

    def document_frequencies(
        self, field_name: str, terms: Sequence[str], allowed: LexicalFilter
    ) -> Int64:
        """Count, for each term, the allowed passages that hold it: int64 of shape (len(terms),)."""
        if allowed.bits is None:
            counts = self.local_statistics(field_name, terms).frequencies
            return np.array([counts.get(term, 0) for term in terms], dtype=np.int64)
        if field_name not in self._totals or not allowed.count:
            return np.zeros(len(terms), dtype=np.int64)
        with java_failures("counting terms"):
            return np.array([self._count(field_name, t, allowed) for t in terms], dtype=np.int64)

    def _count(self, field_name: str, term: str, allowed: LexicalFilter) -> int:
        asked, bits = self._java.Term(field_name, term), allowed.bits
        postings = self._leaf.postings(asked, _NO_FREQS)
        if postings is None or postings.nextDoc() == _NO_MORE:
            return 0
        holding = self._java.FixedBitSet(self.passages)
        postings.intoBitSet(_NO_MORE, holding, 0)
        return int(self._java.FixedBitSet.intersectionCount(holding, bits))

    def localize(
        self,
        field_name: str,
        query_frequencies: Mapping[str, int],
        whole: FieldStatistics,
        similarity: tuple[float, float],
    ) -> LexicalQuery:
        """Make the query that scores here as one index of the whole generation would.

        Args:
            field_name: a name of `languages.FIELDS`.
            query_frequencies: term to qtf.
            whole: statistics of the field over the readable live passages of the generation.
            similarity: the global (k1, b).
        """
        local = self.local_statistics(field_name, tuple(query_frequencies))
        weights = tuple(
            (term, count * term_boost(local, whole, term))
            for term, count in query_frequencies.items()
            if local.frequencies.get(term, 0)
        )
        chosen = local_similarity(*similarity, local, whole)
        return LexicalQuery(field_name, weights, chosen, excess_error(chosen[1], local))

    def search(self, query: LexicalQuery, depth: int, allowed: LexicalFilter) -> LexicalHits:
        """Return the `depth` best allowed passages that hold a term of the query.

        Equal scores go to the lower ordinal.

        Raises:
            ValueError: depth < 1.
            JavaError: Lucene failed.
        """
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        places = min(depth, allowed.count)
        if not query.weights or not places:
            return LexicalHits(np.empty(0, np.int32), np.empty(0, np.float32), 0.0)
        with java_failures("searching"):
            ordinals, scores = self._top(query, places, allowed.bits)
        full = len(ordinals) == places and places < allowed.count
        return LexicalHits(ordinals, scores, float(scores[-1]) if full else 0.0)

    def _top(self, query: LexicalQuery, places: int, bits: Any) -> tuple[Int32, Float32]:
        # As IndexSearcher.search does, but with our bits in the place of Lucene's live documents:
        # any set of passages is a filter then, and costs no query clause.
        searcher = self._searcher(query.similarity)
        manager = self._java.TopScoreDocCollectorManager(places, None, max(_EXACT_HITS, places))
        collector = manager.newCollector()
        disjunction, mode = self._disjunction(query), collector.scoreMode()
        asked = searcher.rewrite(disjunction)
        weight = searcher.createWeight(asked, mode, 1.0)
        scorer = weight.bulkScorer(self._context)
        if scorer is None:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        leaf_collector = collector.getLeafCollector(self._context)
        scorer.score(leaf_collector, bits, 0, _NO_MORE)
        return _decode_heap(collector.heap.heap)

    def _disjunction(self, query: LexicalQuery) -> Any:
        java = self._java
        builder, should = java.BooleanQueryBuilder(), java.BooleanClauseOccur.SHOULD
        for term, boost in query.weights:
            clause = _term_query(query.field, term)
            if boost != 1.0:
                clause = java.BoostQuery(clause, boost)
            builder.add(clause, should)
        return builder.build()

    def _searcher(self, similarity: tuple[float, float]) -> Any:
        with self._lock:
            found = self._searchers.get(similarity)
            if found is None:
                found = self._java.IndexSearcher(self._reader)
                found.setQueryCache(None)
                bm25 = self._java.BM25Similarity(*similarity)
                found.setSimilarity(bm25)
                self._searchers[similarity] = found
                if len(self._searchers) > _SEARCHERS:
                    self._searchers.popitem(last=False)
            self._searchers.move_to_end(similarity)
            return found

    def score(self, query: LexicalQuery, ordinals: Int32) -> Float32:
        """Return Lucene's scores of given passages: float32 of shape (n,), 0 without a term."""
        wanted = np.zeros(self.passages, dtype=np.bool_)
        wanted[ordinals] = True
        hits = self.search(query, max(1, len(ordinals)), self.filter(wanted))
        scores = np.zeros(self.passages, dtype=np.float32)
        scores[hits.ordinals] = hits.scores
        return scores[ordinals]

    def frequencies(self, field_name: str, terms: Sequence[str], ordinals: Int32) -> Int32:
        """Return how often passages hold terms.

        Args:
            field_name: a name of `languages.FIELDS`.
            terms: distinct terms.
            ordinals: int32 of shape (n,), any order, repeats allowed.

        Returns:
            int32 of shape (n, len(terms)).

        Raises:
            JavaError: Lucene failed.
        """
        found = np.zeros((len(ordinals), len(terms)), dtype=np.int32)
        if field_name not in self._totals or not len(ordinals):
            return found
        distinct, inverse = np.unique(ordinals, return_inverse=True)
        counts = np.zeros((len(distinct), len(terms)), dtype=np.int32)
        places = distinct.tolist()
        with java_failures("reading term frequencies"):
            for column, term in enumerate(terms):
                for row, frequency in self._postings(field_name, term, places):
                    counts[row, column] = frequency
        return counts[inverse]

    def _postings(self, field_name: str, term: str, places: Sequence[int]) -> list[tuple[int, int]]:
        """Return (row, frequency) for each of the ascending `places` that holds the term."""
        asked = self._java.Term(field_name, term)
        postings = self._leaf.postings(asked, _FREQS)
        if postings is None:
            return []
        found, current = [], -1
        for row, place in enumerate(places):
            if current < place:
                current = postings.advance(place)
            if current == place:
                found.append((row, postings.freq()))
            elif current == _NO_MORE:
                break
        return found

    def norms(self, field_name: str) -> list[tuple[int, int]]:
        """Return (ordinal, length byte 0..255) of every passage of a field, ascending."""
        with java_failures("reading lengths"):
            values = self._leaf.getNormValues(field_name)
            found: list[tuple[int, int]] = []
            if values is None:
                return found
            while (ordinal := values.nextDoc()) != _NO_MORE:
                found.append((int(ordinal), int(values.longValue()) & 0xFF))
            return found
