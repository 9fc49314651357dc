"""Opens and makes stores. A root that is missing, foreign or of another format is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from engine.errors import NotFoundError, StoreError
from engine.store.catalog import CatalogReader
from engine.store.layout import Tables, tables_of
from engine.store.revisions import Revisions
from engine.store.runtime import RuntimeSwitch
from engine.store.storage import LocalStorage, Storage
from engine.store.writer import StoreWriter

MARKER_KEY = "octavo.json"
STORE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Store:
    """One opened store: everything that reads and writes it.

    Attributes:
        storage: where it lies.
        tables: its Delta tables.
        catalog: follows its state.
        revisions: reads its texts.
        writer: changes it.
        runtime: its runtime switch.
    """

    storage: Storage
    tables: Tables
    catalog: CatalogReader
    revisions: Revisions
    writer: StoreWriter
    runtime: RuntimeSwitch


def open_store(root: str | Path) -> Store:
    """Open a store that exists.

    Raises:
        StoreError: the root is missing, holds something else, or a store of another format; the
            message says in one line what to do.
    """
    storage = LocalStorage(root)
    fault = _fault(storage)
    if fault is not None:
        raise StoreError(fault)
    return _bundle(storage)


def create_store(root: str | Path) -> Store:
    """Open a store, making it first when the root is missing or empty. Safe to race.

    Raises:
        StoreError: the root holds something else or cannot be written.
        StorageFullError: no space.
    """
    storage = LocalStorage(root)
    if storage.exists(MARKER_KEY):
        return open_store(root)
    if not _empty(storage):
        raise StoreError(_foreign(storage))
    for table in tables_of(storage).all():
        table.create()
    # The marker comes last: a root with it has all its tables.
    marker = json.dumps({"format": STORE_FORMAT}).encode("utf-8")
    storage.put_bytes_atomic(MARKER_KEY, marker)
    return open_store(root)


def _bundle(storage: Storage) -> Store:
    tables = tables_of(storage)
    return Store(
        storage=storage,
        tables=tables,
        catalog=CatalogReader(storage),
        revisions=Revisions(tables.revisions),
        writer=StoreWriter(storage),
        runtime=RuntimeSwitch(storage),
    )


def _fault(storage: LocalStorage) -> str | None:
    """Say in one line why a root is no store of ours, and what to do; None when it is one."""
    try:
        marker = json.loads(storage.read_bytes(MARKER_KEY))
    except NotFoundError:
        if _empty(storage):
            return f"there is no store at {storage.root}: make one with `octavo base create`"
        return _foreign(storage)
    except ValueError:
        return _foreign(storage)
    found = marker.get("format") if isinstance(marker, dict) else None
    if found != STORE_FORMAT:
        return (
            f"the store at {storage.root} has format {found}, this Octavo reads {STORE_FORMAT}: "
            "use the Octavo that made it"
        )
    return None


def _foreign(storage: LocalStorage) -> str:
    return f"{storage.root} holds something else than a store: choose an empty --root"


def _empty(storage: LocalStorage) -> bool:
    """Say whether a root holds nothing, or only what an interrupted creation has left."""
    left = ("store",)
    return all(name in left or name.startswith(f".{MARKER_KEY}.") for name in storage.list(""))
