"""The invariance benchmark: how a corpus is spread over bases, and how answers are counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks.invariance import ASKERS, MEMBER, Layout, describe, make_bases, run, split
from engine.authorization import OPERATOR, readable_bases
from engine.config import Config
from engine.contract import MODES
from engine.ids import BaseId
from engine.store.opening import create_store

FACTS = {"total_passages": 7, "segments": 2, "encoded": 0}


@pytest.mark.parametrize("packed", [False, True])
def test_documents_go_to_the_bases_in_turns_and_none_is_lost(tmp_path: Path, packed: bool) -> None:
    lines = [json.dumps({"_id": str(at), "text": f"text {at}"}) for at in range(10)]
    corpus = tmp_path / ("corpus.jsonl.gz" if packed else "corpus.jsonl")
    text = "\n".join(lines) + "\n"
    corpus.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    files = split(corpus, tmp_path)
    held = {base: path.read_text("utf-8").splitlines() for base, path in files.items()}
    assert [len(held[BaseId(base)]) for base in ("everybodys", "teams", "carols")] == [5, 3, 2]
    assert sorted(line for mine in held.values() for line in mine) == sorted(lines)


def test_the_member_reads_some_of_the_bases_and_not_all(tmp_path: Path) -> None:
    store = create_store(tmp_path / "store")
    make_bases(store)
    bases = store.catalog.poll().bases()
    assert readable_bases(MEMBER, bases, "") == {"everybodys", "teams"}
    assert len(readable_bases(OPERATOR, bases, "")) == 3


def test_an_answer_counts_as_identical_when_its_bytes_are_those_of_the_first_layout() -> None:
    first, other = Layout(1, Config(), FACTS), Layout(5, Config(), FACTS)
    for asker in ASKERS:
        for mode in MODES:
            first.answers[asker.name, mode, "q"] = other.answers[asker.name, mode, "q"] = "same"
    other.answers["operator", "rrf", "q"] = "another"
    other.verified.update({"agree": 11, "disagree": 1})
    document = describe(other, first)
    assert (document["answers"], document["identical"]) == (12, 11)
    assert document["identical_by_asker"] == {
        "operator": 3,
        "operator, one base": 4,
        "team member": 4,
    }
    assert document["identical_by_mode"]["rrf"] == 2
    assert document["verified"]["disagree"] == 1


@pytest.mark.ray
@pytest.mark.slow
def test_a_small_collection_answers_alike_in_every_layout(
    tmp_path: Path, ray_cluster: None
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    rows = [{"_id": f"d{at}", "title": "", "text": f"harbour text {at} " * 9} for at in range(24)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "harbour 7"}), "utf-8")
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td7\t1\n", "utf-8")
    words = ["--corpus", str(folder), "--encoder", "hashing", "--layouts", "1,3"]
    document = run([*words, "--json", str(tmp_path / "result.json")])
    assert document["answers"] == document["identical"] == 2 * len(ASKERS) * len(MODES)
    assert [row["verified"]["disagree"] for row in document["layouts"]] == [0, 0]
    assert [row["shards"] for row in document["layouts"]] == [1, 3]
    assert document["layouts"][1]["encoded"] == 0
