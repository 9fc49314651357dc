"""Decide on one snapshot of a table, commit with it, decide again when others came first."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from engine.errors import StaleVersionError, StorageFullError, StoreError
from engine.store.catalog import Catalog, CatalogFolder
from engine.store.layout import Tables
from engine.store.tables import MAX_TRIES, Snapshot, Staged, Table, contention, pause

OnStep = Callable[[str], None]
"""Told `<table> staged` and `<table> committed` as a mutation proceeds."""


def ignore_step(_: str) -> None:
    """Do nothing at a step."""


class Swapper:
    """The write side of the state tables: one mutation at a time in this object.

    Attributes:
        lock: held by whoever mutates; re-entrant.
    """

    def __init__(self, tables: Tables, folder: CatalogFolder, on_step: OnStep) -> None:
        """Take the tables and the folder that follows them, which nobody else may use."""
        self.lock = threading.RLock()
        self.tables = tables
        self._folder = folder
        self._on_step = on_step

    def catalog(self) -> Catalog:
        """Return the newest view."""
        with self.lock:
            return self._folder.advance()

    def swap[T](self, table: Table, decide: Callable[[Catalog], tuple[pa.Table | None, T]]) -> T:
        """Append the rows that `decide` derives from the table's newest state.

        Args:
            table: one of the state tables.
            decide: called with a view in which `table` is exactly at the snapshot that will be
                committed with; again after every lost race. It returns rows (None: none) and a
                result. What it raises is raised here, and nothing was written.

        Raises:
            ContentionError: other writers won every try; nothing was written.
            StorageFullError, StoreError: nothing was written.
            CommitUnknownError: whether the rows were written is not known.
        """
        with self.lock:
            for attempt in range(MAX_TRIES):
                snapshot = table.snapshot()
                catalog = self._folder.advance(table.spec.name, snapshot.version)
                rows, result = decide(catalog)
                if rows is None or not rows.num_rows:
                    table.release(snapshot)
                    return result
                if self.try_commit(table, snapshot, table.stage(rows)):
                    return result
                pause(attempt)
            raise contention(table.spec.name)

    def try_commit(self, table: Table, snapshot: Snapshot, staged: Staged) -> bool:
        """Commit staged files; return False, with the files discarded, when others came first."""
        name = table.spec.name
        self._on_step(f"{name} staged")
        try:
            table.commit(snapshot, staged)
        except StaleVersionError:
            table.discard(staged)
            return False
        except (StorageFullError, StoreError):
            table.discard(staged)
            raise
        self._on_step(f"{name} committed")
        return True
