"""What the other processes of the tests do. Imported by spawned children."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

from engine.errors import EngineError, StaleVersionError
from engine.ids import BaseId, ItemId, RevisionId
from engine.store.compaction import compact
from engine.store.layout import BASES
from engine.store.opening import create_store, open_store
from engine.store.states import BASES_SCHEMA, BaseState, rows_of
from engine.store.storage import LocalStorage
from engine.store.tables import Table
from engine.store.writer import StoreWriter
from tests.engine.store.samples import KB, new


def base_rows(name: str) -> pa.Table:
    state = BaseState(BaseId(name), 1, "T", "o", None, "public", "active", "2026-01-01T00:00:00Z")
    return rows_of([state], BASES_SCHEMA)


def commit_late(root: str, parent: Connection) -> None:
    """Load a snapshot, wait until others have committed, then commit with it."""
    table = Table(LocalStorage(root), BASES)
    snapshot = table.snapshot()
    staged = table.stage(base_rows("late"))
    parent.send("loaded")
    parent.recv()
    try:
        table.commit(snapshot, staged)
    except EngineError as error:
        parent.send(type(error).__name__)
    else:
        parent.send("committed")


def write_together(root: str, names: list[str], start: Any, parent: Connection) -> None:
    """Be several writers at once, each with its own store object, and tell what each did."""
    told: dict[str, dict[str, Any]] = {}
    threads = [threading.Thread(target=_write, args=(root, n, start, told)) for n in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    parent.send(told)


def _write(root: str, name: str, start: Any, told: dict[str, dict[str, Any]]) -> None:
    writer = open_store(root).writer
    shared = ItemId("shared")
    start.wait()
    own = writer.add_revisions([new(f"text of {name}", ref=name)], publish=True)
    contested = writer.add_revisions([new(f"by {name}", item="contested", revision="r")])
    told[name] = {
        "added": own.added,
        "contested": contested.added,
        "refused": [reason for _, reason in contested.refused],
        "published": _expecting(lambda: writer.publish([shared], RevisionId("r"), 1)),
        "titles": _set_title(writer, name),
    }


def _expecting(call: Any) -> str:
    try:
        call()
    except StaleVersionError:
        return "stale"
    return "landed"


def _set_title(writer: StoreWriter, name: str) -> int:
    """Set the base's title, expecting the version just read, until it lands; count losses."""
    lost = 0
    while True:
        base = writer.catalog().base(KB)
        assert base is not None
        try:
            writer.set_base(KB, base.version, title=f"by {name}")
        except StaleVersionError:
            lost += 1
        else:
            return lost


def die_at(root: str, step: str) -> None:
    """Add and publish a batch, and be killed right after a step."""

    def on_step(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    StoreWriter(LocalStorage(root), on_step=on_step).add_revisions(crash_rows(), publish=True)


def crash_rows() -> list[Any]:
    return [new(f"text {number}", ref=f"r{number}") for number in range(40)]


def write_until_killed(root: str, parent: Connection) -> None:
    """Add small batches for ever, telling after each."""
    writer = open_store(root).writer
    number = 0
    while True:
        writer.add_revisions(endless_rows(number), publish=True)
        parent.send(number)
        number += 1


def endless_rows(number: int) -> list[Any]:
    return [new(f"text {number} {n}", ref=f"b{number}/{n}") for n in range(5)]


def use_everything(root: str) -> None:
    """Make a store, write, fold, compact, read."""
    store = create_store(root)
    store.writer.create_base(KB, "Knowledge", "alice", None, "public")
    keys = store.writer.add_revisions(crash_rows(), publish=True).keys
    key = keys[0]
    assert key is not None
    store.writer.set_current([key], 1)
    store.writer.withdraw(*key)
    for table in store.tables.all():
        compact(table)
    assert open_store(root).catalog.poll().item_count == len(keys)
    assert open_store(root).revisions.read(*key) is not None
