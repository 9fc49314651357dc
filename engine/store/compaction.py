"""Keeps tables quick: many small files become few, old files are vacuumed. State never changes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from deltalake.exceptions import DeltaError

from engine.errors import EngineError, StaleVersionError, StorageFullError, StoreError
from engine.store.fold import fold_items
from engine.store.log import DataFile, Follower
from engine.store.parquet import ReadCounters, read_groups
from engine.store.storage import write_fault
from engine.store.tables import MAX_TRIES, Staged, Table, pause

TARGET_BYTES = 32 << 20
"""Compressed size up to which files are joined: what a compaction holds in memory, unpacked."""
TIDY_FILES = 48
"""Small files of one bucket after which a writer joins them by itself."""
RETENTION_HOURS = 168
MIN_RETENTION_HOURS = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Compaction:
    """How many files a compaction replaced, and by how many."""

    removed: int
    added: int


def compact(table: Table, at_least: int = 2) -> Compaction:
    """Join the small files of each bucket, sorted anew; superseded item rows are dropped.

    Addresses stay valid: readers find a row wherever it lies. The removed files stay on disk until
    a vacuum.

    Args:
        table: the table.
        at_least: small files that a bucket must have to be touched.

    Raises:
        StorageFullError, StoreError, CommitUnknownError: nothing was lost.
    """
    follower = Follower(table.log)
    follower.advance()
    removed = added = 0
    for files in bundles(tuple(follower.files.values()), at_least):
        staged = _joined(table, files)
        if staged is not None and _replace(table, follower, files, staged):
            removed += len(files)
            added += len(staged.files)
    return Compaction(removed, added)


def bundles(files: Sequence[DataFile], at_least: int) -> list[list[DataFile]]:
    """Return, per bucket, the smallest files that together stay within `TARGET_BYTES`."""
    buckets: dict[str | None, list[DataFile]] = {}
    held: Counter[str | None] = Counter()
    for file in sorted(files, key=lambda file: (file.size_bytes, file.path)):
        if held[file.bucket] + file.size_bytes <= TARGET_BYTES:
            held[file.bucket] += file.size_bytes
            buckets.setdefault(file.bucket, []).append(file)
    return [bundle for bundle in buckets.values() if len(bundle) >= max(2, at_least)]


def _joined(table: Table, files: Sequence[DataFile]) -> Staged | None:
    """Stage the rows of some files as one; None when one of them vanished meanwhile."""
    counters = ReadCounters()
    names = table.spec.schema.names
    try:
        parts = [
            rows.cast(table.spec.schema)
            for file in files
            for _, rows in read_groups(table.local_path(file.path), counters, None, names)
        ]
    except FileNotFoundError:
        return None
    rows = pa.concat_tables(parts)
    return table.stage(_FOLDS.get(table.spec.name, _all)(rows))


def _all(rows: pa.Table) -> pa.Table:
    return rows


_FOLDS: dict[str, Callable[[pa.Table], pa.Table]] = {"items": fold_items}


def _replace(table: Table, follower: Follower, files: Sequence[DataFile], staged: Staged) -> bool:
    """Commit a replacement as long as what it replaces is still there."""
    try:
        for attempt in range(MAX_TRIES):
            snapshot = table.snapshot()
            follower.advance(snapshot.version)
            if any(file.path not in follower.files for file in files):
                table.release(snapshot)
                break
            try:
                table.replace(snapshot, files, staged)
            except StaleVersionError:
                pause(attempt)
            else:
                return True
    except (StorageFullError, StoreError):
        table.discard(staged)
        raise
    table.discard(staged)
    return False


def tidy(table: Table) -> None:
    """Compact a table when it has grown many small files. A failure is logged: nothing is lost."""
    follower = table.tidy_follower
    try:
        with table.tidy_lock:
            follower.advance()
            crowded = bool(bundles(tuple(follower.files.values()), TIDY_FILES))
        if crowded:
            compact(table, TIDY_FILES)
    except EngineError as error:
        logger.warning("compaction put off", extra={"table": table.spec.name, "fault": str(error)})


def vacuum(table: Table, retention_hours: int = RETENTION_HOURS) -> tuple[str, ...]:
    """Delete files that no reader of the last hours can need: replaced ones, and torn writes.

    Args:
        table: the table.
        retention_hours: how long a replaced or uncommitted file is kept, at least 1.

    Returns:
        The paths that were deleted.

    Raises:
        StoreError: the table cannot be read, or files not deleted.
    """
    if retention_hours < MIN_RETENTION_HOURS:
        raise ValueError(f"retention must be at least {MIN_RETENTION_HOURS} h")
    snapshot = table.snapshot()
    try:
        deleted = snapshot.handle.vacuum(
            retention_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
    except (DeltaError, OSError) as error:
        raise write_fault(error, f"table {table.spec.name}") from error
    return tuple(deleted)
