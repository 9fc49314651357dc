"""One job of a kind at a time on a store: a lock that ends with its process, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import ConflictError
from engine.store.storage import write_fault


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock inside the block.

    Machines that share a store over a network mount without locks are kept apart by the
    compare-and-swap of the commit alone: one of two jobs then loses its work, never the store.

    Args:
        path: the lock's file; it is made, and stays.
        refusal: what to say when another process holds it.

    Raises:
        ConflictError: another process holds it.
        StoreError: the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_fault(error, path.name) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(f"{refusal}: wait for it, then run again") from None
        yield
    finally:
        os.close(descriptor)
