"""What the benchmark of refusals says about times."""

from __future__ import annotations

import pytest

from benchmarks.indistinguishable import READS, SEARCHES, area, describe, farthest


def test_the_area_tells_how_often_one_is_slower() -> None:
    assert area([2.0, 3.0], [0.0, 1.0]) == 1.0
    assert area([0.0, 1.0], [2.0, 3.0]) == 0.0
    assert area([1.0, 1.0], [1.0, 1.0]) == 0.5
    assert area([0.0, 3.0], [1.0, 2.0]) == 0.5


def test_a_case_is_compared_with_what_is_missing_in_the_same_form() -> None:
    took = {
        "missing": [1.0, 1.0],
        "missing, pinned": [5.0, 5.0],
        "foreign": [9.0, 9.0],
        "foreign, pinned": [5.0, 5.0],
    }
    told = describe(took)
    assert (told["foreign"]["area"], told["foreign, pinned"]["area"]) == (1.0, 0.5)
    assert farthest({"reads": told | {"foreign": {"area": 0.52}}}) == pytest.approx(0.02)


@pytest.mark.parametrize("cases", [READS, SEARCHES])
def test_every_form_has_something_missing_to_compare_with(cases: dict[str, object]) -> None:
    describe({name: [1.0, 2.0] for name in cases})
