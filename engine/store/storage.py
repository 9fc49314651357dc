"""Where files of a root lie: the only place that composes their paths. Keys use `/` everywhere.

A store lives under one root. Everything else names a file by its key, a relative path such as
`segments/ab12/segment.json`. Object storage comes later, through the same protocol.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from engine.errors import NotFoundError, StorageFullError, StoreError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_WRAPPED = re.compile(r"os error (\d+)")
"""How deltalake and object_store repeat the number of an operating system error."""


def write_fault(error: Exception, what: str) -> StoreError | StorageFullError:
    """Return the named error for a failed write.

    Args:
        error: an `OSError`, or one of deltalake that carries the text of one.
        what: what was being written.
    """
    wrapped = _WRAPPED.search(str(error))
    number = error.errno if isinstance(error, OSError) else None
    if number is None and wrapped is not None:
        number = int(wrapped.group(1))
    if number in _FULL:
        return StorageFullError(f"no space left while writing {what}: free some space, then rerun")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return StoreError(f"cannot write {what}: {reason}")


def _read_fault(error: OSError, key: str) -> StoreError:
    return StoreError(f"cannot read {key}: {error.strerror or error}")


class Storage(Protocol):
    """A root of files. Safe to share between threads; reads see whole files or none."""

    @property
    def root(self) -> str:
        """Return the root as text: a folder now, a URI later."""
        ...

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Return what Delta Lake needs to reach the root, or None."""
        ...

    def delta_uri(self, name: str) -> str:
        """Return where the Delta table `name` lies."""
        ...

    def table_key(self, name: str) -> str:
        """Return the key of the folder of the Delta table `name`."""
        ...

    def local_path(self, key: str) -> Path:
        """Return a path of this machine that can be opened or memory-mapped."""
        ...

    def exists(self, key: str) -> bool:
        """Say whether a file or folder of that key exists."""
        ...

    def list(self, key: str) -> tuple[str, ...]:
        """Return the names directly under a folder, sorted; none when it does not exist."""
        ...

    def read_bytes(self, key: str) -> bytes:
        """Return a whole file.

        Raises:
            NotFoundError: there is none.
            StoreError: it cannot be read.
        """
        ...

    def put_bytes_atomic(self, key: str, data: bytes) -> None:
        """Write a whole file: afterwards, and after any crash, the old or the new one is there.

        Raises:
            StorageFullError: no space; the old file is untouched.
            StoreError: it cannot be written.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete a file, or a folder with all it holds. A missing one is no error."""
        ...


class LocalStorage:
    """A root that is a folder of this machine (or a network mount with atomic renames)."""

    def __init__(self, root: str | Path) -> None:
        """Name the root. Nothing is read or made.

        Args:
            root: the folder; a relative one is resolved against the working directory now.
        """
        self._root = Path(root).expanduser().absolute()

    @property
    def root(self) -> str:
        """Return the absolute folder."""
        return str(self._root)

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Return None: local folders need none."""
        return None

    def table_key(self, name: str) -> str:
        """Return the key of the folder of the Delta table `name`."""
        return f"store/{name}"

    def delta_uri(self, name: str) -> str:
        """Return the folder of the Delta table `name`, as deltalake takes it."""
        return str(self.local_path(self.table_key(name)))

    def local_path(self, key: str) -> Path:
        """Return the path of a key.

        Raises:
            ValueError: the key is absolute or climbs out of the root.
        """
        parts = key.split("/")
        if key and (key.startswith("/") or "\\" in key or any(p in {"", ".", ".."} for p in parts)):
            raise ValueError(f"not a key: {key!r}")
        return self._root.joinpath(*parts) if key else self._root

    def exists(self, key: str) -> bool:
        """Say whether a file or folder of that key exists."""
        return self.local_path(key).exists()

    def list(self, key: str) -> tuple[str, ...]:
        """Return the names directly under a folder, sorted; none when it does not exist."""
        try:
            return tuple(sorted(path.name for path in self.local_path(key).iterdir()))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _read_fault(error, key) from error

    def read_bytes(self, key: str) -> bytes:
        """Return a whole file. Raises as `Storage.read_bytes` says."""
        try:
            return self.local_path(key).read_bytes()
        except FileNotFoundError:
            raise NotFoundError(f"there is no {key} under {self._root}") from None
        except OSError as error:
            raise _read_fault(error, key) from error

    def put_bytes_atomic(self, key: str, data: bytes) -> None:
        """Write to a temporary name, fsync, rename, fsync the folder."""
        target = self.local_path(key)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            make_folder(target.parent)
            with _removed_on_failure(temporary), temporary.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
                temporary.replace(target)
            fsync_folder(target.parent)
        except OSError as error:
            raise write_fault(error, key) from error

    def delete(self, key: str) -> None:
        """Delete a file or a tree; refuse the root itself."""
        if not key:
            raise ValueError("the root is not deleted by key")
        target = self.local_path(key)
        try:
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot delete {key}: {error.strerror or error}") from error


@contextlib.contextmanager
def _removed_on_failure(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        path.unlink(missing_ok=True)
        raise


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, so that its name survives a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


def fsync_folder(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make the bytes of a written file survive a power cut."""
    with path.open("rb+") as stream:
        os.fsync(stream.fileno())
