"""Deliberate errors, dug out of whatever wrapped them on the way.

Ray wraps what a task raises, Ray Data wraps that again, and a full disk is an `OSError`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import EngineError, StorageFullError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_MESSAGE = "no space is left on the device; free some and run again"


def engine_error_in(error: BaseException) -> EngineError | None:
    """Return the deliberate error in an exception's chain of causes.

    Args:
        error: what a call raised.

    Returns:
        The first `EngineError`, a `StorageFullError` for a full disk, or None when the exception
        was not deliberate.
    """
    seen: set[int] = set()
    queue: list[object] = [error]
    while queue:
        current = queue.pop(0)
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        cause = getattr(current, "cause", None)
        if isinstance(current, EngineError) and not isinstance(cause, EngineError):
            return current  # Ray's double of an error is one too, and speaks in tracebacks
        if isinstance(current, OSError) and current.errno in _FULL:
            return StorageFullError(_FULL_MESSAGE)
        queue += [cause, current.__cause__, current.__context__]
    return None


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the deliberate error behind whatever is raised inside the block.

    Raises:
        EngineError: the one that a task raised; what was not deliberate passes unchanged.
    """
    try:
        yield
    except Exception as error:  # raised again, under its own name if it has one
        named = engine_error_in(error)
        if named is None or named is error:
            raise
        raise named from None
