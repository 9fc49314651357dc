"""The semantic side of a segment, on real FAISS."""

from __future__ import annotations

import math
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.errors import InvalidValueError, SegmentRefusedError
from engine.index.vector import (
    SCAN_AT_MOST,
    VectorHits,
    VectorIndex,
    VectorSettings,
    build_index,
    check_vectors,
    exact_cosines,
)
from tests.engine.index.specimens import unit_rows

Float32 = NDArray[np.float32]
EXACT = VectorSettings(search="exact")
GRAPH = VectorSettings(search="approximate", neighbours=16, ef_construction=80)


def as_unit_rows(rows: NDArray[np.float64]) -> Float32:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def open_index(vectors: Float32, options: VectorSettings) -> VectorIndex:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "faiss.index"
        return VectorIndex.open(path, vectors, build_index(path, vectors, options), options)


def best(vectors: Float32, query: Float32, depth: int, allowed: NDArray[np.bool_]) -> list[int]:
    """Rank allowed rows by brute force: (-cosine, ordinal)."""
    scores = exact_cosines(vectors, query).tolist()
    rows = np.flatnonzero(allowed).tolist()
    return sorted(rows, key=lambda row: (-scores[row], row))[:depth]


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Float32, Float32, NDArray[np.bool_]]:
    """Rows with many equal and nearly equal ones, a query, and a mask of any selectivity."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, kinds = draw(st.integers(1, 300)), draw(st.integers(1, 40))
    dimension = draw(st.sampled_from([2, 8, 33]))
    centres = unit_rows(kinds, dimension, int(rng.integers(2**31)))
    noise = draw(st.sampled_from([0.0, 1e-7, 1e-4])) * rng.normal(size=(count, dimension))
    rows = as_unit_rows(centres[rng.integers(kinds, size=count)] + noise)
    query = rows[0] if draw(st.booleans()) else unit_rows(1, dimension, int(rng.integers(2**31)))[0]
    allowed = rng.random(count) < draw(st.sampled_from([0.02, 0.5, 1.0]))
    return rows, query, allowed


@settings(max_examples=80, deadline=None)
@given(scenes(), st.integers(1, 60))
def test_an_exact_search_is_brute_force_and_its_frontier_a_proof(
    scene: tuple[Float32, Float32, NDArray[np.bool_]], depth: int
) -> None:
    rows, query, allowed = scene
    hits = open_index(rows, EXACT).search(query, depth, allowed)
    expected = best(rows, query, depth, allowed)
    assert hits.ordinals.tolist() == expected
    assert hits.scores.tolist() == exact_cosines(rows[expected], query).tolist()
    left_out = sorted(set(np.flatnonzero(allowed).tolist()) - set(expected))
    scores = exact_cosines(rows[left_out], query)
    assert hits.certified
    assert all(score <= hits.frontier for score in scores.tolist())
    assert left_out or hits.frontier == -math.inf


@settings(max_examples=50, deadline=None)
@given(scenes(), st.integers(1, 400))
def test_neither_mode_returns_fewer_than_there_are(
    scene: tuple[Float32, Float32, NDArray[np.bool_]], depth: int
) -> None:
    rows, query, allowed = scene
    for options in (EXACT, GRAPH):
        index = open_index(rows, options)
        for mask in (allowed, None):
            hits = index.search(query, depth, mask)
            possible = len(rows) if mask is None else int(np.count_nonzero(mask))
            assert len(set(hits.ordinals.tolist())) == min(depth, possible)
            assert mask is None or mask[hits.ordinals].all()
            order = list(zip((-hits.scores).tolist(), hits.ordinals.tolist(), strict=True))
            assert order == sorted(order)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.sampled_from([1, 7, 128, 384, 1000]))
def test_a_cosine_depends_on_its_row_alone(seed: int, count: int, dimension: int) -> None:
    rows, query = unit_rows(count, dimension, seed), unit_rows(1, dimension, seed + 1)[0]
    whole = exact_cosines(rows, query).tolist()
    assert [float(exact_cosines(row[None, :], query)[0]) for row in rows] == whole
    assert exact_cosines(np.asfortranarray(rows), query).tolist() == whole
    assert exact_cosines(np.repeat(rows, 2, axis=0)[::2], query).tolist() == whole
    order = np.random.default_rng(seed).permutation(count)
    assert exact_cosines(rows[order], query).tolist() == np.array(whole)[order].tolist()
    padded = np.zeros(count * dimension + 1, np.float32)[1:].reshape(count, dimension)
    padded[:] = rows
    assert exact_cosines(padded, query).tolist() == whole


@pytest.fixture(scope="module")
def crowd() -> Float32:
    """Return more clustered rows than are scanned exactly under a filter."""
    rng = np.random.default_rng(5)
    count = SCAN_AT_MOST + 2000
    noise = 0.15 * rng.normal(size=(count, 24))
    return as_unit_rows(unit_rows(60, 24)[rng.integers(60, size=count)] + noise)


@pytest.fixture(scope="module")
def graph(crowd: Float32) -> VectorIndex:
    return open_index(crowd, GRAPH)


def test_a_graph_finds_nearly_all_and_claims_no_proof(crowd: Float32, graph: VectorIndex) -> None:
    assert not graph.exact
    everything = np.ones(len(crowd), np.bool_)
    found = 0
    for query in crowd[:20]:
        hits = graph.search(query, 10)
        assert not hits.certified
        assert hits.scores.tolist() == exact_cosines(crowd[hits.ordinals], query).tolist()
        found += len(set(hits.ordinals.tolist()) & set(best(crowd, query, 10, everything)))
    assert found >= 0.9 * 200


def test_a_graph_under_a_wide_filter_is_approximate_and_full(
    crowd: Float32, graph: VectorIndex
) -> None:
    allowed = np.arange(len(crowd)) % 8 != 0
    hits = graph.search(crowd[1], 50, allowed)
    assert np.count_nonzero(allowed) > SCAN_AT_MOST
    assert not hits.certified
    assert len(hits.ordinals) == 50
    assert allowed[hits.ordinals].all()


def test_a_graph_under_a_selective_filter_is_exact(crowd: Float32, graph: VectorIndex) -> None:
    allowed = np.arange(len(crowd)) % 1000 == 3
    hits = graph.search(crowd[0], 10, allowed)
    assert hits.certified
    assert hits.ordinals.tolist() == best(crowd, crowd[0], 10, allowed)


def test_a_graph_can_be_asked_to_prove_its_answer(crowd: Float32, graph: VectorIndex) -> None:
    hits = graph.search(crowd[0], 30, exact=True)
    assert hits.certified
    assert hits.ordinals.tolist() == best(crowd, crowd[0], 30, np.ones(len(crowd), np.bool_))


def test_a_graph_that_returned_everything_says_so() -> None:
    rows = unit_rows(60, 8)
    index = open_index(rows, GRAPH)
    for depth in (60, 61, 500):
        hits = index.search(rows[0], depth)
        assert hits.ordinals.tolist() == best(rows, rows[0], depth, np.ones(60, np.bool_))
        assert (hits.frontier, hits.certified) == (-math.inf, True)


@pytest.mark.parametrize("options", [EXACT, GRAPH])
def test_the_same_vectors_give_the_same_file(tmp_path: Path, options: VectorSettings) -> None:
    rows = unit_rows(2000, 16)
    first, second = tmp_path / "first", tmp_path / "second"
    assert build_index(first, rows, options) == build_index(second, rows, options)
    assert first.read_bytes() == second.read_bytes()


def test_searches_of_many_threads_agree(crowd: Float32, graph: VectorIndex) -> None:
    alone = [graph.search(query, 20) for query in crowd[:12]]
    together: dict[int, VectorHits] = {}

    def work(place: int) -> None:
        together[place] = graph.search(crowd[place], 20)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(
        together[place].ordinals.tolist() == hits.ordinals.tolist()
        for place, hits in enumerate(alone)
    )


@pytest.mark.parametrize(
    ("search", "count", "approximate"),
    [
        ("auto", 10, False),
        ("auto", 11, True),
        ("exact", 11, False),
        ("approximate", 1, True),
    ],
)
def test_the_settings_choose_the_index(search: str, count: int, approximate: bool) -> None:
    options = VectorSettings(search=search, exact_limit=10)  # type: ignore[arg-type]  # parametrized
    assert options.approximate(count) == approximate


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, 2.0])
def test_a_row_that_is_not_a_finite_unit_vector_is_refused(bad: float) -> None:
    rows = unit_rows(5, 4)
    rows[3] *= bad
    with pytest.raises(InvalidValueError, match="vector 3"):
        check_vectors(rows, 4)


def test_vectors_of_another_dimension_or_dtype_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="expected float32"):
        check_vectors(unit_rows(5, 4), 5)
    with pytest.raises(InvalidValueError, match="expected float32"):
        check_vectors(unit_rows(5, 4).astype(np.float64), 4)


def test_a_query_that_is_not_a_finite_unit_vector_is_refused() -> None:
    index = open_index(unit_rows(5, 4), EXACT)
    for query in (np.zeros(4, np.float32), np.full(4, np.nan, np.float32)):
        with pytest.raises(InvalidValueError):
            index.search(query, 1)


def test_wrong_depths_and_masks_are_refused() -> None:
    index = open_index(unit_rows(5, 4), EXACT)
    with pytest.raises(ValueError, match="depth"):
        index.search(unit_rows(1, 4)[0], 0)
    with pytest.raises(ValueError, match="shape"):
        index.search(unit_rows(1, 4)[0], 1, np.ones(4, np.bool_))


def test_nothing_allowed_is_an_empty_certified_answer() -> None:
    hits = open_index(unit_rows(5, 4), EXACT).search(unit_rows(1, 4)[0], 3, np.zeros(5, np.bool_))
    assert (len(hits.ordinals), hits.frontier, hits.certified) == (0, -math.inf, True)


def test_an_index_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faiss.index"
    rows = unit_rows(5, 4)
    error = build_index(path, rows, EXACT)
    with pytest.raises(SegmentRefusedError, match="5 vectors"):
        VectorIndex.open(path, rows[:4], error)


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faiss.index"
    path.write_bytes(b"not an index")
    with pytest.raises(SegmentRefusedError, match="FAISS cannot read"):
        VectorIndex.open(path, unit_rows(5, 4), 0.0)
