"""Says as whom a test of the suite asks."""

from __future__ import annotations

from collections.abc import Callable


def asked_by[T: Callable[..., object]](caller: str) -> Callable[[T], T]:
    """Run a test as a caller of `CALLERS`, through every door that the caller can use."""

    def named(test: T) -> T:
        test.caller = caller  # type: ignore[attr-defined]  # read by conftest
        return test

    return named
