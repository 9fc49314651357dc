"""Ingesting files with Ray Data into a real store."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from engine.ids import BaseId, derive_item_id
from engine.store.opening import open_store
from tests.jobs.running import Shell, make_shell, text_of, write_texts

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


def _counts(report: dict[str, object]) -> tuple[object, ...]:
    return tuple(report[name] for name in ("added", "updated", "unchanged", "refused", "skipped"))


def test_a_directory_is_read_once_and_its_changes_become_revisions(
    base: Shell, tmp_path: Path
) -> None:
    texts = tmp_path / "texts"
    write_texts(texts, range(9))
    (texts / "below").mkdir()
    (texts / "below" / "page.html").write_text(
        "<html><head><title>A page</title></head><body><main><h1>A page</h1>"
        "<p>This page tells how the lighthouse was painted, and by whom it was paid.</p>"
        "</main></body></html>",
        "utf-8",
    )
    (texts / "picture.png").write_bytes(b"\x89PNG")
    (texts / "broken.md").write_bytes(b"\xff\xfe\xff not text")
    (texts / "empty.txt").write_text("", "utf-8")
    first = base.json("ingest", str(texts), "--base", "kb")
    assert _counts(first) == (10, 0, 0, 2, 1)
    rejects = [json.loads(line) for line in Path(first["rejects_file"]).read_text().splitlines()]
    assert sorted(reject["source"] for reject in rejects) == ["broken.md", "empty.txt"]
    assert all(reject["reason"] for reject in rejects)

    again = base.json("ingest", str(texts), "--base", "kb")
    assert _counts(again) == (0, 0, 10, 2, 1)

    item = derive_item_id(BaseId("kb"), "text-003.md")
    before = open_store(base.root).catalog.poll().item(item)
    (texts / "text-003.md").write_text("# Text 3\n\nNow it says something else.\n", "utf-8")
    changed = base.json("ingest", str(texts), "--base", "kb", "--publish")
    assert _counts(changed) == (1, 9, 0, 2, 1)
    after = open_store(base.root).catalog.poll().item(item)
    assert before is not None
    assert after is not None
    assert after.head_revision != before.head_revision
    assert (before.status, after.status) == ("draft", "published")
    assert after.desired_revision == after.head_revision


def test_records_are_read_from_compressed_lines_and_broken_ones_are_named(
    base: Shell, tmp_path: Path
) -> None:
    lines = [
        json.dumps({"_id": f"doc/{n}", "title": f"Text {n}", "text": text_of(n), "lang": "en"})
        for n in range(12)
    ]
    lines[4] = '{"_id": "doc/4", "title": "cut off'
    lines[7] = json.dumps({"_id": "doc/7", "title": "No text", "text": ""})
    lines[9] = lines[8]
    corpus = tmp_path / "corpus.jsonl.gz"
    corpus.write_bytes(gzip.compress("\n".join(lines).encode()))
    rejects = tmp_path / "rejects.jsonl"
    report = base.json("ingest", str(corpus), "--base", "kb", "--rejects", str(rejects))
    assert _counts(report) == (9, 0, 0, 3, 0)
    named = [json.loads(line)["source"] for line in rejects.read_text().splitlines()]
    assert sorted(named) == ["corpus.jsonl.gz:10", "corpus.jsonl.gz:5", "corpus.jsonl.gz:8"]
    catalog = open_store(base.root).catalog.poll()
    state = catalog.item(derive_item_id(BaseId("kb"), "doc/0"))
    assert state is not None
    assert state.source_ref == "doc/0"


def test_the_same_input_gives_the_same_ids_in_another_store_from_another_place(
    base: Shell, tmp_path: Path
) -> None:
    write_texts(tmp_path / "here", range(3))
    write_texts(tmp_path / "elsewhere" / "deep", range(3))
    other = make_shell(tmp_path / "elsewhere")
    other.json("base", "create", "kb", "--title", "K", "--owner", "bob")
    found = []
    for shell, texts in ((base, tmp_path / "here"), (other, tmp_path / "elsewhere" / "deep")):
        shell.json("ingest", str(texts), "--base", "kb")
        states = open_store(shell.root).catalog.poll().items()
        found.append(sorted((state.item_id, state.head_revision) for state in states))
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_an_id_of_another_base_is_refused(base: Shell, tmp_path: Path) -> None:
    base.json("base", "create", "other", "--title", "O", "--owner", "bob")
    row = json.dumps({"id": "mine", "title": "T", "text": "Some text of mine.", "language": "en"})
    source = tmp_path / "rows.jsonl"
    source.write_text(row + "\n", "utf-8")
    assert _counts(base.json("ingest", str(source), "--base", "kb")) == (1, 0, 0, 0, 0)
    refused = base.json("ingest", str(source), "--base", "other")
    assert _counts(refused) == (0, 0, 0, 1, 0)
    assert list(refused["reasons"]) == ["the item id belongs to another base"]


def test_ingesting_into_no_base_is_an_error_before_anything_is_read(
    base: Shell, tmp_path: Path
) -> None:
    write_texts(tmp_path / "texts", range(1))
    said = base.type("ingest", str(tmp_path / "texts"), "--base", "nowhere")
    assert said.code == 1
    assert "octavo_not_found" in said.err
