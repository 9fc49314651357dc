"""The catalog: what is published, current, withdrawn and readable, folded from the state tables.

A `Catalog` is one immutable view. A `CatalogReader` follows the tables and hands out the newest.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from engine.errors import StoreError
from engine.ids import BaseId, ItemId, RevisionId
from engine.store.columns import table_of
from engine.store.fold import ItemFold, PublicationFold
from engine.store.log import Advance, CommitLog, DataFile, Follower
from engine.store.parquet import ReadCounters, read_groups
from engine.store.states import (
    BASES_SCHEMA,
    ITEMS_SCHEMA,
    PUBLICATIONS_SCHEMA,
    BaseState,
    ItemState,
    Publication,
    base_of,
)
from engine.store.storage import Storage

__all__ = ["BaseState", "Catalog", "CatalogFolder", "CatalogReader", "ItemState", "Publication"]

_JOURNAL_STEPS = 64
_RELOADS = 8


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of the view: from which version, and the items it touched (None: any)."""

    before: str
    items: frozenset[ItemId] | None


@dataclass(frozen=True, slots=True)
class Catalog:
    """One immutable view of the state of bases, items and publications.

    Attributes:
        version: names the Delta versions it was folded from; equal text, equal state.
    """

    version: str
    _bases: Mapping[BaseId, BaseState]
    _items: ItemFold
    _publications: PublicationFold
    _journal: tuple[_Step, ...]

    def base(self, base: BaseId) -> BaseState | None:
        """Return a base's newest state, or None when there is no such base."""
        return self._bases.get(base)

    def bases(self) -> tuple[BaseState, ...]:
        """Return every base's newest state, by id."""
        return tuple(self._bases[base] for base in sorted(self._bases))

    def item(self, item: ItemId) -> ItemState | None:
        """Return an item's newest state, or None when there is no such item."""
        return self._items.newest(item)

    def items(self) -> Iterator[ItemState]:
        """Yield every item's newest state, in no particular order."""
        return self._items.states()

    @property
    def item_count(self) -> int:
        """Return how many items there are, of any status."""
        return len(self._items)

    def publication(self, item: ItemId, revision: RevisionId) -> Publication | None:
        """Return a revision's first publication, or None when it never was public."""
        at = self._publications.published_at(item, revision)
        return None if at is None else Publication(item, revision, at)

    def publications(self) -> Iterator[Publication]:
        """Yield every first publication, in no particular order."""
        return self._publications.publications()

    def withdrawn(self, item: ItemId, revision: RevisionId) -> bool:
        """Say whether a revision was withdrawn. That is for ever."""
        return (item, revision) in self._publications.withdrawn

    def current_at(self, item: ItemId, generation: int) -> RevisionId | None:
        """Return the revision an item's rows make current at a generation, whatever its status."""
        standing = self._items.standing(item, generation)
        return None if standing is None else standing.current_revision

    def current_revision(self, item: ItemId, generation: int) -> RevisionId | None:
        """Return an item's live revision for a reader pinned to a generation.

        Returns:
            The revision, or None unless the item is published now, its base active now, and the
            revision that is current at that generation not withdrawn.
        """
        standing = self._items.standing(item, generation)
        if standing is None or standing.status != "published":
            return None
        base = self._bases.get(standing.base_id)
        revision = standing.current_revision
        if base is None or not base.active or revision is None or self.withdrawn(item, revision):
            return None
        return revision

    def readable_pin(self, item: ItemId, revision: RevisionId) -> bool:
        """Say whether a revision may be read by pinning it.

        Its item is published, its base active, and it has a publication and is not withdrawn.
        """
        state = self.item(item)
        if state is None or state.status != "published" or self.withdrawn(item, revision):
            return False
        base = self._bases.get(state.base_id)
        return bool(base and base.active) and self.publication(item, revision) is not None

    def changes_since(self, other: Catalog) -> frozenset[ItemId] | None:
        """Return the items whose liveness may differ from an earlier view of the same reader.

        Returns:
            The items, or None when that is not known or a base changed: recompute all.
        """
        if other.version == self.version:
            return frozenset()
        changed: set[ItemId] = set()
        for step in reversed(self._journal):
            if step.items is None:
                return None
            changed |= step.items
            if step.before == other.version:
                return frozenset(changed)
        return None

    def pending(self, generation: int) -> tuple[ItemState, ...]:
        """Return the published items whose desired revision is not current at a generation.

        Withdrawn revisions are not pending. Items of archived bases are: they are kept up to
        date, so that activating the base takes effect at once. Ordered by item id.
        """
        waiting = (
            state
            for state in self._items.states()
            if state.status == "published"
            and state.desired_revision is not None
            and self._current(state, generation) != state.desired_revision
            and not self.withdrawn(state.item_id, state.desired_revision)
        )
        return tuple(sorted(waiting, key=lambda state: state.item_id))

    def _current(self, state: ItemState, generation: int) -> RevisionId | None:
        """Return as `current_at`, without a look-up where the newest row decides."""
        if state.current_from <= generation:
            return state.current_revision
        return self.current_at(state.item_id, generation)

    def next_generation_moves(self, generation: int) -> tuple[tuple[ItemId, RevisionId], ...]:
        """Return what `StoreWriter.set_current` has to write before `generation` is committed.

        Each is an item and its desired revision, ordered by item id.
        """
        return tuple(
            (state.item_id, state.desired_revision)
            for state in self.pending(generation)
            if state.desired_revision is not None
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """New rows of one table, and whether they are all there is."""

    reset: bool
    rows: pa.Table


_SCHEMAS = {"bases": BASES_SCHEMA, "items": ITEMS_SCHEMA, "publications": PUBLICATIONS_SCHEMA}
_UNCHANGED = {name: _Change(False, table_of((), schema)) for name, schema in _SCHEMAS.items()}


class CatalogFolder:
    """Follows the three state tables and folds them. Not thread-safe: its owner locks."""

    def __init__(self, storage: Storage) -> None:
        """Start empty; the first `advance` loads the tables."""
        self._storage = storage
        self._counters = ReadCounters()
        self._followers = {name: Follower(CommitLog(storage, name)) for name in _SCHEMAS}
        self._catalog = Catalog(
            "",
            {},
            ItemFold(table_of((), ITEMS_SCHEMA)),
            PublicationFold(table_of((), PUBLICATIONS_SCHEMA)),
            (),
        )

    def advance(self, table: str | None = None, to: int | None = None) -> Catalog:
        """Follow all tables to their newest version, but `table` to version `to`.

        Returns:
            The view; the same object when nothing was committed.

        Raises:
            StoreError: a table cannot be read. The view stays what it was.
        """
        try:
            changes = {
                name: self._follow(name, to if name == table else None) for name in self._followers
            }
        except StoreError:
            # What some tables told already would be lost: load all of them next time.
            for follower in self._followers.values():
                follower.version = -1
            raise
        version = "".join(
            f"{name[0]}{follower.version}" for name, follower in self._followers.items()
        )
        if version != self._catalog.version:
            self._catalog = self._folded(version, changes)
        return self._catalog

    def _folded(self, version: str, changes: Mapping[str, _Change]) -> Catalog:
        old = self._catalog
        bases, items, publications = (changes[name] for name in self._followers)
        item_fold = ItemFold(items.rows) if items.reset else old._items.with_rows(items.rows)
        publication_fold = (
            PublicationFold(publications.rows)
            if publications.reset
            else old._publications.with_rows(publications.rows)
        )
        touched: frozenset[ItemId] | None = None
        if not (bases.rows.num_rows or any(change.reset for change in changes.values())):
            ids = (*items.rows["item_id"].to_pylist(), *publications.rows["item_id"].to_pylist())
            touched = frozenset(ItemId(str(item)) for item in ids)
        journal = (*old._journal, _Step(old.version, touched))[-_JOURNAL_STEPS:]
        known = {} if bases.reset else dict(old._bases)
        for row in bases.rows.sort_by("version").to_pylist():
            state = base_of(row)
            known[state.base_id] = state
        return Catalog(version, known, item_fold, publication_fold, journal)

    def _follow(self, name: str, to: int | None) -> _Change:
        follower = self._followers[name]
        for _ in range(_RELOADS):
            advance = follower.advance(to)
            if not advance.reset and not advance.added:
                return _UNCHANGED[name]
            try:
                return _Change(advance.reset, self._read(name, advance))
            except FileNotFoundError:
                # A vacuum removed a file that a compaction had replaced: load what is there now.
                follower.version = -1
        raise StoreError(f"files of table {name} vanish as they are read: is a vacuum running?")

    def _read(self, name: str, advance: Advance) -> pa.Table:
        schema = _SCHEMAS[name]
        parts = [part for file in advance.added for part in self._parts(name, file)]
        return pa.concat_tables(parts).cast(schema) if parts else table_of((), schema)

    def _parts(self, name: str, file: DataFile) -> Iterator[pa.Table]:
        path = self._storage.local_path(f"{self._storage.table_key(name)}/{file.path}")
        names = _SCHEMAS[name].names
        return (rows for _, rows in read_groups(path, self._counters, None, names))


class CatalogReader:
    """Hands out the newest catalog. Thread-safe."""

    def __init__(self, storage: Storage) -> None:
        """Name the store; nothing is read before the first `poll`."""
        self._folder = CatalogFolder(storage)
        self._lock = threading.Lock()
        self._confirmed_at = -math.inf

    def poll(self) -> Catalog:
        """Look for new commits (a few `stat` calls when there are none) and return the view.

        Returns:
            The newest view; the same object as before when nothing was committed.

        Raises:
            StoreError: a table cannot be read; `staleness` goes on growing.
        """
        with self._lock:
            asked_at = time.monotonic()
            catalog = self._folder.advance()
            self._confirmed_at = asked_at
            return catalog

    @property
    def confirmed_at(self) -> float:
        """Return the `time.monotonic` at which the last view was known to be the newest.

        Minus infinity before the first successful `poll`.
        """
        return self._confirmed_at

    @property
    def staleness(self) -> float:
        """Return the seconds since `confirmed_at`: how old the last view may be."""
        return time.monotonic() - self._confirmed_at
