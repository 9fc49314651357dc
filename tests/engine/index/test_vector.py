"""The semantic side of a segment, on real FAISS."""

from __future__ import annotations

import math
import os
import subprocess
import sys
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
    VectorFacts,
    VectorHits,
    VectorIndex,
    VectorSettings,
    build_index,
    check_vectors,
    exact_cosines,
)
from engine.index.vector_builder import RECALL_DEPTHS, RECALL_TARGET, measure_recall
from engine.index.vector_codes import TRAINING_ROWS, product_codes
from tests.engine.index.specimens import unit_rows

Float32 = NDArray[np.float32]
EXACT = VectorSettings(search="exact")
CODES = VectorSettings(search="approximate")


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
    for options in (EXACT, CODES):
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


@settings(max_examples=40, deadline=None)
@given(scenes(), st.integers(1, 60))
def test_an_exact_search_is_the_head_of_a_deeper_one(
    scene: tuple[Float32, Float32, NDArray[np.bool_]], depth: int
) -> None:
    rows, query, allowed = scene
    index = open_index(rows, EXACT)
    shallow, deep = (index.search(query, places, allowed) for places in (depth, 2 * depth))
    assert shallow.ordinals.tolist() == deep.ordinals[:depth].tolist()
    assert shallow.scores.tolist() == deep.scores[:depth].tolist()


def test_thousands_of_equal_rows_are_ordered_by_ordinal() -> None:
    rows = unit_rows(6000, 16)
    rows[1000:5000] = rows[7]
    hits = open_index(rows, EXACT).search(rows[7], 300)
    assert hits.ordinals.tolist() == [7, *range(1000, 1299)]
    assert hits.frontier == hits.scores[0]


@pytest.fixture(scope="module")
def crowd() -> Float32:
    """Return clustered rows, enough for compressed codes: 80 clusters of 100."""
    rng = np.random.default_rng(5)
    noise = 0.12 * rng.normal(size=(8000, 32))
    return as_unit_rows(unit_rows(80, 32)[np.arange(8000) % 80] + noise)


@pytest.fixture(scope="module")
def codes(crowd: Float32) -> VectorIndex:
    index = open_index(crowd, CODES)
    assert not index.exact
    return index


def found(hits: VectorHits, truth: list[int]) -> float:
    """Return the share of the true rows that were found."""
    return len(set(hits.ordinals.tolist()) & set(truth)) / len(truth)


def test_compressed_codes_find_nearly_all_and_claim_no_proof(
    crowd: Float32, codes: VectorIndex
) -> None:
    everything = np.ones(len(crowd), np.bool_)
    recall = []
    for query in as_unit_rows(crowd[:20] + 0.05 * unit_rows(20, 32)):
        hits = codes.search(query, 100)
        assert not hits.certified
        assert hits.scores.tolist() == exact_cosines(crowd[hits.ordinals], query).tolist()
        recall.append(found(hits, best(crowd, query, 100, everything)))
    assert np.mean(recall) >= 0.99


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.01, 0.001, 0.0001])
@pytest.mark.parametrize("depth", [1, 200, 800])
def test_no_filter_starves_a_search_of_compressed_codes(
    crowd: Float32, codes: VectorIndex, share: float, depth: int
) -> None:
    rng = np.random.default_rng(3)
    recall = []
    for query in crowd[:10]:
        allowed = rng.random(len(crowd)) < share
        allowed[int(rng.integers(len(crowd)))] = True
        hits = codes.search(query, depth, allowed)
        assert len(set(hits.ordinals.tolist())) == min(depth, np.count_nonzero(allowed))
        assert allowed[hits.ordinals].all()
        recall.append(found(hits, best(crowd, query, depth, allowed)))
    assert np.mean(recall) >= 0.99


@pytest.mark.parametrize("kind", ["far half", "all but the nearest tenth", "other clusters", "one"])
def test_a_filter_that_goes_with_the_query_does_not_mislead_compressed_codes(
    crowd: Float32, codes: VectorIndex, kind: str
) -> None:
    recall, ways = [], set()
    for place in range(10):
        query = crowd[place]
        ranks = np.argsort(np.argsort(-exact_cosines(crowd, query)))
        allowed = {
            "far half": ranks >= 4000,
            "all but the nearest tenth": ranks >= 800,
            "other clusters": np.arange(8000) % 80 != place,
            "one": np.arange(8000) % 80 == (place + 40) % 80,
        }[kind]
        hits = codes.search(query, 100, allowed)
        ways.add(hits.certified)
        assert len(set(hits.ordinals.tolist())) == 100
        assert allowed[hits.ordinals].all()
        recall.append(found(hits, best(crowd, query, 100, allowed)))
    expected = {"one": {True}, "other clusters": {False}}.get(kind, set())
    assert expected <= ways  # few rows are copied, codes are used where they are enough
    assert np.mean(recall) >= 0.99


