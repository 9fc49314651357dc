"""What the benchmark of rounds says about rankings."""

from __future__ import annotations

from benchmarks.rounds import effort_of
from engine.search.ranking import Effort, Ranking


def test_rounds_are_counted_and_the_share_that_needed_one_is_told() -> None:
    efforts = [Effort(rounds, 100 * rounds, 10 * rounds) for rounds in (1, 1, 1, 2, 5)]
    told = effort_of([Ranking((), effort=effort) for effort in efforts])
    assert told["queries"] == len(efforts)
    assert told["rounds"] == {"1": 3, "2": 1, "5": 1}
    assert told["rounds_mean"] == (1 + 1 + 1 + 2 + 5) / len(efforts)
    assert told["first_round_enough"] == 3 / len(efforts)
    assert told["candidates_median"] == 100
    assert told["refined_most"] == 50


def test_what_is_not_certified_is_not_counted_as_certified() -> None:
    assert effort_of([Ranking(()), Ranking((), certified=False)])["certified"] == 1
