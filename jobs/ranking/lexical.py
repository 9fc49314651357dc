"""BM25 in float64, straight from the postings of every segment (contract, "Scoring")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.index.analysis import analyze
from engine.index.languages import FIELD_NAMES
from engine.index.postings import RawPostings
from jobs.ranking.corpus import Float64, Mask, Passages, Rows

_KEPT_POSTINGS = 8_000_000
"""Postings remembered between queries, 16 bytes each."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the query in one language field.

    Attributes:
        count: how often it occurs in the query.
        holding: passages of the field, of those that count, that hold it.
        weight: count times idf.
        rows: every passage that holds it, ascending.
        frequencies: how often each does.
    """

    count: int
    holding: int
    weight: float
    rows: Rows
    frequencies: Rows

    def frequency(self, row: int) -> int:
        """Return how often a passage holds it."""
        at = int(np.searchsorted(self.rows, row))
        found = at < len(self.rows) and int(self.rows[at]) == row
        return int(self.frequencies[at]) if found else 0


@dataclass(frozen=True, slots=True)
class Lexical:
    """BM25 of every passage.

    Attributes:
        scores: float64 of shape (n,); 0 without a term of the query.
        uppers: float64 of shape (n,), `sum of qtf * idf` in the passage's field.
        terms: the terms by field, in order of first occurrence in the query.
        passages: the columns it was computed from.
    """

    scores: Float64
    uppers: Float64
    terms: dict[int, tuple[Term, ...]]
    passages: Passages

    def ingredients(self, row: int) -> tuple[object, ...]:
        """Return all that a passage's score is made of: equal ingredients, equal scores."""
        field, length = int(self.passages.fields[row]), int(self.passages.lengths[row])
        held = [(t.holding, t.count, t.frequency(row)) for t in self.terms.get(field, ())]
        held = [part for part in held if part[2]]
        return (field, length, *held) if held else ()


class Bm25:
    """Scores passages by words."""

    def __init__(
        self, passages: Passages, postings: Sequence[RawPostings], k1: float, b: float
    ) -> None:
        """Take the columns, the postings of each segment, and the two constants of BM25."""
        self._passages, self._postings = passages, tuple(postings)
        self._k1, self._b = k1, b
        sizes = [segment.passages for segment in postings]
        self._firsts = np.cumsum([0, *sizes])
        self._kept: dict[tuple[str, str], tuple[Rows, Rows]] = {}
        self._kept_size = 0

    def score(self, query: str, counted: Mask) -> Lexical:
        """Score every passage for a query.

        Args:
            query: any text.
            counted: the passages that statistics are over, bool of shape (n,).
        """
        passages = self._passages
        scores, uppers = np.zeros(len(passages)), np.zeros(len(passages))
        terms: dict[int, tuple[Term, ...]] = {}
        for code, name in enumerate(FIELD_NAMES):
            mine = counted & (passages.fields == code) & (passages.tokens > 0)
            number = int(np.count_nonzero(mine))
            if not number:
                continue
            average = int(passages.tokens[mine].sum()) / number
            terms[code] = self._terms(name, query, counted, number)
            uppers[passages.fields == code] = math.fsum(term.weight for term in terms[code])
            for term in terms[code]:
                tf = term.frequencies.astype(np.float64)
                length = passages.lengths[term.rows] / average
                norm = self._k1 * (1 - self._b + self._b * length)
                scores[term.rows] += term.weight * tf / (tf + norm)
        return Lexical(scores, uppers, terms, passages)

    def _terms(self, field: str, query: str, counted: Mask, number: int) -> tuple[Term, ...]:
        found = []
        for text, count in analyze(field, query).items():
            rows, frequencies = self._held(field, text)
            holding = int(np.count_nonzero(counted[rows]))
            idf = math.log(1 + (number - holding + 0.5) / (holding + 0.5))
            found.append(Term(count, holding, count * idf, rows, frequencies))
        return tuple(found)

    def _held(self, field: str, term: str) -> tuple[Rows, Rows]:
        """Return the rows that hold a term, ascending, and how often each does."""
        known = self._kept.get((field, term))
        if known is not None:
            return known
        parts = [segment.postings(field, term) for segment in self._postings]
        nothing = np.empty(0, np.int64)
        shifted = [rows + first for (rows, _), first in zip(parts, self._firsts, strict=False)]
        rows = np.concatenate([nothing, *shifted])
        frequencies = np.concatenate([nothing, *(often for _, often in parts)])
        if self._kept_size > _KEPT_POSTINGS:
            self._kept, self._kept_size = {}, 0
        self._kept[field, term] = rows, frequencies
        self._kept_size += len(rows)
        return rows, frequencies
