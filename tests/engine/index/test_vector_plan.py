"""The planner takes the cheapest way, and changes it only where it should."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.index.vector_plan import choose_way

ROWS = 1_000_000


def test_few_rows_are_copied_and_many_scanned_in_place() -> None:
    shares = [0.0001, 0.001, 0.01, 0.1, 0.5, 1.0]
    ways = [choose_way(ROWS, int(share * ROWS)) for share in shares]
    assert ways == ["gather", "gather", "gather", "scan", "scan", "scan"]


def test_compressed_codes_are_for_many_allowed_rows_and_few_places() -> None:
    assert choose_way(ROWS, ROWS, 2000) == "codes"
    assert choose_way(ROWS, ROWS // 2, 2000) == "codes"
    assert choose_way(ROWS, ROWS // 100, 2000) == "gather"
    assert choose_way(ROWS, ROWS, ROWS) == "scan"
    assert choose_way(5000, 5000, 4000) == "scan"


@given(st.integers(1, 10**7), st.none() | st.integers(1, 10**5))
def test_more_allowed_rows_never_lead_back_to_copying(rows: int, candidates: int | None) -> None:
    counts = sorted({max(rows * step // 40, 1) for step in range(40)})
    ways = [choose_way(rows, count, candidates) for count in counts]
    runs = [way for way, _ in itertools.groupby(ways)]
    assert len(runs) == len(set(runs))
    assert runs == sorted(runs, key=["gather", "scan", "codes"].index)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**5))
def test_codes_are_only_taken_where_they_hold_more_rows_than_are_scored(
    rows: int, allowed: int, candidates: int
) -> None:
    if choose_way(rows, min(allowed, rows), candidates) == "codes":
        assert candidates < min(allowed, rows)
