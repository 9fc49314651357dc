"""Erasing: nothing of a revision is left in any file, whenever it is killed; others stay."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from engine.authorization import OPERATOR
from engine.config import Config, dump_config
from engine.errors import ConflictError, ResourceUnavailableError, SegmentRefusedError
from engine.ids import ItemId, RevisionId
from engine.index.analysis import analyze
from engine.index.generation import GenerationLog
from engine.index.postings import RawPostings
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.opening import open_store
from engine.store.storage import LocalStorage
from jobs.erase import ErasureError, Selection, erase, tombstones
from jobs.erase_search import search_root
from tests.jobs.running import Shell

pytestmark = [pytest.mark.ray, pytest.mark.jvm, pytest.mark.usefixtures("ray_cluster")]

SECRET = "the zyxomantic pass phrase of the northern vault is quagmirelle forever"
WORD = "zyxomantic"
FIELD = "text_en"

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


def _found_by_words(shell: Shell) -> int:
    """Count the passages of all segments on disk that hold a word that only the secret has."""
    terms = analyze(FIELD, f"{WORD} quagmirelle")
    found = 0
    for folder in (shell.root / "segments").iterdir():
        with RawPostings(folder / "lucene") as postings:
            found += sum(len(postings.postings(FIELD, term)[0]) for term in terms)
    return found


def _gone(shell: Shell, item: str, revision: str) -> None:
    assert search_root(shell.root, [SECRET, SECRET[:40], WORD]) == ()
    assert _found_by_words(shell) == 0
    results = shell.json("search", WORD)["results"]
    assert item not in [result["knowledge_item_id"] for result in results]
    assert len(shell.json("search", "how to brew tea")["results"]) >= 1
    assert shell.json("verify")["passages"] == 2
    stone = tombstones(LocalStorage(shell.root), ItemId(item))
    assert [(s.revision_id, s.erased_at is not None) for s in stone] == [(revision, True)]


def test_an_erased_revision_is_in_no_file_and_no_answer(indexed: Shell) -> None:
    item, revision = _secret(indexed)
    assert search_root(indexed.root, [WORD]) != ()
    assert _found_by_words(indexed) == 2
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


async def _seen(knowledge: Knowledge, item: str) -> bool:
    """Say whether a search or an addressed read still shows an item."""
    answer = await knowledge.answer({"query": WORD}, OPERATOR)
    shown = any(result["knowledge_item_id"] == item for result in answer["results"])
    try:
        await knowledge.answer({"knowledge_item_id": item}, OPERATOR)
    except ResourceUnavailableError:
        return shown
    return True


async def _watch_it_go(config: Config, item: str) -> None:
    knowledge = open_local(config)
    withdrawn = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_step(step: str) -> None:
        if step == "withdrawn":
            loop.call_soon_threadsafe(withdrawn.set)

    try:
        assert await _seen(knowledge, item)
        chosen = Selection(ItemId(item))
        job = asyncio.to_thread(erase, config, chosen, "tester", on_step=on_step)
        running = asyncio.create_task(job)
        async with asyncio.timeout(60):
            await withdrawn.wait()
            while await _seen(knowledge, item):
                continue
        done = await running
        async with asyncio.timeout(60):
            while knowledge.generation() != done.generation:
                await knowledge.answer({"query": "tea"}, OPERATOR)
        answer = await knowledge.answer({"query": "how to brew tea"}, OPERATOR)
        assert answer["results"]
        assert not await _seen(knowledge, item)
    finally:
        await knowledge.close()


def test_who_has_the_store_open_stops_showing_it_at_once_and_moves_on(indexed: Shell) -> None:
    item, _ = _secret(indexed)
    asyncio.run(_watch_it_go(indexed.config, item))


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
    for _ in range(2):  # looking again finds it again
        with pytest.raises(ErasureError, match=r"note\.txt"):
            erase(indexed.config, chosen, "tester")
    assert tombstones(LocalStorage(indexed.root), ItemId(item))[0].erased_at is None
    note.unlink()
    erase(indexed.config, chosen, "tester")
    assert tombstones(LocalStorage(indexed.root), ItemId(item))[0].erased_at is not None


STEPS = 11


def test_an_interrupted_reindex_has_to_be_finished_first(indexed: Shell, tmp_path: Path) -> None:
    item, _ = _secret(indexed)
    (tmp_path / "texts" / "ink.md").write_text("# About ink\n\nhow to make blue ink\n", "utf-8")
    indexed.json("ingest", str(tmp_path / "texts"), "--base", "kb", "--publish", "--language", "en")
    store = open_store(indexed.root)
    moves = store.catalog.poll().next_generation_moves(2)
    assert len(moves) == 1
    store.writer.set_current(moves, 2)  # as a reindex does that is killed before its commit
    chosen = Selection(ItemId(item))
    with pytest.raises(ConflictError, match="octavo reindex"):
        erase(indexed.config, chosen, "tester")
    assert item not in [r["knowledge_item_id"] for r in indexed.json("search", WORD)["results"]]
    indexed.json("reindex")
    assert erase(indexed.config, chosen, "tester").findings == ()
    assert len(indexed.json("search", "blue ink", "--mode", "lexical")["results"]) == 1


def test_a_half_deleted_segment_of_no_generation_goes_and_a_needed_one_is_named(
    indexed: Shell,
) -> None:
    item, _ = _secret(indexed)
    segments = indexed.root / "segments"
    needed = next(path for path in segments.iterdir() if not path.name.startswith("."))
    half = segments / "g000000-s0000-half"
    shutil.copytree(needed, half)
    (half / "entries.arrow").unlink()
    done = erase(indexed.config, Selection(ItemId(item)), "tester")
    assert half.name in done.segments
    assert not half.exists()

    other = indexed.json("search", "tea", "--mode", "lexical")["results"][0]["knowledge_item_id"]
    needed = next(path for path in segments.iterdir() if not path.name.startswith("."))
    (needed / "entries.arrow").write_bytes(b"damaged")
    with pytest.raises(SegmentRefusedError, match="entries"):
        erase(indexed.config, Selection(ItemId(other)), "tester")


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param((2, 6, 9), id="three steps"),
        pytest.param(tuple(range(1, STEPS + 2)), id="every step", marks=pytest.mark.long),
    ],
)
def test_an_erasure_that_was_killed_at_any_step_is_finished_by_the_next(
    indexed: Shell, steps: tuple[int, ...]
) -> None:
    item, revision = _secret(indexed)
    repository = Path(__file__).resolve().parents[2]
    pristine = indexed.root.with_name("pristine")
    indexed.root.rename(pristine)
    for step in steps:
        _copy(pristine, indexed.root)
        words = [dump_config(indexed.config), item, str(step)]
        done = subprocess.run(
            [sys.executable, "-c", KILLED_AT, *words],
            cwd=repository,
            capture_output=True,
            check=False,
        )
        if step > STEPS:
            assert done.returncode == 0, done.stderr.decode()[-2000:]
            continue
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
        indexed.json("erase", item, "--all")
        _gone(indexed, item, revision)
        assert GenerationLog(LocalStorage(indexed.root)).numbers() == (1, 2)


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
