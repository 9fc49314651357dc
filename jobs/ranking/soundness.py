"""What even an uncertified answer must be: incomplete it may be, untrue it may not.

An approximate vector search may overlook items. Everything that it does answer is checked here:
that the item may be read, revision, base and excerpt, both raw scores, the fused score, the order,
and the number of results. A rank on the semantic side may only be better than the true one, since
what was overlooked no longer stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.ranking.comparison import Difference, Differs, ServedResult, close, shown
from jobs.ranking.reference import RANK_CONSTANT, Expected
from jobs.ranking.standing import Standing


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
        row = inside[0]
        if passages.revisions[passages.entries[row]] != result.revision:
            raise Differs("another revision is live")
        if passages.base_ids[passages.bases[row]] != result.base:
            raise Differs("the item belongs to another base")
        reasons = [self._scores(row, result) for row in inside]
        if all(reasons):
            raise Differs(str(reasons[0]))

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
    wanted = len(expected)
    if len(served) != wanted and expected.question.limit <= expected.window:
        reason = f"{len(served)} results where {wanted} are eligible"
        return Difference(min(len(served), wanted) + 1, reason, None, None)
    return None


def _in_order(one: ServedResult, other: ServedResult, step: float) -> bool:
    if step > 0.0 and one.score == other.score:
        return True  # rounding may hide which is better
    return (-one.score, one.item) < (-other.score, other.item)
