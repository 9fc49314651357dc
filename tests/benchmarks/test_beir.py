"""Test collections and run files."""

from __future__ import annotations

import json
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR

from benchmarks.beir import (
    CollectionError,
    collections_in,
    half_of,
    read_collection,
    run_lines,
    strictly_decreasing,
)


def write_collection(folder: Path, qrels: str, queries: list[dict[str, str]]) -> Path:
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "t", "text": "x"}\n', "utf-8")
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries), "utf-8")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels, "utf-8")
    return folder


def queries(count: int) -> list[dict[str, str]]:
    return [{"_id": f"q{number}", "text": f"text {number}"} for number in range(count)]


def test_queries_without_a_positive_judgment_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = write_collection(tmp_path, "q0\td1\t2\nq1\td1\t0\nq9\td1\t1\n", queries(3))
    collection = read_collection(folder)
    assert dict(collection.queries) == {"q0": "text 0"}
    assert dict(collection.qrels) == {"q0": {"d1": 2}}
    assert collection.left_out == 2


def test_a_sample_is_spread_over_the_file_and_keeps_its_judgments(tmp_path: Path) -> None:
    qrels = "".join(f"q{number}\td1\t1\n" for number in range(10))
    collection = read_collection(write_collection(tmp_path, qrels, queries(10))).sample(4)
    assert list(collection.queries) == ["q0", "q2", "q5", "q7"]
    assert list(collection.qrels) == list(collection.queries)


@pytest.mark.parametrize("count", [None, 3, 4])
def test_a_sample_of_everything_is_the_collection(tmp_path: Path, count: int | None) -> None:
    qrels = "q0\td1\t1\nq1\td1\t1\nq2\td1\t1\n"
    collection = read_collection(write_collection(tmp_path, qrels, queries(3)))
    assert collection.sample(count) == collection


def test_the_halves_share_the_queries_and_hang_on_ids_alone(tmp_path: Path) -> None:
    qrels = "".join(f"q{number}\td1\t1\n" for number in range(200))
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    collection = read_collection(write_collection(tmp_path / "one", qrels, queries(200)))
    other = read_collection(write_collection(tmp_path / "other", qrels, queries(200)[::-3]))
    tune, report = collection.half("tune"), collection.half("report")
    assert {*tune.queries, *report.queries} == set(collection.queries)
    assert not set(tune.queries) & set(report.queries)
    assert 80 <= len(tune.queries) <= 120
    assert list(tune.qrels) == list(tune.queries)
    assert set(other.half("tune").queries) == set(tune.queries) & set(other.queries)
    assert set(collection.sample(50).half("report").queries) <= set(report.queries)


def test_a_query_never_changes_its_half() -> None:
    # published figures are of one half: another rule would mix it with what was tuned on
    halves = [half_of(name) for name in ("q0", "q1", "q2", "q3", "é", "")]
    assert halves == ["tune", "report", "tune", "tune", "tune", "report"]


def test_a_folder_of_collections_is_read_by_name(tmp_path: Path) -> None:
    for name in ("zeta", "alpha"):
        (tmp_path / name).mkdir()
        write_collection(tmp_path / name, "q0\td1\t1\n", queries(1))
    (tmp_path / "notes").mkdir()
    assert [folder.name for folder in collections_in(tmp_path)] == ["alpha", "zeta"]
    with pytest.raises(CollectionError, match="holds no folder"):
        collections_in(tmp_path / "notes")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.tsv", "head\nq0\td1\n"),
        ("qrels.tsv", "head\nq0\td1\tx\n"),
        ("queries.jsonl", "{}\n"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, name: str, text: str) -> None:
    folder = write_collection(tmp_path, "q0\td1\t1\n", queries(1))
    (folder / name).write_text(text, "utf-8")
    with pytest.raises(CollectionError, match=rf"{name}, line \d"):
        read_collection(folder)


def test_a_folder_in_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="not in BEIR form"):
        read_collection(tmp_path)


@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=50))
def test_scores_come_out_strictly_decreasing_in_single_precision(scores: list[float]) -> None:
    ordered = sorted(scores, reverse=True)
    lowered = np.array(strictly_decreasing(ordered), dtype=np.float32)
    assert (np.diff(lowered) < 0).all()
    assert (lowered <= np.array(ordered, dtype=np.float32)).all()
    assert lowered[0] == np.float32(ordered[0])


def test_trec_eval_keeps_the_order_of_a_run_with_equal_scores() -> None:
    ranked = [(f"d{number}", 0.25) for number in range(9)]  # trec_eval would put d8 first
    lines = list(run_lines({"q": ranked}, "octavo"))
    assert lines[0].split()[:4] == ["q", "Q0", "d0", "1"]
    fields = [line.split() for line in lines]
    run = [ir_measures.ScoredDoc(row[0], row[2], float(row[4])) for row in fields]
    qrels = {"q": {"d0": 1}}
    assert ir_measures.calc_aggregate([RR], qrels, run) == {RR: 1.0}
