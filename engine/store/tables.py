"""One Delta table: staged files, and commits that are a compare-and-swap over its sequence.

The rule of the swap: one snapshot is loaded, its application transaction (the sequence) is what
the caller decided on, and the commit is made with that same `DeltaTable` object and no retry.
Committing by path, or with an object refreshed after the decision, would accept stale writers.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from engine.errors import (
    CommitUnknownError,
    ContentionError,
    StaleVersionError,
    StorageFullError,
    StoreError,
)
from engine.ids import ItemId, shard_of
from engine.store.columns import integers
from engine.store.log import BUCKET, CommitLog, DataFile, Follower, open_handle
from engine.store.parquet import write_parquet
from engine.store.storage import Storage, fsync_file, fsync_folder, write_fault

APP_ID = "octavo"
BUCKETS = 16
CHECKPOINT_COMMITS = 50
MAX_TRIES = 200
"""Tries of one commit before a writer gives up: far above what 20 writers need."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What a table is.

    Attributes:
        name: its folder.
        schema: its columns, without the partition column.
        sort_by: the columns its files are sorted by.
        bucket_by: the column whose hash names the partition, or None: not partitioned.
        text: the column whose bytes bound a row group, or None.
        coded: columns of few values.
    """

    name: str
    schema: pa.Schema
    sort_by: tuple[str, ...]
    bucket_by: str | None = None
    text: str | None = None
    coded: tuple[str, ...] = ()

    @property
    def partition_columns(self) -> list[str]:
        """Return the partition columns of the Delta table: one or none."""
        return [BUCKET] if self.bucket_by else []

    @property
    def delta_schema(self) -> Schema:
        """Return the Delta schema, the partition column first."""
        fields = [pa.field(name, pa.string(), nullable=False) for name in self.partition_columns]
        return Schema.from_arrow(pa.schema([*fields, *self.schema]))


def bucket_of(item: str) -> str:
    """Return the bucket of an item: a stable hash, `00`..`15`."""
    return f"{shard_of(ItemId(item), BUCKETS):02d}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version. It is spent by the first commit made with it.

    Attributes:
        version: the Delta version.
        sequence: how many swaps were made; what a commit's expectation is about.
    """

    version: int
    sequence: int
    handle: DeltaTable


@dataclass(frozen=True, slots=True)
class Staged:
    """Files that are written and durable but not yet part of the table."""

    files: tuple[DataFile, ...]
    rows: tuple[int, ...]


