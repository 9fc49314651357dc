"""The compare-and-swap of one table, its trap included, and what a failed commit is called."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from engine.errors import StaleVersionError, StorageFullError
from engine.store.layout import BASES
from engine.store.log import Follower
from engine.store.opening import Store
from engine.store.states import BASES_SCHEMA
from engine.store.storage import LocalStorage
from engine.store.tables import CHECKPOINT_COMMITS, Table
from tests.engine.store import workers
from tests.engine.store.samples import new, raw_rows


def base_rows(name: str) -> pa.Table:
    return workers.base_rows(name)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(LocalStorage(tmp_path), BASES)
    made.create()
    return made


def test_a_commit_counts_the_sequence_and_only_adds_its_rows(table: Table) -> None:
    snapshot = table.snapshot()
    table.commit(snapshot, table.stage(base_rows("a")))
    after = table.snapshot()
    assert (snapshot.sequence, after.sequence, after.version) == (0, 1, 1)
    assert [row["base_id"] for row in raw_rows(table)] == ["a"]


def test_a_snapshot_that_others_committed_after_is_stale(table: Table) -> None:
    mine, theirs = table.snapshot(), table.snapshot()
    table.commit(theirs, table.stage(base_rows("theirs")))
    staged = table.stage(base_rows("mine"))
    with pytest.raises(StaleVersionError):
        table.commit(mine, staged)
    assert [row["base_id"] for row in raw_rows(table)] == ["theirs"]


def test_staged_files_are_invisible_until_committed_and_gone_when_discarded(table: Table) -> None:
    staged = table.stage(base_rows("a"))
    assert raw_rows(table) == []
    table.discard(staged)
    assert not table.local_path(staged.files[0].path).exists()


@pytest.mark.slow
def test_a_stale_writer_that_arrives_late_from_another_process_is_refused(table: Table) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    late = context.Process(
        target=workers.commit_late, args=(table.storage.root, theirs), daemon=True
    )
    late.start()
    assert ours.recv() == "loaded"
    for name in ("a", "b", "c"):
        table.append(base_rows(name))
    ours.send("go")
    assert ours.recv() == "StaleVersionError"
    late.join()
    assert sorted(row["base_id"] for row in raw_rows(table)) == ["a", "b", "c"]
    assert table.snapshot().sequence == 3


def test_checkpoints_keep_the_log_that_a_load_reads_short(table: Table) -> None:
    for number in range(CHECKPOINT_COMMITS + 2):
        table.append(base_rows(f"b{number}"))
    assert CHECKPOINT_COMMITS - 1 <= table.log.checkpoint() <= CHECKPOINT_COMMITS
    handle = DeltaTable(table.storage.delta_uri("bases"))
    assert handle.transaction_version("octavo") == CHECKPOINT_COMMITS + 2
    table.checkpoint()
    assert table.log.checkpoint() == CHECKPOINT_COMMITS + 2


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Let the operating system refuse longer files: a full disk, as far as a writer can see."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_fills_up_under_the_data_leaves_the_old_state(store: Store) -> None:
    letters = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(100_000))
    with largest_file(20_000), pytest.raises(StorageFullError, match="free some space"):
        store.writer.add_revisions([new(letters)], publish=True)
    assert raw_rows(store.tables.revisions) == []
    assert store.storage.list("store/revisions") in (("_delta_log",), _folders(store))
    assert store.writer.add_revisions([new(letters)], publish=True).added == 1


def _folders(store: Store) -> tuple[str, ...]:
    """The folders of the table, all empty but the log."""
    names = store.storage.list("store/revisions")
    assert all(not store.storage.list(f"store/revisions/{n}") for n in names if "bucket" in n)
    return names


def test_a_disk_that_fills_up_under_the_commit_leaves_the_old_state(table: Table) -> None:
    staged = table.stage(base_rows("a"))
    with largest_file(100), pytest.raises(StorageFullError, match="table bases"):
        table.commit(table.snapshot(), staged)
    assert raw_rows(table) == []
    table.commit(table.snapshot(), staged)
    assert [row["base_id"] for row in raw_rows(table)] == ["a"]


def test_rows_are_taken_as_their_schema_says(table: Table) -> None:
    table.append(base_rows("a"))
    held = pa.Table.from_pylist(raw_rows(table), schema=BASES_SCHEMA)
    assert held.equals(base_rows("a"))


def test_a_follower_catches_up_over_commits_that_were_cleaned_away(table: Table) -> None:
    table.append(base_rows("a"))
    follower = Follower(table.log)
    assert len(follower.advance().added) == 1
    for name in ("b", "c"):
        table.append(base_rows(name))
    table.checkpoint()
    log = table.storage.local_path("store/bases/_delta_log")
    for version in (1, 2, 3):
        (log / f"{version:020d}.json").unlink()
    advance = follower.advance()
    assert (advance.reset, len(advance.added), follower.version) == (True, 3, 3)
