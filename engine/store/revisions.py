"""Revisions: immutable texts, read by their address without scanning anything.

A bucket's files tell where a revision lies through their id columns, read once per immutable
file. A read then decodes exactly one row group of one file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from engine.errors import StoreError
from engine.ids import BaseId, ItemId, RevisionId
from engine.store.columns import integers
from engine.store.locator import FileIndex, Place
from engine.store.log import DataFile, Follower
from engine.store.parquet import ReadCounters, read_groups
from engine.store.tables import Table, bucket_of

_RELOADS = 8

RevisionKey = tuple[ItemId, RevisionId]


@dataclass(frozen=True, slots=True)
class Revision:
    """An immutable revision of an item.

    Attributes:
        item_id: the item.
        revision_id: unique within the item.
        base_id: the item's base.
        title: 1..500 characters.
        content: 1..5,000,000 characters, exactly as given.
        language: a language code, `und` when unknown.
        source_type: what kind of source it came from, such as `file`.
        source_ref: where in the source, such as a path.
        content_sha256: lower-case hexadecimal SHA-256 of the content's UTF-8 bytes.
        created_at: RFC 3339, UTC, seconds.
    """

    item_id: ItemId
    revision_id: RevisionId
    base_id: BaseId
    title: str
    content: str
    language: str
    source_type: str
    source_ref: str
    content_sha256: str
    created_at: str


@dataclass(frozen=True, slots=True)
class NewRevision:
    """A revision to be added. Ids that are None are derived from what it says.

    Attributes:
        base_id: the base the item belongs to, or will.
        title: 1..500 characters.
        content: 1..5,000,000 characters; kept exactly.
        language: a language code, `und` when unknown.
        source_type: what kind of source it came from, such as `file`.
        source_ref: where in the source; the item id is derived from it.
        item_id: the item, or None: derived from base and source_ref.
        revision_id: the revision, or None: derived from item, title, language, source, content.
    """

    base_id: BaseId
    title: str
    content: str
    language: str
    source_type: str
    source_ref: str
    item_id: ItemId | None = None
    revision_id: RevisionId | None = None


_BASE_COLUMNS = ("item_id", "base_id")
_FIELDS = tuple(Revision.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Identity:
    """What an existing revision is, as far as immutability goes."""

    base_id: BaseId
    derived_id: str


class Revisions:
    """Reads the `revisions` table. Thread-safe.

    Attributes:
        counters: what was read of row groups with their texts so far.
        id_counters: what was read of id columns and other short columns so far.
    """

    def __init__(self, table: Table) -> None:
        """Take the table; nothing is read before the first call."""
        self._table = table
        self._follower = Follower(table.log)
        self._buckets: dict[str | None, dict[str, DataFile]] = {}
        self._indexes: dict[str, FileIndex] = {}
        self._lock = threading.RLock()
        self.id_counters = ReadCounters()
        self.counters = ReadCounters()

    def read(self, item: ItemId, revision: RevisionId) -> Revision | None:
        """Return a revision by its address, or None when there is none.

        One row group of one file is decoded; of the item's bucket the id columns, once a file.

        Raises:
            StoreError: the table cannot be read.
        """
        found = self._read_known(item, revision) if self._follower.version >= 0 else None
        if found is not None:
            return found
        self.refresh()
        return self._read_known(item, revision)

    def _read_known(self, item: ItemId, revision: RevisionId) -> Revision | None:
        key = (item, revision)
        for _ in range(_RELOADS):
            try:
                for _, place in self._candidates(bucket_of(item), [key]):
                    _, rows = next(self._rows(place.file, [place.group], _FIELDS))
                    found = Revision(**rows.slice(place.row, 1).to_pylist()[0])
                    if (found.item_id, found.revision_id) == key:
                        return found
            except FileNotFoundError:
                self._reload()
            else:
                return None
        raise _vanishing()

    def exists(self, item: ItemId, revision: RevisionId) -> bool:
        """Say whether a revision exists, without reading its text."""
        key = (item, revision)
        return key in self.identities([key])

    def scan(
        self, keys: Iterable[RevisionKey], columns: Sequence[str] = _FIELDS
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some revisions, in bounded memory: a row group at a time.

        Args:
            keys: (item, revision) pairs; those that do not exist yield nothing.
            columns: names of `Revision` fields; `item_id` and `revision_id` are added.

        Returns:
            Batches with at least one row, by bucket and file; no order within the whole.

        Raises:
            StoreError: the table cannot be read.
        """
        wanted = tuple(dict.fromkeys(("item_id", "revision_id", *columns)))
        buckets: dict[str, list[RevisionKey]] = {}
        for key in dict.fromkeys(keys):
            buckets.setdefault(bucket_of(key[0]), []).append(key)
        self.refresh()
        for bucket in sorted(buckets):
            yield from self._scan_bucket(bucket, buckets[bucket], wanted)

    def _scan_bucket(
        self, bucket: str, keys: Sequence[RevisionKey], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        waiting = dict.fromkeys(keys)
        for _ in range(_RELOADS):
            try:
                places = self._candidates(bucket, list(waiting))
                for file, groups in _by_group(places).items():
                    for group, rows in self._rows(file, sorted(groups), columns):
                        found = _confirmed(rows, groups[group])
                        if found:
                            yield from rows.take(_positions(found.values())).to_batches()
                        for key in found:
                            waiting.pop(key, None)
            except FileNotFoundError:
                self._reload()
            else:
                return
        raise _vanishing()

    def identities(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Identity]:
        """Return what the existing ones of some revisions are. For the writer's checks."""
        buckets: dict[str, list[RevisionKey]] = {}
        for key in keys:
            buckets.setdefault(bucket_of(key[0]), []).append(key)
        found: dict[RevisionKey, Identity] = {}
        columns = ("item_id", "revision_id", "base_id", "derived_id")
        for bucket in sorted(buckets):
            for batch in self._scan_bucket(bucket, buckets[bucket], columns):
                for item, revision, base, derived in _rows_of(batch, columns):
                    key = (ItemId(item), RevisionId(revision))
                    found[key] = Identity(BaseId(base), derived)
        return found

    def bases_of(self, items: Sequence[ItemId]) -> dict[ItemId, BaseId]:
        """Return the base of each item that has a revision, from the revisions themselves."""
        bases: dict[ItemId, BaseId] = {}
        for item in dict.fromkeys(items):
            base = self._base_of(item)
            if base is not None:
                bases[item] = base
        return bases

    def _base_of(self, item: ItemId) -> BaseId | None:
        for _ in range(_RELOADS):
            try:
                for index in self._bucket_indexes(bucket_of(item)):
                    for group in index.groups_of(item):
                        _, rows = next(self._rows(index.file, [group], _BASE_COLUMNS))
                        for held, base in _rows_of(rows, _BASE_COLUMNS):
                            if held == item:
                                return BaseId(base)
            except FileNotFoundError:
                self._reload()
            else:
                return None
        raise _vanishing()

    def refresh(self, to: int | None = None) -> None:
        """Follow the table to its newest version, or at least to a version."""
        with self._lock:
            before = self._follower.version
            self._follower.advance(to)
            if self._follower.version == before:
                return
            live = self._follower.files
            self._buckets = {}
            for file in live.values():
                self._buckets.setdefault(file.bucket, {})[file.path] = file
            self._indexes = {p: index for p, index in self._indexes.items() if p in live}

    def _reload(self) -> None:
        with self._lock:
            self._follower.version = -1
            self.refresh()

    def _candidates(
        self, bucket: str, keys: Sequence[RevisionKey]
    ) -> list[tuple[RevisionKey, Place]]:
        """Return the rows of a bucket that may be of some keys.

        Raises:
            FileNotFoundError: a file was removed by a vacuum: reload.
        """
        indexes = self._bucket_indexes(bucket)
        return [candidate for index in indexes for candidate in index.find(keys)]

    def _bucket_indexes(self, bucket: str) -> list[FileIndex]:
        with self._lock:
            files = list(self._buckets.get(bucket, {}).values())
        return [self._index(file) for file in files]

    def _index(self, file: DataFile) -> FileIndex:
        index = self._indexes.get(file.path)
        if index is None:
            path = self._table.local_path(file.path)
            index = FileIndex.read(file, path, self.id_counters)
            with self._lock:
                self._indexes[file.path] = index
        return index

    def _rows(
        self, file: DataFile, groups: Sequence[int], columns: Sequence[str]
    ) -> Iterator[tuple[int, pa.Table]]:
        text = "content" in columns
        counters = self.counters if text else self.id_counters
        path = self._table.local_path(file.path)
        return read_groups(path, counters, groups, columns, self._index(file).metadata)


def _by_group(
    places: Iterable[tuple[RevisionKey, Place]],
) -> dict[DataFile, dict[int, list[tuple[RevisionKey, int]]]]:
    files: dict[DataFile, dict[int, list[tuple[RevisionKey, int]]]] = {}
    for key, place in places:
        files.setdefault(place.file, {}).setdefault(place.group, []).append((key, place.row))
    return files


def _confirmed(
    rows: pa.Table, candidates: Sequence[tuple[RevisionKey, int]]
) -> dict[RevisionKey, int]:
    """Return the candidates whose row has their ids, with its position."""
    positions = _positions(row for _, row in candidates)
    ids = rows.select(["item_id", "revision_id"]).take(positions)
    held = _rows_of(ids, ("item_id", "revision_id"))
    pairs = zip(candidates, held, strict=True)
    return {key: row for (key, row), found in pairs if key == found}


def _rows_of(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)


def _positions(rows: Iterable[int]) -> Any:
    return integers(np.fromiter(rows, np.int64))


def _vanishing() -> StoreError:
    return StoreError("files of the revisions vanish as they are read: is a vacuum running?")
