"""Erasing: nothing of a revision is left in any file, whenever it is killed; others stay."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from engine.config import dump_config
from engine.ids import ItemId, RevisionId
from engine.index.generation import GenerationLog
from engine.store.opening import open_store
from engine.store.storage import LocalStorage
from jobs.erase import ErasureError, Selection, erase, tombstones
from jobs.erase_search import search_root
from tests.jobs.running import Shell

pytestmark = [pytest.mark.ray, pytest.mark.jvm, pytest.mark.usefixtures("ray_cluster")]

SECRET = "the zyxomantic pass phrase of the northern vault is quagmirelle forever"
WORD = "zyxomantic"

KILLED_AT = """
import os, signal, sys
from engine.config import undump_config
from engine.ids import ItemId
from jobs.erase import Selection, erase

seen = []

def on_step(step):
    seen.append(step)
    if len(seen) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

erase(undump_config(sys.argv[1]), Selection(ItemId(sys.argv[2])), "tester", on_step=on_step)
"""


@pytest.fixture
def indexed(base: Shell, tmp_path: Path) -> Shell:
    """Return a store that has the secret in its newest generation, in a table since compacted."""
    texts = tmp_path / "texts"
    texts.mkdir()
    for name, text in (("secret", SECRET), ("tea", "how to brew tea"), ("ink", "how to make ink")):
        (texts / f"{name}.md").write_text(f"# About {name}\n\n{text}\n", "utf-8")
    words = ("--base", "kb", "--publish", "--language", "en")
    base.json("ingest", str(texts), *words)
    base.json("reindex", "--shards", "1")
    return base


def _secret(shell: Shell) -> tuple[str, str]:
    found = shell.json("search", WORD, "--mode", "lexical")["results"][0]
    return found["knowledge_item_id"], found["knowledge_revision_id"]


def _gone(shell: Shell, item: str, revision: str) -> None:
    assert search_root(shell.root, [SECRET, SECRET[:40], WORD]) == ()
    results = shell.json("search", WORD)["results"]
    assert item not in [result["knowledge_item_id"] for result in results]
    assert len(shell.json("search", "how to brew tea")["results"]) >= 1
    assert shell.json("verify")["passages"] == 2
    stone = tombstones(LocalStorage(shell.root), ItemId(item))
    assert [(s.revision_id, s.erased_at is not None) for s in stone] == [(revision, True)]


def test_an_erased_revision_is_in_no_file_and_no_answer(indexed: Shell) -> None:
    item, revision = _secret(indexed)
    assert search_root(indexed.root, [WORD]) != ()
    foreseen = indexed.json("erase", item, revision, "--dry-run")
    assert (foreseen["dry_run"], len(foreseen["segments"])) == (True, 1)
    assert _secret(indexed) == (item, revision)

    done = indexed.json("erase", item, revision, "--by", "alice")

    assert (done["generation"], done["segments"], done["findings"]) == (2, foreseen["segments"], [])
    assert done["pieces"] > 0
    _gone(indexed, item, revision)
    assert tombstones(LocalStorage(indexed.root), ItemId(item))[0].erased_by == "alice"
    assert indexed.json("reindex")["built"] is False
    refused = indexed.type("read", item, "--revision", revision)
    assert "knowledge_resource_unavailable" in refused.err + refused.out


def test_no_older_version_of_the_table_gives_an_erased_text_back(indexed: Shell) -> None:
    item, revision = _secret(indexed)
    uri = LocalStorage(indexed.root).delta_uri("revisions")
    before = DeltaTable(uri).version()
    assert WORD in str(DeltaTable(uri, version=before).to_pyarrow_table()["content"].to_pylist())

    indexed.json("erase", item, revision)

    with pytest.raises((DeltaError, OSError)):
        DeltaTable(uri, version=before).to_pyarrow_table()
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 2


def test_erasing_again_changes_nothing_and_an_erased_text_does_not_come_back(
    indexed: Shell, tmp_path: Path
) -> None:
    item, revision = _secret(indexed)
    indexed.json("erase", item, "--all")
    again = indexed.json("erase", item, "--all")
    assert (again["segments"], again["store_files"], again["generation"]) == ([], 0, 2)

    report = indexed.json("ingest", str(tmp_path / "texts"), "--base", "kb", "--language", "en")

    assert (
        report["refused"],
        open_store(indexed.root).revisions.exists(ItemId(item), RevisionId(revision)),
    ) == (1, False)


def test_the_same_text_in_another_item_stays_and_is_named(indexed: Shell, tmp_path: Path) -> None:
    item, _ = _secret(indexed)
    twin = tmp_path / "twin"
    twin.mkdir()
    (twin / "copy.md").write_bytes((tmp_path / "texts" / "secret.md").read_bytes())
    indexed.json("ingest", str(twin), "--base", "kb", "--publish", "--language", "en")
    indexed.json("reindex")

    done = indexed.json("erase", item, "--all")

    assert [key[0] != item for key in done["same_text"]] == [True]
    assert done["shared_pieces"] > 0
    found = {r["knowledge_item_id"] for r in indexed.json("search", WORD)["results"]}
    assert done["same_text"][0][0] in found
    assert item not in found


def test_a_text_that_a_foreign_file_holds_is_reported(indexed: Shell) -> None:
    item, _ = _secret(indexed)
    note = indexed.root / "note.txt"
    note.write_text(f"...{SECRET}...", "utf-16-le")
    chosen = Selection(ItemId(item))
    with pytest.raises(ErasureError, match=r"note\.txt"):
        erase(indexed.config, chosen, "tester")
    assert tombstones(LocalStorage(indexed.root), ItemId(item))[0].erased_at is None
    note.unlink()
    erase(indexed.config, chosen, "tester")
    assert tombstones(LocalStorage(indexed.root), ItemId(item))[0].erased_at is not None


@pytest.mark.slow
def test_an_erasure_that_was_killed_at_any_step_is_finished_by_the_next(indexed: Shell) -> None:
    item, revision = _secret(indexed)
    repository = Path(__file__).resolve().parents[2]
    pristine = indexed.root.with_name("pristine")
    indexed.root.rename(pristine)
    step = 0
    while True:
        step += 1
        _copy(pristine, indexed.root)
        words = [dump_config(indexed.config), item, str(step)]
        done = subprocess.run(
            [sys.executable, "-c", KILLED_AT, *words],
            cwd=repository,
            capture_output=True,
            check=False,
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
        indexed.json("erase", item, "--all")
        _gone(indexed, item, revision)
        assert GenerationLog(LocalStorage(indexed.root)).numbers() == (1, 2)
    assert step == 12


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
