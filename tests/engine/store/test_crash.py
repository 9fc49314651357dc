"""A writer killed at any instant leaves the old or the new state, and a rerun completes it."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.store.opening import Store, create_store
from tests.engine.store import workers
from tests.engine.store.samples import KB, raw_rows

STEPS = (
    "revisions staged",
    "revisions committed",
    "items staged",
    "items committed",
    "publications staged",
    "publications committed",
)


def assert_whole(store: Store, count: int) -> None:
    """Everything is there exactly once: texts, items, publications."""
    revisions = Counter(r["item_id"] for r in raw_rows(store.tables.revisions))
    publications = Counter(r["item_id"] for r in raw_rows(store.tables.publications))
    assert (len(revisions), set(revisions.values())) == (count, {1})
    assert publications == revisions
    catalog = store.catalog.poll()
    assert catalog.item_count == count
    for state in catalog.items():
        assert (state.status, state.version) == ("published", 2)
        assert catalog.readable_pin(state.item_id, state.head_revision)


@pytest.mark.slow
def test_a_rerun_completes_what_a_killed_writer_left(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    children = []
    for step in STEPS:
        root = tmp_path / step.replace(" ", "-")
        store = create_store(root)
        store.writer.create_base(KB, "Knowledge", "alice", None, "public")
        child = context.Process(target=workers.die_at, args=(str(root), step), daemon=True)
        child.start()
        children.append((store, child, step))
    rows = workers.crash_rows()
    for store, child, step in children:
        child.join()
        assert child.exitcode == -signal.SIGKILL
        # Old or new, table by table: never a part of the batch.
        assert len(raw_rows(store.tables.revisions)) == (0 if step == STEPS[0] else len(rows))
        assert store.catalog.poll().item_count == (len(rows) if step in STEPS[3:] else 0)
        report = store.writer.add_revisions(rows, publish=True)
        assert report.refused == ()
        assert report.added + report.updated + report.unchanged == len(rows)
        assert_whole(store, len(rows))


@pytest.mark.slow
def test_a_writer_killed_at_no_chosen_point_loses_and_doubles_nothing(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(
        target=workers.write_until_killed, args=(store.storage.root, theirs), daemon=True
    )
    child.start()
    told = [ours.recv() for _ in range(3)]
    child.kill()
    child.join()
    assert told == [0, 1, 2]
    before = len(raw_rows(store.tables.revisions))
    assert before >= 15
    assert before % 5 == 0
    batches = max(4, before // 5)
    for number in range(batches):
        assert store.writer.add_revisions(workers.endless_rows(number), publish=True).refused == ()
    assert_whole(store, batches * 5)
