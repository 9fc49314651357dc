"""Reindexing with real Ray, Lucene and FAISS: what is encoded, copied, built, and found after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.index.generation import GenerationLog
from engine.store.opening import open_store
from tests.jobs.running import Shell, make_shell, write_texts

pytestmark = [
    pytest.mark.ray,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_cluster"),
]

MODES = ("hybrid", "lexical", "semantic", "rrf")
QUERIES = ("why the lantern stood beside the violin", "number 7", "glacier compass")


def _answers(shell: Shell) -> list[str]:
    """Return the printed answers to every query in every mode."""
    said = [shell.type("search", q, "--mode", m, "--json") for q in QUERIES for m in MODES]
    assert [one.code for one in said] == [0] * len(said), [one.err for one in said]
    assert any(one.document["results"] for one in said)
    return [one.out for one in said]


def _vectors(shell: Shell) -> dict[bytes, bytes]:
    """Return the stored vector of every text hash of the newest generation."""
    from jobs.segments import StoredSegment

    storage = open_store(shell.root).storage
    record = GenerationLog(storage).newest()
    assert record is not None
    import numpy as np

    found: dict[bytes, bytes] = {}
    for told in record.segments:
        segment = StoredSegment(storage, told)
        rows = segment.copy(np.ones(segment.entries.num_rows, bool))
        hashes = [hash_ for hash_ in rows.passages["text_hash"].to_pylist() if hash_ is not None]
        found |= {bytes(key): row.tobytes() for key, row in zip(hashes, rows.vectors, strict=True)}
    return found


def test_a_store_goes_through_its_generations(base: Shell, tmp_path: Path) -> None:
    texts = tmp_path / "texts"

    # nothing is published: nothing is built
    empty = base.json("reindex")
    assert (empty["built"], empty["reason"]) == (False, "nothing is published")
    assert base.json("search", "anything")["results"] == []

    # the first generation, in three shards
    write_texts(texts, range(14))
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    assert base.json("status")["pending"] == 14
    first = base.json("reindex", "--shards", "3")
    assert (first["built"], first["generation"], first["shards"]) == (True, 1, 3)
    assert first["revisions"] == 14
    assert first["encoded"] == first["passages"] == first["total_passages"] > 14
    assert first["copied"] == 0
    status = base.json("status")
    assert (status["pending"], status["generation"]["generation"]) == (0, 1)
    assert sum(status["generation"]["passages_by_shard"]) == first["passages"]
    assert not (base.root / "stage").exists()
    assert base.json("verify")["passages"] == first["passages"]

    # nothing changed: nothing is built
    second = base.json("reindex")
    assert (second["built"], second["generation"]) == (False, 1)
    assert "nothing to do" in base.type("reindex").out
    assert GenerationLog(open_store(base.root).storage).numbers() == (1,)

    # two new texts and a changed one: only theirs is encoded, and not what a changed text keeps
    before, vectors = _answers(base), _vectors(base)
    write_texts(texts, range(14, 16))
    page = texts / "text-005.md"
    page.write_text(page.read_text("utf-8") + "\n\nAn appended sentence about sheep.\n", "utf-8")
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    third = base.json("reindex")
    assert (third["generation"], third["shards"], third["revisions"]) == (2, 3, 3)
    assert 0 < third["encoded"] < third["passages"]
    assert third["encoded"] + third["copied"] == third["passages"]
    assert _vectors(base).items() >= vectors.items()
    assert _answers(base) != before
    assert base.json("search", "sheep", "--mode", "lexical")["results"][0]["title"] == "Text 5"

    # two shards instead of three: nothing is encoded, and every answer is the same to the byte
    before, vectors = _answers(base), _vectors(base)
    fourth = base.json("reindex", "--shards", "2")
    assert (fourth["built"], fourth["generation"], fourth["shards"]) == (True, 3, 2)
    assert (fourth["encoded"], fourth["copied"]) == (0, fourth["passages"])
    assert fourth["revisions"] == 16  # the superseded revision is left behind
    assert _answers(base) == before
    assert vectors.items() >= _vectors(base).items()
    assert base.json("verify")["revisions"] == 16

    # going back to an earlier text needs it again, in an answer as in the index
    write_texts(texts, range(5, 6))
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    fifth = base.json("reindex")
    assert (fifth["built"], fifth["revisions"], fifth["shards"]) == (True, 1, 2)
    found = base.json("search", "sheep", "--mode", "lexical")["results"]
    assert found == []

    # what is configured otherwise is refused by name, and rebuilt when asked for
    other = json.loads(base.config_file.read_text("utf-8"))
    other["passages"]["max_tokens"] = 48
    base.config_file.write_text(json.dumps(other), "utf-8")
    refused = base.type("reindex")
    assert (refused.code, "octavo_configuration" in refused.err) == (1, True)
    rebuilt = base.json("reindex", "--rebuild")
    assert (rebuilt["built"], rebuilt["revisions"]) == (True, 16)
    assert rebuilt["total_passages"] < fourth["total_passages"]
    other["encoder"]["dimension"] = 32
    base.config_file.write_text(json.dumps(other), "utf-8")
    write_texts(texts, range(20, 21))
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    refused = base.type("reindex")
    assert (refused.code, "octavo_encoder" in refused.err) == (1, True)
    assert "\n" not in refused.err.strip()


def test_a_revision_published_again_becomes_current_without_being_built(
    base: Shell, tmp_path: Path
) -> None:
    texts = tmp_path / "texts"
    write_texts(texts, range(2))
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    base.json("reindex")
    item = base.json("search", "number 1", "--mode", "lexical")["results"][0]
    name = item["knowledge_item_id"]
    assert base.json("unpublish", name)["unpublished"] == 1
    gone = base.type("read", name, "--json")
    assert (gone.code, gone.document["error"]["code"]) == (1, "knowledge_resource_unavailable")
    base.json("publish", name)
    back = base.json("reindex")
    assert (back["built"], back["segments"], back["encoded"]) == (True, 0, 0)
    assert base.json("publish", name, "--wait")["current"] is True
    assert base.json("read", name)["title"] == item["title"]


def _damage(path: Path) -> None:
    """Turn a bit in the middle of a file, which keeps its size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("file", ["entries.arrow", "passages.arrow", "vectors.npy"])
