"""The four modes by brute force over every passage that a caller may read.

Written from the contract, "Scoring", with nothing of the product's search in it: no shards, no
candidates, no certificate. Every passage is scored, every item is ranked, then the list is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import InvalidValueError
from engine.ids import BaseId
from jobs.ranking.corpus import Float64, Mask, Passages
from jobs.ranking.lexical import Bm25, Lexical
from jobs.ranking.semantic import SCREEN, Float32, Vectors, mean_cosine
from jobs.ranking.standing import Ingredients, Standing

RANK_CONSTANT = 60


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `text` is trimmed and not blank; `base` narrows when it is not None."""

    text: str
    mode: str
    alpha: float
    limit: int
    base: BaseId | None = None


@dataclass(frozen=True, slots=True)
class Fused:
    """An item of rank fusion: its item code, the row that shows it, and its score."""

    item: int
    row: int
    score: float


@dataclass(frozen=True, slots=True)
class Expected:
    """What the contract says the answer is.

    Attributes:
        question: what was asked.
        standing: all items of the mode's ranking; None for rrf.
        fused: the items of rank fusion, best first, with ties by id; empty in other modes.
        lexical, semantic: the ranking of each side, None where the mode has no such side.
        window: how many items of a side have a rank.
        scored: the scores that all of this is computed from.
    """

    question: Question
    standing: Standing | None
    fused: tuple[Fused, ...]
    lexical: Standing | None
    semantic: Standing | None
    window: int
    scored: Scored

    def __len__(self) -> int:
        """Return how many results the answer has."""
        found = len(self.fused) if self.standing is None else len(self.standing)
        return min(found, self.question.limit)

    def chosen(self) -> Mask:
        """Return the passages that may be found, bool of shape (n,)."""
        return narrowed(self.scored.passages, self.scored.counted, self.question)


class Scored:
    """One query with the score of every passage, over what one caller may read."""

    def __init__(
        self,
        passages: Passages,
        counted: Mask,
        lexical: Lexical | None,
        semantic: tuple[Vectors, Float32, Float64, float] | None,
    ) -> None:
        """Take what was computed.

        Args:
            passages: the columns.
            counted: what the caller may read.
            lexical: BM25, or None.
            semantic: the vectors, the query's vector, its products with all of them, and the mean
                cosine with the reference sample; or None.
        """
        self.passages, self.counted, self.lexical = passages, counted, lexical
        self._semantic = semantic
        self._decided = np.zeros(len(passages), np.bool_)

    @property
    def cosines(self) -> Float64:
        """Return the cosine of every passage, correctly rounded where `_settle` was asked to."""
        if self._semantic is None:
            raise ValueError("the query was not encoded")
        return self._semantic[2]

    @property
    def bm25(self) -> Lexical:
        """Return BM25 of every passage."""
        if self.lexical is None:
            raise ValueError("the query was not analysed")
        return self.lexical

    def lexical_at(self, row: int) -> tuple[float, float]:
        """Return BM25 of one passage, and the most that its field could give."""
        return float(self.bm25.scores[row]), float(self.bm25.uppers[row])

    def semantic_parts(self) -> Float64:
        """Return `max(0, cos - floor) / (1 - floor)` of every passage."""
        floor = 0.0 if self._semantic is None else self._semantic[3]
        if floor >= 1.0:
            return np.zeros(len(self.passages))
        return np.maximum(0.0, self.cosines - floor) / (1.0 - floor)

    def hybrid(self, alpha: float) -> Float64:
        """Return `alpha * lex + (1 - alpha) * sem` of every passage."""
        return alpha * self.lexical_parts() + (1.0 - alpha) * self.semantic_parts()

    def lexical_parts(self) -> Float64:
        """Return BM25 of every passage over the most that its field could give."""
        bm25 = self.bm25
        parts = np.zeros(len(self.passages))
        np.divide(bm25.scores, bm25.uppers, out=parts, where=bm25.uppers > 0.0)
        return parts

    # -------------------------------------------------------------------------- ingredients

    def _lexical_of(self, row: int) -> tuple[object, ...]:
        return self.bm25.ingredients(row)

    def _semantic_of(self, row: int) -> tuple[object, ...]:
        if self._semantic is None:
            return ()
        vectors, query, *_ = self._semantic
        products = vectors.row(row).astype(np.float64) * query
        return ((products + 0.0).tobytes(),)  # + 0.0: no negative zero

    def _hybrid_of(self, alpha: float) -> Ingredients:
        parts = self.semantic_parts()

        def of(row: int) -> tuple[object, ...]:
            lexical = self._lexical_of(row) if alpha > 0.0 else ()
            semantic = self._semantic_of(row) if alpha < 1.0 and parts[row] > 0.0 else ()
            return (lexical, semantic)

        return of

    # ---------------------------------------------------------------------------- rankings

    def lexical_side(self, chosen: Mask) -> Standing:
        """Rank by BM25: only passages with a term of the query are on that side."""
        bm25 = self.bm25
        scale = float(bm25.uppers.max(initial=1.0))
        matching = chosen & (bm25.scores > 0.0)
        return Standing.of(self.passages, bm25.scores, matching, scale, self._lexical_of)

    def semantic_side(self, chosen: Mask, count: int) -> Standing:
        """Rank by cosine; exact for the first `count` items and what could be among them."""
        self._settle(self.cosines, chosen, count)
        return Standing.of(self.passages, self.cosines, chosen, 1.0, self._semantic_of)

    def hybrid_ranking(self, chosen: Mask, alpha: float, count: int) -> Standing:
        """Rank by the fused score; exact for the first `count` items as above."""
        self._settle(self.hybrid(alpha), chosen, count)
        scores = self.hybrid(alpha)
        matching = chosen & (scores > 0.0)
        return Standing.of(self.passages, scores, matching, 1.0, self._hybrid_of(alpha))

    def _settle(self, scores: Float64, chosen: Mask, count: int) -> None:
        """Round the cosines correctly of all passages that could be among the first items."""
        if self._semantic is None:
            return
        rough = np.full(len(self.passages.item_ids), -np.inf)
        np.maximum.at(rough, self.passages.items[chosen], scores[chosen])
        best = np.sort(rough[rough > -np.inf])[::-1]
        edge = best[min(count, len(best)) - 1] if len(best) else np.inf
        self.settle(np.flatnonzero(chosen & (scores >= edge - SCREEN)).tolist())

    def settle(self, rows: Sequence[int]) -> None:
        """Round the cosines of some passages correctly."""
        if self._semantic is None:
            return
        vectors, query, cosines, _ = self._semantic
        open_rows = np.array([row for row in rows if not self._decided[row]], np.int64)
        cosines[open_rows] = vectors.decided(open_rows, query)
        self._decided[open_rows] = True


