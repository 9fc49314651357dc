"""Hashes of large files, remembered in the user's cache by path, size and time of change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return where converted encoders and remembered hashes lie; it may not exist yet.

    `$XDG_CACHE_HOME/octavo/encoders`, `~/.cache/octavo/encoders` where the variable is unset, empty
    or not absolute (XDG Base Directory Specification).
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return root / "octavo" / "encoders"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, lower-case hexadecimal.

    Computed once for a path, size, inode and times of change (the second of which no program can
    set back); a cache that cannot be written only costs the time.

    Raises:
        OSError: the file cannot be read.
    """
    status = path.stat()
    times = f"{status.st_mtime_ns}\0{status.st_ctime_ns}"
    key = f"{path.resolve()}\0{status.st_size}\0{times}\0{status.st_ino}"
    name = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
    note = cache_folder() / "hashes" / name
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = note.read_text("ascii")
        if len(known) == hashlib.sha256().digest_size * 2:
            return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        handle, staging = tempfile.mkstemp(dir=note.parent)
        with os.fdopen(handle, "w") as file_out:
            file_out.write(digest)
        Path(staging).rename(note)
    return digest
