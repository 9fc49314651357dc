"""Twenty writers in four processes: everything lands once, or its writer is told."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from typing import Any

import pytest

from engine.ids import ItemId, RevisionId
from engine.store.additions import SAME_ID
from engine.store.opening import Store
from tests.engine.store import workers
from tests.engine.store.samples import KB, add_one, new, raw_rows

PROCESSES, WRITERS = 4, 5


def run_writers(root: str) -> dict[str, dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(PROCESSES * WRITERS)
    told: dict[str, dict[str, Any]] = {}
    children = []
    for process in range(PROCESSES):
        ours, theirs = context.Pipe(duplex=False)
        names = [f"w{process}.{number}" for number in range(WRITERS)]
        args = (root, names, start, theirs)
        child = context.Process(target=workers.write_together, args=args, daemon=True)
        child.start()
        children.append((child, ours))
    for child, ours in children:
        told |= ours.recv()
        child.join()
    return told


@pytest.mark.slow
def test_twenty_writers_lose_nothing_and_double_nothing(store: Store) -> None:
    add_one(store, new("shared", item="shared", revision="r"))
    told = run_writers(store.storage.root)
    assert len(told) == PROCESSES * WRITERS
    catalog = store.catalog.poll()

    # Unconditional additions all landed, once.
    assert {row["added"] for row in told.values()} == {1}
    keys = Counter((r["item_id"], r["revision_id"]) for r in raw_rows(store.tables.revisions))
    assert set(keys.values()) == {1}
    assert len(keys) == 20 + 2
    assert catalog.item_count == 20 + 2
    publications = Counter(
        (row["item_id"], row["revision_id"]) for row in raw_rows(store.tables.publications)
    )
    assert set(publications.values()) == {1}
    assert len(publications) == 20 + 1

    # One revision id, twenty texts: one writer made it, the others were refused.
    assert sum(row["contested"] for row in told.values()) == 1
    winner = next(name for name, row in told.items() if row["contested"])
    assert [row["refused"] for name, row in told.items() if name != winner] == [[SAME_ID]] * 19
    contested = store.revisions.read(ItemId("contested"), RevisionId("r"))
    assert contested is not None
    assert contested.content == f"by {winner}"

    # One expected version of an item: one landed, nineteen were told.
    assert Counter(row["published"] for row in told.values()) == {"landed": 1, "stale": 19}
    shared = catalog.item(ItemId("shared"))
    assert shared is not None
    assert shared.version == 2

    # Every title was set on the very version its writer had read: no update was lost.
    base = catalog.base(KB)
    assert base is not None
    assert base.version == 1 + 20
    versions = sorted(row["version"] for row in raw_rows(store.tables.bases))
    assert versions == list(range(1, 22))
    assert {row["title"] for row in raw_rows(store.tables.bases)} == {
        "Knowledge",
        *(f"by {name}" for name in told),
    }
