"""What a run is worth: means over every query, and comparisons of two modes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.beir import Collection, Scored
from benchmarks.measures import Outcome, by_query, gain, latency, means

COLLECTION = Collection(
    name="tiny",
    corpus=Path("corpus.jsonl"),
    queries={"q1": "a", "q2": "b", "q3": "c"},
    qrels={"q1": {"d1": 1}, "q2": {"d1": 2, "d2": 1}, "q3": {"d3": 1}},
    left_out=0,
)
RUNS: dict[str, Scored] = {
    "q1": [("d2", 0.5), ("d1", 0.5)],  # equal scores: the order given counts
    "q2": [("d1", 3.0), ("d9", 2.0), ("d2", 1.0)],
    "q8": [("d1", 1.0)],  # a query of no interest
}


def test_every_query_counts_also_one_without_an_answer() -> None:
    values = by_query(COLLECTION, RUNS)
    ideal = 2 + 1 / math.log2(3)
    assert values["nDCG@10"] == {
        "q1": pytest.approx(1 / math.log2(3)),
        "q2": pytest.approx((2 + 1 / math.log2(4)) / ideal),
        "q3": 0.0,
    }
    assert values["RR@10"] == {"q1": 0.5, "q2": 1.0, "q3": 0.0}
    assert values["R@100"] == {"q1": 1.0, "q2": 1.0, "q3": 0.0}
    assert values["AP"] == {"q1": 0.5, "q2": pytest.approx((1 + 2 / 3) / 2), "q3": 0.0}
    assert means(values)["RR@10"] == 0.5
    assert means(values)["AP"] == round((0.5 + 5 / 6) / 3, 4)


def test_a_gain_is_the_mean_difference_with_an_interval_that_holds_it() -> None:
    than = {f"q{number}": number % 3 / 4 for number in range(60)}
    better = {name: value + (0.25 if name > "q3" else 0.0) for name, value in than.items()}
    told = gain(better, than)
    shifted = sum(name > "q3" for name in than)
    assert told["mean"] == round(0.25 * shifted / 60, 4)
    low, high = told["interval_95"]
    assert 0 < low < told["mean"] < high < 0.25
    assert gain(dict(reversed(better.items())), than) == told


def test_no_difference_has_no_width() -> None:
    values = {"q1": 0.3, "q2": 0.9}
    assert gain(values, values) == {"mean": 0.0, "interval_95": [0.0, 0.0]}


def test_latency_is_told_by_quantiles() -> None:
    outcome = Outcome("lexical", {}, {f"q{number}": float(number) for number in range(100, 0, -1)})
    assert latency(outcome) == {"p50_ms": 50.5, "p95_ms": 96.0}
