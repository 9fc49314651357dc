"""Whether a served answer is the one the contract asks for, place by place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jobs.ranking.corpus import Float64
from jobs.ranking.reference import RANK_CONSTANT, Expected, Fused
from jobs.ranking.standing import TOLERANCE, Standing

AGREE, ROUNDING, DISAGREE = "agree", "within_rounding", "disagree"


@dataclass(frozen=True, slots=True)
class ServedResult:
    """One result as the product served it. A side that the mode does not use is None."""

    base: str
    item: str
    revision: str
    excerpt: str
    excerpt_offset: int
    score: float
    lexical: float | None
    semantic: float | None
    lexical_rank: int | None
    semantic_rank: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where an answer differs.

    Attributes:
        rank: from 1.
        reason: what differs there, in words.
        served, expected: item id and score on either side; None where there is no result.
    """

    rank: int
    reason: str
    served: tuple[str, float] | None
    expected: tuple[str, float] | None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""

        def side(found: tuple[str, float] | None) -> dict[str, Any] | None:
            return None if found is None else {"item": found[0], "score": found[1]}

        return {
            "rank": self.rank,
            "reason": self.reason,
            "served": side(self.served),
            "reference": side(self.expected),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a comparison came to.

    Attributes:
        kind: `AGREE`; `ROUNDING`: the same but for what rounding decides; or `DISAGREE`.
        largest: the largest difference of a score, a BM25 or a cosine that was compared.
        difference: the first one, when `kind` is `DISAGREE`.
    """

    kind: str
    largest: float
    difference: Difference | None = None


class Differs(Exception):  # noqa: N818 - it ends a comparison, and no caller sees it
    """The answer differs at the place that is looked at."""


@dataclass(slots=True)
class _Comparison:
    """One comparison under way.

    Attributes:
        expected: what should be there.
        step: what scores may have been rounded up by, 0 or the last shown digit.
        rounded: whether something was found that only rounding can have decided.
        largest: the largest difference of two scores so far.
        seen: the items so far.
    """

    expected: Expected
    step: float
    rounded: bool = False
    largest: float = 0.0
    seen: set[int] = field(default_factory=set)

    def place(self, at: int, result: ServedResult) -> None:
        """Compare one result with what should be at its place.

        Raises:
            Differs: with what differs, in words.
        """
        passages = self.expected.scored.passages
        item = passages.item_code(result.item)
        if item is None:
            raise Differs("the item is not in the generation")
        if item in self.seen:
            raise Differs("the item is there twice")
        self.seen.add(item)
        standing = self.expected.standing
        if standing is None:
            score, scale = self._fused(at, result), 1.0
        else:
            score, scale = self._standing(standing, at, item), standing.tolerance / TOLERANCE
        self._ranks(item, result)
        self._score("score", result.score, score, scale)
        self._passage(item, result)

    # --------------------------------------------------------------------------- the order

    def _standing(self, standing: Standing, at: int, item: int) -> float:
        place = standing.place(item)
        if place is None:
            raise Differs("the item does not match, or must not be seen")
        first, last = standing.reach(at)
        if not first <= place <= last:
            raise Differs("another item belongs here")
        self.rounded |= place != at
        return float(standing.scores[place])

    def _fused(self, at: int, result: ServedResult) -> float:
        """Return the score that the served ranks make; they are compared on their own."""
        expected = self.expected.fused[at]
        passages = self.expected.scored.passages
        if passages.item_ids[expected.item] != result.item:
            code = passages.item_code(result.item)
            if not any(self._undecided(item) for item in (expected.item, code)):
                raise Differs("another item belongs here")
            self.rounded = True
        ranks = (result.lexical_rank, result.semantic_rank)
        return sum((1.0 / (RANK_CONSTANT + rank) for rank in ranks if rank is not None), 0.0)

    def _undecided(self, item: int | None) -> bool:
        """Say whether rounding could give an item another rank on a side."""
        for side in (self.expected.lexical, self.expected.semantic):
            place = None if side is None or item is None else side.place(item)
            if side is not None and place is not None and side.reach(place) != (place, place):
                return True
        return False

    def _ranks(self, item: int, result: ServedResult) -> None:
        expected = self.expected
        self._rank("lexical_rank", expected.lexical, item, result.lexical_rank)
        self._rank("semantic_rank", expected.semantic, item, result.semantic_rank)

    def _rank(self, name: str, side: Standing | None, item: int, served: int | None) -> None:
        place = None if side is None else side.place(item)
        window = self.expected.window
        true = None if place is None or place >= window else place + 1
        if served == true:
            return
        if side is not None and place is not None:
            first, last = side.reach(place)
            possible = range(first + 1, min(last + 1, window) + 1)
            if served in possible or (served is None and last >= window):
                self.rounded = True
                return
        raise Differs(f"{name} is {shown(served)}, not {shown(true)}")

    # -------------------------------------------------------------------------- the passage

    def _passage(self, item: int, result: ServedResult) -> None:
        """Compare what is shown of an item, and both raw scores of that passage."""
        scored = self.expected.scored
        passages = scored.passages
        row, scores, side = self._chosen(item, result)
        at, end = result.excerpt_offset, result.excerpt_offset + len(result.excerpt)
        if not (passages.starts[row] <= at and end <= passages.ends[row]):
            row = self._other(item, row, scores, (at, end), side)
        start = int(passages.starts[row])
        if passages.text(row)[at - start : end - start] != result.excerpt:
            raise Differs("the excerpt is not a slice of the passage")
        if passages.revisions[passages.entries[row]] != result.revision:
            raise Differs("another revision is live")
        if passages.base_ids[passages.bases[row]] != result.base:
            raise Differs("the item belongs to another base")
        mode = self.expected.question.mode
        lexical = None if mode == "semantic" else float(scored.bm25.scores[row])
        semantic = None if mode == "lexical" else float(scored.cosines[row])
        self._score("lexical", result.lexical, lexical, float(scored.bm25.uppers[row]))
        self._score("semantic", result.semantic, semantic, 1.0)

    def _chosen(self, item: int, result: ServedResult) -> tuple[int, Float64, Standing]:
        """Return the passage that should be shown, the scores that choose it, and the ranking."""
        expected, scored = self.expected, self.expected.scored
        side, scores = expected.standing, scored.bm25.scores
        if expected.question.mode == "semantic":
            scores = scored.cosines
        elif expected.question.mode == "hybrid":
            scores = scored.hybrid(expected.question.alpha)
        elif side is None:
            by_words = _rank_or_last(result.lexical_rank) <= _rank_or_last(result.semantic_rank)
            side = expected.lexical if by_words else expected.semantic
            scores = scores if by_words else scored.cosines
        place = None if side is None else side.place(item)
        if side is None or place is None:
            raise Differs("the item is not on the side where it is said to rank better")
        return int(side.rows[place]), scores, side

    def _other(
        self, item: int, best: int, scores: Float64, span: tuple[int, int], side: Standing
    ) -> int:
        """Return the passage that is shown instead of the best, if only rounding chose it."""
        passages = self.expected.scored.passages
        inside = passages.live & (passages.items == item)
        inside &= (passages.starts <= span[0]) & (span[1] <= passages.ends)
        rows = [int(row) for row in np.flatnonzero(inside)]
        equal = [row for row in rows if scores[best] - scores[row] <= side.tolerance]
        if not equal or side.ingredients(equal[0]) == side.ingredients(best):
            raise Differs("the item is shown by another passage")
        self.rounded = True
        return equal[0]

    # --------------------------------------------------------------------------- the scores

    def _score(self, name: str, served: float | None, true: float | None, scale: float) -> None:
        if served is not None and true is not None:
            self.largest = max(self.largest, abs(served - true))
        if not close(served, true, scale, self.step):
            raise Differs(f"{name} is {shown(served)}, not {shown(true)}")


def _rank_or_last(rank: int | None) -> float:
    return math.inf if rank is None else rank


def close(served: float | None, true: float | None, scale: float, step: float) -> bool:
    """Say whether a served number is the true one, but for rounding; None is only None.

    Args:
        served: what was answered.
        true: what the reference says.
        scale: the largest score that could be.
        step: what `served` was rounded up by at most.
    """
    if served is None or true is None:
        return served is true
    tolerance = TOLERANCE * max(1.0, scale)
    return -tolerance <= served - true <= step + tolerance


def shown(value: float | None) -> str:
    """Return a number for a report."""
    return "null" if value is None else repr(value)


def compare(expected: Expected, served: Sequence[ServedResult], step: float = 0.0) -> Verdict:
    """Compare an answer with what the contract says.

    Args:
        expected: the reference.
        served: the product's results, best first.
        step: what scores were rounded up by at most: 0 when they are not rounded.
    """
    comparison = _Comparison(expected, step)
    for at in range(max(len(served), len(expected))):
        try:
            if at >= len(served):
                raise Differs("a result is missing")
            if at >= len(expected):
                raise Differs("there is a result too many")
            comparison.place(at, served[at])
        except Differs as differs:
            here = served[at] if at < len(served) else None
            difference = Difference(
                at + 1,
                str(differs),
                None if here is None else (here.item, here.score),
                _expected_at(expected, at),
            )
            return Verdict(DISAGREE, comparison.largest, difference)
    return Verdict(ROUNDING if comparison.rounded else AGREE, comparison.largest)


def _expected_at(expected: Expected, at: int) -> tuple[str, float] | None:
    if at >= len(expected):
        return None
    passages = expected.scored.passages
    if expected.standing is not None:
        row = int(expected.standing.rows[at])
        return passages.item_ids[passages.items[row]], float(expected.standing.scores[at])
    fused: Fused = expected.fused[at]
    return passages.item_ids[fused.item], fused.score