class Table:
    """One Delta table under a storage. Thread-safe; processes meet only in its log."""

    def __init__(self, storage: Storage, spec: TableSpec) -> None:
        """Name the table; nothing is read or made."""
        self.spec = spec
        self.storage = storage
        self.log = CommitLog(storage, spec.name)
        self._uri = storage.delta_uri(spec.name)
        self._spare: DeltaTable | None = None
        self._lock = threading.Lock()
        self.tidy_lock = threading.Lock()
        self.tidy_follower = Follower(self.log)

    def create(self) -> None:
        """Make the table unless it exists. Several processes may do so at once.

        Raises:
            StoreError: it cannot be made.
        """
        options = self.storage.storage_options
        try:
            if DeltaTable.is_deltatable(self._uri, options):
                return
            DeltaTable.create(
                self._uri,
                self.spec.delta_schema,
                mode="ignore",
                partition_by=self.spec.partition_columns,
                name=self.spec.name,
                configuration={"delta.checkpointInterval": str(CHECKPOINT_COMMITS)},
                storage_options=options,
            )
        except (DeltaError, OSError) as error:
            if not DeltaTable.is_deltatable(self._uri, options):
                raise write_fault(error, f"table {self.spec.name}") from error
        self._make_durable(0)

    def snapshot(self) -> Snapshot:
        """Load the newest version, for one decision and one commit.

        Raises:
            StoreError: the table is missing or cannot be read.
        """
        with self._lock:
            handle, self._spare = self._spare, None
        if handle is None:
            handle = open_handle(self._uri, self.storage.storage_options)
        else:
            try:
                handle.update_incremental()
            except (DeltaError, OSError) as error:
                raise StoreError(f"table {self.spec.name} cannot be read: {error}") from error
        return Snapshot(handle.version(), handle.transaction_version(APP_ID) or 0, handle)

    def release(self, snapshot: Snapshot) -> None:
        """Give back a snapshot that will not be committed with, so that its handle is reused."""
        with self._lock:
            self._spare = snapshot.handle

    def stage(self, rows: pa.Table) -> Staged:
        """Write rows to files, one per bucket, sorted: durable, but not yet part of the table.

        Args:
            rows: of the table's schema, at least one.

        Raises:
            ValueError: there are no rows.
            StorageFullError: no space; what was written is removed.
            StoreError: they cannot be written.
        """
        if not rows.num_rows:
            raise ValueError(f"no rows to stage for {self.spec.name}")
        files: list[DataFile] = []
        counts: list[int] = []
        try:
            for bucket, part in self._parts(rows):
                files.append(self._write(bucket, part))
                counts.append(part.num_rows)
        except (StoreError, StorageFullError):
            self.discard(Staged(tuple(files), tuple(counts)))
            raise
        return Staged(tuple(files), tuple(counts))

    def _parts(self, rows: pa.Table) -> Iterable[tuple[str | None, pa.Table]]:
        ordered = rows.sort_by([(name, "ascending") for name in self.spec.sort_by])
        if self.spec.bucket_by is None:
            return [(None, ordered)]
        places: dict[str, list[int]] = {}
        for row, key in enumerate(ordered[self.spec.bucket_by].to_pylist()):
            places.setdefault(bucket_of(str(key)), []).append(row)
        return ((bucket, ordered.take(_positions(places[bucket]))) for bucket in sorted(places))

    def _write(self, bucket: str | None, rows: pa.Table) -> DataFile:
        folder = f"{BUCKET}={bucket}/" if bucket is not None else ""
        path = f"{folder}part-{uuid.uuid4().hex}.parquet"
        local = self.local_path(path)
        size = write_parquet(local, rows, self.spec.text, self.spec.coded)
        return DataFile(path, bucket, size)

    def local_path(self, path: str) -> Path:
        """Return where a file of the table can be opened on this machine."""
        return self.storage.local_path(f"{self.storage.table_key(self.spec.name)}/{path}")

    def discard(self, staged: Staged) -> None:
        """Remove files that will not be committed."""
        for file in staged.files:
            self.storage.delete(f"{self.storage.table_key(self.spec.name)}/{file.path}")

    def commit(self, snapshot: Snapshot, staged: Staged) -> None:
        """Make staged files part of the table if nothing was committed since the snapshot.

        Raises:
            StaleVersionError: something was; nothing changed, the staged files are kept.
            StorageFullError: no space; nothing changed.
            StoreError: the commit was refused; nothing changed.
            CommitUnknownError: whether it took effect cannot be found out.
        """
        sequence = Transaction(APP_ID, snapshot.sequence + 1)
        properties = CommitProperties(app_transactions=[sequence], max_commit_retries=0)
        self._commit(snapshot, [*self._adds(staged, data_change=True)], properties, staged)

    def replace(
        self,
        snapshot: Snapshot,
        old: Sequence[DataFile],
        new: Staged,
        *,
        data_change: bool = False,
    ) -> None:
        """Put files in the place of others that hold the same state. The sequence stays.

        Args:
            snapshot: what was decided on.
            old: the files that leave the table.
            new: the files that come into it; none when nothing is left.
            data_change: whether rows are missing afterwards, for readers that follow changes.

        Raises:
            as `commit`; StaleVersionError says that something was committed in between.
        """
        now_ms = int(time.time() * 1000)
        removes = [
            RemoveAction(file.path, data_change, now_ms, file.size_bytes, _partition(file))
            for file in old
        ]
        actions: list[AddAction | RemoveAction] = [
            *self._adds(new, data_change=data_change),
            *removes,
        ]
        self._commit(snapshot, actions, CommitProperties(max_commit_retries=0), new)

    def _adds(self, staged: Staged, *, data_change: bool) -> Iterable[AddAction]:
        now_ms = int(time.time() * 1000)
        for file, rows in zip(staged.files, staged.rows, strict=True):
            stats = json.dumps({"numRecords": rows})
            yield AddAction(
                file.path, file.size_bytes, _partition(file), now_ms, data_change, stats
            )

    def _commit(
        self,
        snapshot: Snapshot,
        actions: list[AddAction | RemoveAction],
        properties: CommitProperties,
        staged: Staged,
    ) -> None:
        try:
            snapshot.handle.create_write_transaction(
                actions,
                mode="append",
                schema=self.spec.delta_schema,
                partition_by=self.spec.partition_columns,
                commit_properties=properties,
            )
        except (DeltaError, OSError) as error:
            self._settle(snapshot, staged, error)
        self._make_durable(snapshot.version + 1)
        self.release(snapshot)

    def _settle(self, snapshot: Snapshot, staged: Staged, error: DeltaError | OSError) -> None:
        """Find out what a failed commit did: return when it took effect, else say why not."""
        mine = {file.path for file in staged.files}
        try:
            version = snapshot.version + 1
            while commit := self.log.commit(version):
                if any(file.path in mine for file in (*commit.added, *commit.rewritten)):
                    logger.warning("commit done, its aftermath failed", extra={"fault": str(error)})
                    return
                version += 1
            # Commits may have been cleaned away behind a checkpoint: then the log cannot tell.
            unknown = self.log.checkpoint() >= version
        except StoreError:
            unknown = True
        if unknown:
            raise CommitUnknownError(
                f"whether a commit to {self.spec.name} took effect is not known: {error}"
            ) from error
        if version > snapshot.version + 1:
            self.release(snapshot)
            what = f"table {self.spec.name}"
            raise StaleVersionError(what, snapshot.version, version - 1) from error
        raise write_fault(error, f"table {self.spec.name}") from error

    def _make_durable(self, version: int) -> None:
        """Fsync the commit file that Delta Lake wrote: it only renames."""
        key = f"{self.storage.table_key(self.spec.name)}/_delta_log"
        folder = self.storage.local_path(key)
        try:
            fsync_file(folder / f"{version:020d}.json")
            fsync_folder(folder)
            if not version:  # Delta Lake has made the folders too
                for above in folder.parents[:3]:
                    fsync_folder(above)
        except OSError as error:
            raise CommitUnknownError(
                f"a commit to {self.spec.name} was made but may not survive a power cut: {error}"
            ) from error

    def append(self, rows: pa.Table) -> None:
        """Append rows whatever others append meanwhile.

        Raises:
            ContentionError: other writers won every try; nothing was written.
        """
        staged = self.stage(rows)
        for attempt in range(MAX_TRIES):
            try:
                self.commit(self.snapshot(), staged)
            except StaleVersionError:
                pause(attempt)
            except (StoreError, StorageFullError):
                self.discard(staged)
                raise
            else:
                return
        self.discard(staged)
        raise contention(self.spec.name)

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that loading reads no older commit files."""
        snapshot = self.snapshot()
        try:
            snapshot.handle.create_checkpoint()
        except (DeltaError, OSError) as error:
            raise write_fault(error, f"a checkpoint of {self.spec.name}") from error
        self.release(snapshot)


def _positions(rows: list[int]) -> Any:
    return integers(np.asarray(rows, np.int64))


def _partition(file: DataFile) -> dict[str, str | None]:
    return {} if file.bucket is None else {BUCKET: file.bucket}


def pause(attempt: int) -> None:
    """Wait a random while before the next try: up to 5 ms, doubling to 320 ms at most."""
    # Not for secrets: the dice only keep writers from colliding again.
    time.sleep(random.uniform(0.0, 0.005 * 2 ** min(attempt, 6)))


def contention(what: str) -> ContentionError:
    """Return the error of a writer whom others beat at every try."""
    return ContentionError(f"{MAX_TRIES} tries to commit to {what} lost to other writers: rerun")