def test_damage_is_never_copied_and_a_rebuild_replaces_it(
    base: Shell, tmp_path: Path, file: str
) -> None:
    texts = tmp_path / "texts"
    write_texts(texts, range(4))
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    first = base.json("reindex", "--shards", "2")
    vectors = _vectors(base)
    name = min(path.name for path in (base.root / "segments").iterdir())
    _damage(base.root / "segments" / name / file)

    # neither another layout nor an addition takes rows of it
    write_texts(texts, range(4, 5))
    base.json("ingest", str(texts), "--base", "kb", "--publish", "--language", "en")
    for words in (("reindex", "--shards", "3"), ("reindex",)):
        refused = base.type(*words)
        assert (refused.code, "octavo_segment_refused" in refused.err) == (1, True), refused.err
        assert name in refused.err
        assert "--rebuild" in refused.err
    assert base.json("status")["generation"]["generation"] == 1

    # a rebuild encodes what the damaged segment held, and copies the rest
    rebuilt = base.json("reindex", "--rebuild")
    assert (rebuilt["generation"], rebuilt["revisions"]) == (2, 5)
    assert 0 < rebuilt["copied"] < first["passages"]
    assert _vectors(base).items() >= vectors.items()
    assert base.json("verify")["generation"] == 2


def test_a_second_root_takes_its_vectors_from_the_cache(tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", range(5))
    said, vectors = [], []
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        shell = make_shell(folder, jobs={"vector_cache": str(tmp_path / "vectors")})
        shell.json("base", "create", "kb", "--title", "K", "--owner", "a", "--scope", "public")
        shell.json("ingest", str(tmp_path / "texts"), "--base", "kb", "--publish")
        said.append(shell.json("reindex"))
        vectors.append(_vectors(shell))
    assert said[0]["encoded"] == said[1]["copied"] == said[0]["passages"] > 5
    assert said[0]["copied"] == said[1]["encoded"] == 0
    assert vectors[0] == vectors[1]
