"""Follows a Delta table by its commit files: what changed costs one small file, nothing a `stat`.

Delta transaction log protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from engine.errors import NotFoundError, StoreError
from engine.store.storage import Storage

BUCKET = "bucket"
_CHECKPOINT_EVERY = 64
"""Polls without news between two looks at the newest checkpoint (in case commits were cleaned)."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A live Parquet file of a table: its path below the table, bucket (or None) and size."""

    path: str
    bucket: str | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit did.

    Attributes:
        version: the Delta version it made.
        added: files with new rows.
        rewritten: files that hold rows of removed files, nothing new (compaction).
        removed: paths that left the table.
    """

    version: int
    added: tuple[DataFile, ...]
    rewritten: tuple[DataFile, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advance:
    """What following a table to a version found.

    Attributes:
        reset: the table was loaded anew: `added` is all it holds, forget what was known.
        added: files whose rows are new, in commit order.
    """

    reset: bool
    added: tuple[DataFile, ...]


def parse_commit(version: int, data: bytes) -> Commit:
    """Read one commit file, JSON lines.

    Raises:
        StoreError: it is not a Delta commit.
    """
    added: list[DataFile] = []
    rewritten: list[DataFile] = []
    removed: list[str] = []
    try:
        for line in data.splitlines():
            action = orjson.loads(line)
            if "add" in action:
                (added if action["add"]["dataChange"] else rewritten).append(_file(action["add"]))
            elif "remove" in action:
                removed.append(unquote(action["remove"]["path"]))
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise StoreError(f"commit {version} of a table is damaged: {error}") from error
    return Commit(version, tuple(added), tuple(rewritten), tuple(removed))


def _file(add: Mapping[str, Any]) -> DataFile:
    bucket = add.get("partitionValues", {}).get(BUCKET)
    return DataFile(unquote(add["path"]), bucket, int(add["size"]))


class CommitLog:
    """Reads the commit files of one table."""

    def __init__(self, storage: Storage, name: str) -> None:
        """Name the table; nothing is read."""
        self._storage = storage
        self._folder = f"{storage.table_key(name)}/_delta_log"
        self._uri = storage.delta_uri(name)

    def commit(self, version: int) -> Commit | None:
        """Return a commit, or None when it does not exist (yet, or any more)."""
        key = f"{self._folder}/{version:020d}.json"
        if not self._storage.exists(key):
            return None
        try:
            return parse_commit(version, self._storage.read_bytes(key))
        except NotFoundError:
            return None

    def require_present(self, version: int) -> None:
        """Check that the log is still there: a lost mount must not look like "nothing new".

        Raises:
            StoreError: neither that commit nor a checkpoint can be found.
        """
        if self._storage.exists(f"{self._folder}/{version:020d}.json") or self.checkpoint() >= 0:
            return
        raise StoreError(f"the table at {self._uri} has vanished: is its disk mounted?")

    def checkpoint(self) -> int:
        """Return the version of the newest checkpoint, -1 when there is none."""
        try:
            last = orjson.loads(self._storage.read_bytes(f"{self._folder}/_last_checkpoint"))
        except (NotFoundError, orjson.JSONDecodeError):
            return -1
        return int(last["version"])

    def load(self, version: int | None) -> tuple[int, tuple[DataFile, ...]]:
        """Return a version (None: the newest) and its live files, by Delta Lake itself.

        Raises:
            StoreError: there is no such table or version, or it cannot be read.
        """
        handle = open_handle(self._uri, self._storage.storage_options, version)
        stream = pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True))
        actions = stream.read_all().to_pylist()
        files = (
            DataFile(unquote(row["path"]), row.get(f"partition.{BUCKET}"), row["size_bytes"])
            for row in actions
        )
        return handle.version(), tuple(sorted(files, key=lambda file: file.path))


def open_handle(uri: str, options: dict[str, str] | None, version: int | None = None) -> DeltaTable:
    """Open a Delta table at a version (None: the newest).

    Raises:
        StoreError: it is missing or cannot be read.
    """
    try:
        return DeltaTable(uri, version=version, storage_options=options)
    except TableNotFoundError:
        raise StoreError(f"there is no table at {uri}: is --root right?") from None
    except (DeltaError, OSError) as error:
        raise StoreError(f"the table at {uri} cannot be read: {error}") from error


class Follower:
    """The live files of one table, kept up to date. Not thread-safe: its owner locks."""

    def __init__(self, log: CommitLog) -> None:
        """Start before the first version; the first `advance` loads the table."""
        self._log = log
        self._files: dict[str, DataFile] = {}
        self._idle = 0
        self.version = -1

    @property
    def files(self) -> Mapping[str, DataFile]:
        """Return the live files by path. The mapping changes with `advance`."""
        return self._files

    def advance(self, to: int | None = None) -> Advance:
        """Follow the table to a version, at least the present one (None: the newest).

        Raises:
            StoreError: the table cannot be read.
        """
        added: list[DataFile] = []
        while self.version >= 0 and (to is None or self.version < to):
            commit = self._log.commit(self.version + 1)
            if commit is None:
                if to is None and not self._behind_checkpoint(bool(added)):
                    self._log.require_present(self.version)
                    return Advance(False, tuple(added))
                self.version = -1
            else:
                self._apply(commit)
                added.extend(commit.added)
        if self.version >= 0:
            return Advance(False, tuple(added))
        self.version, files = self._log.load(to)
        self._files = {file.path: file for file in files}
        return Advance(True, files)

    def _behind_checkpoint(self, moved: bool) -> bool:
        """Look, now and then, whether commits were cleaned away before they were followed."""
        self._idle = 0 if moved else self._idle + 1
        return self._idle % _CHECKPOINT_EVERY == 1 and self._log.checkpoint() > self.version

    def _apply(self, commit: Commit) -> None:
        for path in commit.removed:
            self._files.pop(path, None)
        for file in (*commit.added, *commit.rewritten):
            self._files[file.path] = file
        self.version = commit.version
