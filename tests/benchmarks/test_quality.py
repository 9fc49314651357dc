"""The quality benchmark from end to end, on a collection whose answers are plain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ir_measures
import pytest
from ir_measures import RR, nDCG

from benchmarks.beir import HALVES, half_of
from benchmarks.quality import run
from benchmarks.table import RESULTS, table_lines
from engine.contract import MODES
from tests.jobs.running import WORDS, text_of

README = Path(__file__).resolve().parents[2] / "README.md"
DOCUMENTS = 12


def write_collection(folder: Path, asked: range) -> Path:
    folder.mkdir(parents=True)
    corpus = [
        {"_id": f"d{number}", "title": f"Text {number}", "text": text_of(number), "lang": "en"}
        for number in range(DOCUMENTS)
    ]
    queries = [
        {"_id": f"q{number}", "text": f"text {number} about the {WORDS[number % 10]}"}
        for number in asked
    ]
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    qrels = "".join(f"q{number}\td{number}\t1\n" for number in asked)
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels, "utf-8")
    return folder


def measured(run_file: Path, qrels: Path) -> dict[str, float]:
    """Measure a TREC run again, from what was written."""
    rows = [line.split("\t") for line in qrels.read_text("utf-8").splitlines()[1:]]
    judged = [ir_measures.Qrel(query, document, int(value)) for query, document, value in rows]
    read: Any = ir_measures.read_trec_run
    found = ir_measures.calc_aggregate([nDCG @ 10, RR @ 10], judged, list(read(str(run_file))))
    return {str(name): round(value, 4) for name, value in found.items()}


@pytest.mark.ray
@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_collections_go_through_the_whole_pipeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {
        "one": write_collection(tmp_path / "all" / "one", range(DOCUMENTS)),
        "two": write_collection(tmp_path / "all" / "two", range(5)),
    }
    words = ["--encoder", "hashing", "--vector-cache", str(tmp_path / "vectors")]
    output = ["--json", "--run", str(tmp_path / "octavo.run")]
    document = run(["--all", str(tmp_path / "all"), *words, *output])
    said = capsys.readouterr().out
    assert json.loads(said) == document
    assert document["queries_encoded"] == DOCUMENTS  # two collections, four modes, each once
    assert str(tmp_path) not in json.dumps(document["command"])
    assert [one["collection"] for one in document["collections"]] == list(folders)
    for one in document["collections"]:
        assert list(one["modes"]) == list(MODES)
        assert one["queries"]["all"] == one["queries"]["tune"] + one["queries"]["report"]
        assert one["modes"]["lexical"]["all"]["nDCG@10"] > 0.9
        for mode, found in one["modes"].items():
            remeasured = measured(
                tmp_path / f"octavo.run.{one['collection']}.{mode}",
                folders[one["collection"]] / "qrels.tsv",
            )
            assert {name: found["all"][name] for name in remeasured} == remeasured
        assert set(one["hybrid_gain_nDCG@10"]["all"]) == {"lexical", "semantic"}
    assert_a_half_alone_is_that_half(folders["one"], document["collections"][0], tmp_path)

    again = run(["--corpus", str(folders["one"]), "--mode", "semantic", *words])
    assert again["queries_encoded"] == 0
    assert again["collections"][0]["build"]["reindex"]["encoded"] == 0
    first = document["collections"][0]["modes"]["semantic"]
    assert again["collections"][0]["modes"]["semantic"] == first


def assert_a_half_alone_is_that_half(folder: Path, whole: dict[str, Any], tmp_path: Path) -> None:
    run_file = tmp_path / "tune.run"
    words = ["--mode", "lexical", "--half", "tune", "--shards", "3", "--run", str(run_file)]
    (alone,) = run(["--corpus", str(folder), *words])["collections"]
    assert alone["queries"] == {"tune": whole["queries"]["tune"]}
    assert alone["modes"]["lexical"]["tune"] == whole["modes"]["lexical"]["tune"]
    asked = {line.split()[0] for line in run_file.read_text("utf-8").splitlines()}
    assert asked == {f"q{n}" for n in range(DOCUMENTS) if half_of(f"q{n}") == "tune"}


def test_one_of_corpus_and_all_must_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        run([])
    assert raised.value.code == 2
    assert "--corpus --all is required" in capsys.readouterr().err


# --------------------------------------------------------------------- the published table


def one_collection(**by_mode: float) -> dict[str, Any]:
    modes = {
        mode: {half: {"nDCG@10": value, "R@100": 0.5} for half in HALVES}
        for mode, value in by_mode.items()
    }
    return {"collection": "tiny", "queries": {"tune": 3, "report": 4}, "modes": modes}


def test_a_table_marks_the_best_mode_of_a_row() -> None:
    document = {"collections": [one_collection(lexical=0.25, semantic=0.5, rrf=0.5, hybrid=0.1)]}
    assert table_lines(document) == [
        "| collection | queries | lexical | semantic | rrf | hybrid | hybrid R@100 |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| tiny | 4 | 0.250 | **0.500** | **0.500** | 0.100 | 0.500 |",
    ]
    assert table_lines(document, "tune")[2].startswith("| tiny | 3 |")


def test_a_mode_that_was_not_asked_is_a_dash() -> None:
    document = {"collections": [one_collection(lexical=0.25)]}
    assert table_lines(document)[2] == "| tiny | 4 | **0.250** | - | - | - | - |"


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    document = json.loads(RESULTS.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


def test_the_readme_holds_the_table_of_the_published_results(published: dict[str, Any]) -> None:
    assert "\n".join(table_lines(published)) in README.read_text("utf-8")


def test_published_hybrid_beats_each_side_in_one_language_and_loses_nothing_across_two(
    published: dict[str, Any],
) -> None:
    across = {"xquad-de2en", "xquad-en2zh"}
    assert published["collections"]
    for one in published["collections"]:
        figures = {mode: found["report"]["nDCG@10"] for mode, found in one["modes"].items()}
        if "hybrid" not in figures:
            continue
        better_side = max(figures["lexical"], figures["semantic"])
        allowed = 0.01 if one["collection"] in across else 0.0
        assert figures["hybrid"] >= better_side - allowed, one["collection"]


def test_what_is_published_names_no_place_of_the_machine_that_measured(
    published: dict[str, Any],
) -> None:
    assert "/" not in published["command"]
    assert published["commit"]
    assert published["machine"]["processor"]
    for one in published["collections"]:
        assert one["queries"]["all"] == one["queries"]["tune"] + one["queries"]["report"]
