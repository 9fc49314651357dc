"""The fixed functions of hybrid and rrf: formulas, orders, degenerate cases."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.search.fusion import (
    best_rows,
    hybrid_scores,
    item_scores,
    lexical_parts,
    reciprocal_rank_fusion,
    semantic_parts,
)

scores = st.integers(-3, 3).map(float)
rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), scores), max_size=30)


def test_hybrid_is_the_weighted_sum_of_the_two_parts() -> None:
    lexical = lexical_parts(np.array([2.0, 0.0, 4.0]), np.array([8.0, 8.0, 0.0]))
    semantic = semantic_parts(np.array([0.9, 0.5, 0.8]), 0.6)
    assert lexical.tolist() == [2.0 / 8.0, 0.0, 0.0]
    assert semantic.tolist() == [(0.9 - 0.6) / (1.0 - 0.6), 0.0, (0.8 - 0.6) / (1.0 - 0.6)]
    fused = hybrid_scores(lexical, semantic, 0.25)
    assert fused[0] == 0.25 * (2.0 / 8.0) + 0.75 * ((0.9 - 0.6) / (1.0 - 0.6))


def test_a_floor_without_room_above_it_gives_no_semantic_part() -> None:
    assert semantic_parts(np.array([1.0, 0.5]), 1.0).tolist() == [0.0, 0.0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-1, 1)), min_size=1, max_size=20))
def test_hybrid_scores_are_monotone_on_both_sides(pairs: list[tuple[float, float]]) -> None:
    lexical = np.sort([lexical for lexical, _ in pairs])
    semantic = np.sort([semantic for _, semantic in pairs])
    fused = hybrid_scores(
        lexical_parts(lexical, np.ones(len(pairs))), semantic_parts(semantic, 0.3), 0.5
    )
    assert (np.diff(fused) >= 0).all()


@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_never_changes_the_ranking(
    table: list[tuple[int, int, float]], rng: random.Random
) -> None:
    def ranked(given_rows: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
        items = np.array([item for item, _, _ in given_rows], np.int32)
        starts = np.array([start for _, start, _ in given_rows], np.int32)
        values = np.array([score for _, _, score in given_rows], np.float64)
        return [given_rows[row] for row in best_rows(values, items, starts)]

    expected = ranked(table)
    assert ranked(rng.sample(table, len(table))) == expected
    assert expected == sorted(expected, key=lambda row: (-row[2], row[0]))
    best = {item: (-score, start) for item, start, score in expected}
    for item, start, score in table:
        assert best[item] <= (-score, start)


def test_an_item_without_a_row_has_no_score() -> None:
    found = item_scores(np.array([1.0, 3.0]), np.array([1, 1], np.int32), 3)
    assert found.tolist() == [-np.inf, 3.0, -np.inf]


sides = st.lists(
    st.permutations(range(8)).flatmap(
        lambda order: st.integers(0, 8).map(
            lambda count: {item: rank for rank, item in enumerate(order[:count], start=1)}
        )
    ),
    min_size=2,
    max_size=2,
)


@given(sides, st.randoms(use_true_random=False))
def test_arrival_order_never_changes_reciprocal_rank_fusion(
    both: list[dict[int, int]], rng: random.Random
) -> None:
    fused = reciprocal_rank_fusion(both)
    shuffled = [dict(rng.sample(list(side.items()), len(side))) for side in both]
    assert list(reciprocal_rank_fusion(shuffled).items()) == list(fused.items())
    for item, score in fused.items():
        assert score == sum(1 / (60 + side[item]) for side in both if item in side)


@given(sides)
def test_with_rank_n_the_ranks_before_it_are_in(both: list[dict[int, int]]) -> None:
    """Neural-search #1703: of items on one side only, a better rank is never dropped first."""
    fused = list(reciprocal_rank_fusion(both))
    for mine, other in (both, both[::-1]):
        alone = [item for item in fused if item in mine and item not in other]
        assert alone == sorted(alone, key=lambda item: mine[item])


def test_reciprocal_rank_fusion_of_nothing_is_nothing() -> None:
    assert reciprocal_rank_fusion([{}, {}]) == {}
    assert reciprocal_rank_fusion([{7: 1}, {}]) == {7: 1 / 61}


def test_ranks_below_one_and_negative_constants_are_refused() -> None:
    with pytest.raises(ValueError, match="ranks start at 1"):
        reciprocal_rank_fusion([{1: 0}])
    with pytest.raises(ValueError, match="rank_constant"):
        reciprocal_rank_fusion([], rank_constant=-1)
