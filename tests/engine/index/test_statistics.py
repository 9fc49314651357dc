"""BM25 in numbers."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.index.jvm import jnius
from engine.index.statistics import (
    NORM_LENGTHS,
    FieldStatistics,
    bm25_exact,
    decode_norm,
    idf,
    local_similarity,
    merge_statistics,
    term_boost,
    term_weights,
    upper_bound,
)

counts = st.builds(
    lambda holding, others, tokens: (holding + others, holding, tokens),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 10**8),
)


@pytest.mark.jvm
@pytest.mark.usefixtures("jvm")
def test_norm_bytes_decode_as_lucene_decodes_them() -> None:
    small_float = jnius().autoclass("org.apache.lucene.util.SmallFloat")
    signed = [byte if byte < 128 else byte - 256 for byte in range(256)]
    assert [decode_norm(b) for b in range(256)] == [small_float.byte4ToInt(b) for b in signed]
    assert NORM_LENGTHS.tolist() == [decode_norm(byte) for byte in range(256)]


def test_idf_is_lucenes_formula() -> None:
    assert idf(10, 3) == math.log(1 + (10 - 3 + 0.5) / (3 + 0.5))
    assert idf(0, 0) == math.log(2.0)


@given(counts)
def test_idf_is_above_zero_and_falls_with_holding_passages(count: tuple[int, int, int]) -> None:
    passages, holding, _ = count
    assert idf(passages, holding) > 0.0
    assert idf(passages, holding + 1) < idf(passages, holding)


@given(counts, counts, st.floats(0.0, 10.0), st.floats(0.0, 1.0), st.integers(0, 500))
def test_the_local_similarity_normalises_lengths_as_the_whole_does(
    local: tuple[int, int, int], whole: tuple[int, int, int], k1: float, b: float, length: int
) -> None:
    here = FieldStatistics(local[0], local[2])
    there = FieldStatistics(whole[0], whole[2])
    local_k1, local_b = local_similarity(k1, b, here, there)
    assert 0.0 <= local_b <= 1.0
    got = local_k1 * (1.0 - local_b + local_b * length / here.average_length)
    wanted = k1 * (1.0 - b + b * length / there.average_length)
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@given(counts, counts)
def test_a_boost_turns_the_local_idf_into_the_whole_one(
    local: tuple[int, int, int], whole: tuple[int, int, int]
) -> None:
    here = FieldStatistics(local[0], local[2], {"t": local[1]})
    there = FieldStatistics(whole[0], whole[2], {"t": whole[1]})
    assert term_boost(here, there, "t") * idf(*local[:2]) == pytest.approx(idf(*whole[:2]))


@given(st.permutations(range(4)))
def test_statistics_add_up_in_any_order(order: list[int]) -> None:
    parts = [FieldStatistics(i, 10 * i, {"a": i, f"t{i}": 1}) for i in range(4)]
    merged = merge_statistics(parts[i] for i in order)
    assert (merged.passages, merged.tokens, merged.frequencies["a"]) == (6, 60, 6)
    assert all(merged.frequencies[f"t{i}"] == 1 for i in range(4))


def test_the_upper_bound_counts_terms_that_no_passage_holds() -> None:
    statistics = FieldStatistics(9, 90, {"a": 2})
    assert upper_bound({"a": 2, "z": 1}, statistics) == math.fsum([2 * idf(9, 2), idf(9, 0)])


def test_a_score_stays_below_the_upper_bound_and_nears_it() -> None:
    statistics = FieldStatistics(9, 90, {"a": 2, "b": 1})
    asked = {"a": 2, "b": 1}
    weights = term_weights(asked, statistics, ["a", "b"])
    many = np.array([[10**6, 10**6]])
    score = bm25_exact(many, np.array([1], np.uint8), weights, 10.0, (0.9, 0.4))[0]
    bound = upper_bound(asked, statistics)
    assert bound * (1 - 1e-5) < score <= bound


def test_exact_scores_follow_the_formula() -> None:
    frequencies = np.array([[1, 0], [3, 2], [0, 0]])
    norms = np.array([10, 60, 7], np.uint8)
    weights = np.array([1.5, 0.25])
    scores = bm25_exact(frequencies, norms, weights, 12.0, (0.9, 0.4))
    first = 0.9 * (0.6 + 0.4 * decode_norm(10) / 12.0)
    second = 0.9 * (0.6 + 0.4 * decode_norm(60) / 12.0)
    assert scores.tolist() == [
        1.5 * (1 / (1 + first)),
        1.5 * (3 / (3 + second)) + 0.25 * (2 / (2 + second)),
        0.0,
    ]


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 10.0), st.floats(0.0, 1.0))
def test_a_passages_exact_score_does_not_depend_on_its_neighbours(
    seed: int, k1: float, b: float
) -> None:
    rng = np.random.default_rng(seed)
    frequencies = rng.integers(0, 4, size=(50, 3)).astype(np.int32)
    norms = rng.integers(0, 256, size=50).astype(np.uint8)
    weights = rng.random(3)
    whole = bm25_exact(frequencies, norms, weights, 20.0, (k1, b))
    rows = random.Random(seed).sample(range(50), 7)
    part = bm25_exact(frequencies[rows], norms[rows], weights, 20.0, (k1, b))
    assert part.tolist() == whole[rows].tolist()