class Reference:
    """Answers questions over one generation as one caller may read it."""

    def __init__(
        self, passages: Passages, bm25: Bm25, vectors: Vectors, sample: Float32, window: int
    ) -> None:
        """Take the columns and what scores them.

        Args:
            passages: every passage of the generation.
            bm25: scores by words.
            vectors: scores by meaning.
            sample: the reference sample, float32 of shape (m, dimension).
            window: the rank window, in items.
        """
        self.passages, self.window = passages, window
        self._bm25, self._vectors, self._sample = bm25, vectors, sample

    def score(self, text: str, encoded: Float32 | None, counted: Mask) -> Scored:
        """Score every passage on both sides.

        Args:
            text: the query.
            encoded: its vector, or None when no mode needs one.
            counted: what the caller may read, bool of shape (n,).
        """
        lexical = self._bm25.score(text, counted)
        if encoded is None:
            return Scored(self.passages, counted, lexical, None)
        cosines = self._vectors.products(encoded[np.newaxis])[0]
        floor = mean_cosine(self._sample, encoded)
        return Scored(self.passages, counted, lexical, (self._vectors, encoded, cosines, floor))

    def answer(self, scored: Scored, question: Question) -> Expected:
        """Rank what was scored.

        Raises:
            InvalidValueError: there is no such mode.
        """
        chosen = narrowed(self.passages, scored.counted, question)
        count = max(self.window, question.limit) + 1
        lexical = semantic = standing = None
        fused: tuple[Fused, ...] = ()
        if question.mode in {"lexical", "hybrid", "rrf"}:
            lexical = scored.lexical_side(chosen)
        if question.mode in {"semantic", "hybrid", "rrf"}:
            semantic = scored.semantic_side(chosen, count)
        match question.mode:
            case "lexical":
                standing = lexical
            case "semantic":
                standing = semantic
            case "hybrid":
                standing = scored.hybrid_ranking(chosen, question.alpha, question.limit + 1)
            case "rrf" if lexical is not None and semantic is not None:
                fused = fuse(self.passages, (lexical, semantic), self.window)
            case _:
                raise InvalidValueError(f"there is no mode {question.mode}")
        return Expected(question, standing, fused, lexical, semantic, self.window, scored)


def narrowed(passages: Passages, counted: Mask, question: Question) -> Mask:
    """Return what of the readable passages a question asks about."""
    if question.base is None:
        return counted
    return counted & passages.readable(frozenset({question.base}))


def fuse(passages: Passages, sides: Sequence[Standing], window: int) -> tuple[Fused, ...]:
    """Fuse rankings by reciprocal rank; ranks are global, from 1, and count items.

    An item is shown by its passage on the side where it ranks better, the first of equal ones.
    """
    scores: dict[int, float] = {}
    shown: dict[int, tuple[int, int]] = {}
    for side in sides:
        for rank, row in enumerate(side.rows[:window].tolist(), start=1):
            item = int(passages.items[row])
            scores[item] = scores.get(item, 0.0) + 1.0 / (RANK_CONSTANT + rank)
            if item not in shown or rank < shown[item][0]:
                shown[item] = (rank, row)
    order = sorted(scores, key=lambda item: (-scores[item], item))
    return tuple(Fused(item, shown[item][1], scores[item]) for item in order)
