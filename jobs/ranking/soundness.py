"""What even an uncertified answer must be: incomplete it may be, untrue it may not.

An approximate vector search may overlook items. Everything that it does answer is checked here:
that the item may be read, revision, base and excerpt, both raw scores, the fused score, the order,
and the number of results. A rank on the semantic side may only be better than the true one, since
what was overlooked no longer stands before it. The lexical side is exact: an item whose words alone
put it before the last result cannot be overlooked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.ranking.comparison import Difference, Differs, ServedResult, close, shown
from jobs.ranking.reference import RANK_CONSTANT, Expected
from jobs.ranking.standing import TOLERANCE, Standing


@dataclass(slots=True)
class _Check:
    """One check under way: what is expected, the step of rounded scores, and the items so far."""

    expected: Expected
    step: float
    seen: set[int] = field(default_factory=set)

    def result(self, result: ServedResult) -> None:
        """Check one result on its own.

        Raises:
            Differs: with what is untrue, in words.
        """
        passages = self.expected.scored.passages
        item = passages.item_code(result.item)
        if item is None:
            raise Differs("the item is not in the generation")
        if item in self.seen:
            raise Differs("the item is there twice")
        self.seen.add(item)
        mine = passages.items == item
        rows = np.flatnonzero(self.expected.chosen() & mine)
        if not len(rows):
            raise Differs("the item does not match, or must not be seen")
        self._passage([int(row) for row in rows], result)
        self._ranks(item, result)

    def _passage(self, rows: list[int], result: ServedResult) -> None:
        """Find the passage that is shown: one that has the excerpt and the scores."""
        passages = self.expected.scored.passages
        at, end = result.excerpt_offset, result.excerpt_offset + len(result.excerpt)
        inside = [
            row
            for row in rows
            if passages.starts[row] <= at
            and end <= passages.ends[row]
            and passages.text(row)[at - passages.starts[row] : end - passages.starts[row]]
            == result.excerpt
        ]
        if not inside:
            raise Differs("the excerpt is not a slice of a passage of the item")
        inside = self._best_by_words(inside, rows, result)
        if not inside:
            raise Differs("the item is shown by another passage")
        row = inside[0]
        if passages.revisions[passages.entries[row]] != result.revision:
            raise Differs("another revision is live")
        if passages.base_ids[passages.bases[row]] != result.base:
            raise Differs("the item belongs to another base")
        reasons = [self._scores(row, result) for row in inside]
        if all(reasons):
            raise Differs(str(reasons[0]))

    def _best_by_words(self, shown: list[int], rows: list[int], result: ServedResult) -> list[int]:
        """Leave of the rows that could be shown what rank fusion lets be shown.

        An item that ranks better or as well by words is shown by its best passage by words.
        """
        lexical, semantic = result.lexical_rank, result.semantic_rank
        by_words = lexical is not None and (semantic is None or lexical <= semantic)
        if self.expected.question.mode != "rrf" or not by_words:
            return shown
        bm25 = self.expected.scored.bm25
        least = float(bm25.scores[rows].max()) * (1.0 - TOLERANCE)
        return [row for row in shown if bm25.scores[row] >= least]

    def overlooked(self, last: float) -> str:
        """Return the item that its words alone put before the last result, if one is missing."""
        expected = self.expected
        items = expected.scored.passages.items
        best = np.zeros(len(expected.scored.passages.item_ids))
        match expected.question.mode:
            case "hybrid":
                rows = np.flatnonzero(expected.chosen())
                scores = expected.question.alpha * expected.scored.lexical_parts()[rows]
                np.maximum.at(best, items[rows], scores)
            case "rrf" if expected.lexical is not None:
                for place, row in enumerate(expected.lexical.rows[: expected.window].tolist()):
                    _, worst = expected.lexical.reach(place)
                    if worst < expected.window:
                        best[items[row]] = 1.0 / (RANK_CONSTANT + worst + 1)
        best[sorted(self.seen)] = 0.0
        first = int(best.argmax()) if len(best) else 0
        missing = bool(len(best)) and best[first] > last + TOLERANCE
        return expected.scored.passages.item_ids[first] if missing else ""

    def _scores(self, row: int, result: ServedResult) -> str:
        """Return what is wrong with the scores if this row is shown, or nothing."""
        expected = self.expected
        mode, scored = expected.question.mode, expected.scored
        scored.settle([row])
        true: dict[str, tuple[float | None, float]] = {
            "lexical": (None, 1.0) if mode == "semantic" else scored.lexical_at(row),
            "semantic": (None, 1.0) if mode == "lexical" else (float(scored.cosines[row]), 1.0),
        }
        match mode:
            case "hybrid":
                true["score"] = (float(scored.hybrid(expected.question.alpha)[row]), 1.0)
            case "rrf":
                ranks = (result.lexical_rank, result.semantic_rank)
                true["score"] = (
                    sum((1.0 / (RANK_CONSTANT + rank) for rank in ranks if rank is not None), 0.0),
                    1.0,
                )
            case _:
                true["score"] = true[mode]
        for name, (value, scale) in true.items():
            served = getattr(result, name)
            if not close(served, value, scale, self.step):
                return f"{name} is {shown(served)}, not {shown(value)}"
        return ""

    def _ranks(self, item: int, result: ServedResult) -> None:
        lexical, semantic = self.expected.lexical, self.expected.semantic
        window = self.expected.window
        first, last = _reach(lexical, item)
        rank = result.lexical_rank
        possible = rank is None if first is None or first > window else rank is not None
        if first is not None and last > window >= first:
            possible = True  # rounding decides whether it is ranked
        if not possible or (rank is not None and first is not None and not first <= rank <= last):
            raise Differs(f"lexical_rank is {shown(rank)}, not {shown(first)}")
        first, last = _reach(semantic, item)
        rank = result.semantic_rank
        if rank is not None and (first is None or not 1 <= rank <= min(last, window)):
            raise Differs(f"semantic_rank is {shown(rank)}, but the item's is {shown(first)}")


def _reach(side: Standing | None, item: int) -> tuple[int | None, int]:
    """Return the best and the worst rank that rounding could give to an item, from 1."""
    place = None if side is None else side.place(item)
    if side is None or place is None:
        return None, 0
    first, last = side.reach(place)
    return first + 1, last + 1


def untrue(
    expected: Expected, served: Sequence[ServedResult], step: float = 0.0
) -> Difference | None:
    """Return the first thing in an uncertified answer that no approximation explains, if any.

    Args:
        expected: the reference.
        served: the product's results, best first.
        step: what scores were rounded up by at most: 0 when they are not rounded.
    """
    check = _Check(expected, step)
    for at, result in enumerate(served):
        try:
            check.result(result)
            if at and not _in_order(served[at - 1], result, step):
                raise Differs("it does not come before the next by score and id")
        except Differs as differs:
            return Difference(at + 1, str(differs), (result.item, result.score), None)
    missing = check.overlooked(served[-1].score) if served else ""
    if missing:
        reason = f"the words of {missing} alone put it before the last result"
        return Difference(len(served) + 1, reason, None, None)
    wanted = len(expected)
    if len(served) != wanted and expected.question.limit <= expected.window:
        reason = f"{len(served)} results where {wanted} are eligible"
        return Difference(min(len(served), wanted) + 1, reason, None, None)
    return None


def _in_order(one: ServedResult, other: ServedResult, step: float) -> bool:
    if step > 0.0 and one.score == other.score:
        return True  # rounding may hide which is better
    return (-one.score, one.item) < (-other.score, other.item)