def test_a_selective_filter_makes_compressed_codes_exact(
    crowd: Float32, codes: VectorIndex
) -> None:
    allowed = np.arange(len(crowd)) % 100 == 3
    hits = codes.search(crowd[0], 10, allowed)
    assert hits.certified
    assert hits.ordinals.tolist() == best(crowd, crowd[0], 10, allowed)


def test_compressed_codes_can_be_asked_to_prove_an_answer(
    crowd: Float32, codes: VectorIndex, tmp_path: Path
) -> None:
    truth = best(crowd, crowd[0], 30, np.ones(len(crowd), np.bool_))
    asked = codes.search(crowd[0], 30, exact=True)
    path = tmp_path / "faiss.index"
    configured = VectorIndex.open(path, crowd, build_index(path, crowd, CODES), EXACT)
    assert configured.exact
    for hits in (asked, configured.search(crowd[0], 30)):
        assert hits.certified
        assert hits.ordinals.tolist() == truth
        assert hits.frontier < hits.scores[-1]


def test_whoever_takes_all_of_compressed_codes_gets_a_proof(
    crowd: Float32, codes: VectorIndex
) -> None:
    everything = np.ones(len(crowd), np.bool_)
    for depth in (8000, 8001):
        hits = codes.search(crowd[0], depth)
        assert hits.ordinals.tolist() == best(crowd, crowd[0], depth, everything)
        assert (hits.frontier, hits.certified) == (-math.inf, True)


def test_what_compressed_codes_fail_to_return_is_topped_up_exactly(
    crowd: Float32, codes: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: object) -> tuple[Float32, NDArray[np.int64]]:
        return np.ones(3, np.float32), np.arange(3, dtype=np.int64)

    monkeypatch.setattr("engine.index.vector.scan_product", short)
    hits = codes.search(crowd[0], 30)
    assert hits.certified
    assert hits.ordinals.tolist() == best(crowd, crowd[0], 30, np.ones(len(crowd), np.bool_))


def test_recall_is_measured_when_built(crowd: Float32, tmp_path: Path) -> None:
    facts = build_index(tmp_path / "faiss.index", crowd, CODES)
    assert facts.approximate
    assert len(facts.recall) == len(RECALL_DEPTHS)
    assert all(RECALL_TARGET <= recall <= 1.0 for recall in facts.recall)
    index = product_codes(crowd, 1)
    assert measure_recall(index, crowd)[facts.over_fetch] == facts.recall
    others = product_codes(np.ascontiguousarray(crowd[::-1]), 1)  # codes of other rows
    assert measure_recall(others, crowd)[4][0] < 0.5


def test_an_approximate_index_that_finds_too_little_is_not_used(
    crowd: Float32,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("engine.index.vector_builder.RECALL_TARGET", 1.1)
    facts = build_index(tmp_path / "faiss.index", crowd, CODES)
    assert (facts.approximate, facts.over_fetch, facts.recall) == (False, 0, ())
    assert ["finds too little" in message for message in caplog.messages] == [True]
    assert VectorIndex.open(tmp_path / "faiss.index", crowd, facts).exact


def test_too_few_rows_for_codes_are_searched_exactly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = unit_rows(TRAINING_ROWS - 1, 8)
    assert not build_index(tmp_path / "faiss.index", rows, CODES).approximate
    assert ["too few vectors" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize("options", [EXACT, CODES])
def test_the_same_vectors_give_the_same_file(
    crowd: Float32, tmp_path: Path, options: VectorSettings
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert build_index(first, crowd, options) == build_index(second, crowd, options)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_other_processes_write_the_same_file(crowd: Float32, tmp_path: Path, search: str) -> None:
    np.save(tmp_path / "rows.npy", crowd)
    program = (
        "import sys; from pathlib import Path; import numpy as np\n"
        "from engine.index.vector import VectorSettings, build_index\n"
        "rows = np.load(sys.argv[1])\n"
        "print(build_index(Path(sys.argv[2]), rows, VectorSettings(search=sys.argv[3])))\n"
    )
    written = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("77", "4")):
        path = tmp_path / f"index-{seed}"
        threading_ = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "rows.npy"), str(path), search],
            env=os.environ | threading_ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        written.add((path.read_bytes(), done.stdout))
    assert len(written) == 1


def test_searches_of_many_threads_agree(crowd: Float32, codes: VectorIndex) -> None:
    alone = [codes.search(query, 20) for query in crowd[:12]]
    together: dict[int, VectorHits] = {}

    def work(place: int) -> None:
        together[place] = codes.search(crowd[place], 20)

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
    facts = build_index(path, rows, EXACT)
    with pytest.raises(SegmentRefusedError, match="5 vectors"):
        VectorIndex.open(path, rows[:4], facts)
    with pytest.raises(SegmentRefusedError, match="another kind"):
        VectorIndex.open(path, rows, VectorFacts(approximate=True, code_error=0.0, over_fetch=4))


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faiss.index"
    path.write_bytes(b"not an index")
    with pytest.raises(SegmentRefusedError, match="FAISS cannot read"):
        VectorIndex.open(path, unit_rows(5, 4), VectorFacts(approximate=False, code_error=0.0))
