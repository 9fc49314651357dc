"""Takes revisions out of the `revisions` table and out of every file that ever held them.

Unlike a vacuum this looks into files: one that holds an erased revision goes at once, whatever its
age. Reading an older version of the table then fails; it never gives the text back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import StaleVersionError, StorageFullError, StoreError
from engine.ids import ItemId, RevisionId
from engine.store.columns import integers
from engine.store.log import BUCKET, DataFile, Follower
from engine.store.revisions import RevisionKey
from engine.store.storage import fsync_folder
from engine.store.tables import MAX_TRIES, Staged, Table, bucket_of, contention, pause

TORN_AFTER_S = 3600.0
"""Age after which an unreadable file outside the table is no write in progress: a vacuum's least
retention."""

_IDS = ["item_id", "revision_id"]


def keys_in(path: Path) -> list[RevisionKey]:
    """Return the revisions of a Parquet file of the table, by row.

    Raises:
        FileNotFoundError: it is gone.
        StoreError: it cannot be read.
    """
    try:
        rows = pq.read_table(path, columns=_IDS, partitioning=None)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    pairs = zip(*(rows[name].to_pylist() for name in _IDS), strict=True)
    return [(ItemId(item), RevisionId(revision)) for item, revision in pairs]


def revisions_of(table: Table, item: ItemId) -> tuple[RevisionId, ...]:
    """Return the stored revisions of an item, sorted."""
    follower = Follower(table.log)
    follower.advance()
    bucket = bucket_of(item)
    files = [file for file in follower.files.values() if file.bucket == bucket]
    held = (key for file in files for key in keys_in(table.local_path(file.path)))
    return tuple(sorted({revision for owner, revision in held if owner == item}))


def drop_rows(table: Table, keys: Collection[RevisionKey]) -> int:
    """Rewrite every live file that holds one of some revisions, without them.

    Each file is one commit. Others may append and compact meanwhile.

    Returns:
        How many files were replaced.

    Raises:
        ContentionError, StorageFullError, StoreError, CommitUnknownError: run it again.
    """
    replaced = attempt = 0
    follower = Follower(table.log)
    while attempt < MAX_TRIES:
        snapshot = table.snapshot()
        follower.advance(snapshot.version)
        found = next(_holding(table, tuple(follower.files.values()), keys), None)
        if found is None:
            table.release(snapshot)
            return replaced
        staged = _without(table, found, keys)
        try:
            table.replace(snapshot, [found], staged, data_change=True)
        except StaleVersionError:
            table.discard(staged)
            pause(attempt)
            attempt += 1
        except (StoreError, StorageFullError):
            table.discard(staged)
            raise
        else:
            replaced += 1
    raise contention(table.spec.name)


def _holding(
    table: Table, files: Collection[DataFile], keys: Collection[RevisionKey]
) -> Iterator[DataFile]:
    buckets = {bucket_of(item) for item, _ in keys}
    for file in sorted(files, key=lambda file: file.path):
        if file.bucket in buckets and set(keys) & set(keys_in(table.local_path(file.path))):
            yield file


def _without(table: Table, file: DataFile, keys: Collection[RevisionKey]) -> Staged:
    path = table.local_path(file.path)
    kept = np.array([key not in keys for key in keys_in(path)], np.bool_)
    if not kept.any():
        return Staged((), ())
    rows = pq.read_table(path, columns=table.spec.schema.names, partitioning=None)
    return table.stage(rows.take(integers(np.flatnonzero(kept))).cast(table.spec.schema))


def dead_files(
    table: Table, keys: Collection[RevisionKey], clock: Callable[[], float] = time.time
) -> tuple[Path, ...]:
    """Return the files outside the table's newest version that hold some revisions.

    Replaced files, files of killed writers, and unreadable ones older than `TORN_AFTER_S`: a
    younger one may be a write in progress.

    Args:
        table: the table.
        keys: the revisions.
        clock: tells the seconds since 1970.
    """
    follower = Follower(table.log)
    follower.advance()
    live = {table.local_path(path) for path in follower.files}
    buckets = {bucket_of(item) for item, _ in keys}
    now_s = clock()
    folders = [table.local_path(f"{BUCKET}={bucket}") for bucket in sorted(buckets)]
    paths = [path for folder in folders for path in sorted(folder.glob("*.parquet"))]
    return tuple(path for path in paths if path not in live and _dead(path, keys, now_s))


def unreadable_files(table: Table, keys: Collection[RevisionKey]) -> tuple[Path, ...]:
    """Return the files beside the table's newest version that cannot be read, whatever their age.

    A write in progress, or what a killed writer left: nobody can say what it holds.
    """
    follower = Follower(table.log)
    follower.advance()
    live = {table.local_path(path) for path in follower.files}
    folders = [table.local_path(f"{BUCKET}={bucket_of(item)}") for item, _ in keys]
    paths = {path for folder in folders for path in folder.glob("*.parquet")} - live
    return tuple(path for path in sorted(paths) if not _readable(path))


def _readable(path: Path) -> bool:
    try:
        keys_in(path)
    except FileNotFoundError:
        return True
    except StoreError:
        return False
    return True


def _dead(path: Path, keys: Collection[RevisionKey], now_s: float) -> bool:
    try:
        return bool(set(keys) & set(keys_in(path)))
    except FileNotFoundError:
        return False
    except StoreError:
        return now_s - path.stat().st_mtime > TORN_AFTER_S


def delete_dead(table: Table, keys: Collection[RevisionKey]) -> int:
    """Delete what `dead_files` finds, durably; return how many files."""
    paths = dead_files(table, keys)
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        fsync_folder(folder)
    return len(paths)
