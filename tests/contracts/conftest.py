"""One store for the suite, and one parameter for each door and caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.contracts import corpus
from tests.contracts.doors import DOORS as ENGINE_DOORS
from tests.contracts.doors import Door, Reply
from tests.contracts.doors_serve import SERVE_DOORS
from tests.engine.search.building import Library

DOORS = (*ENGINE_DOORS, *SERVE_DOORS)

Call = Callable[[Mapping[str, Any]], Awaitable[Reply]]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The store that is asked."""
    return corpus.build(tmp_path_factory.mktemp("contract") / "store")


@pytest.fixture(scope="session")
def open_doors(library: Library) -> Iterator[dict[str, Door]]:
    """Doors that are open, by name; a door opens when the first test wants it."""
    with ExitStack() as stack:
        yield _Doors(library.root, stack)


class _Doors(dict[str, Door]):
    def __init__(self, root: Path, stack: ExitStack) -> None:
        super().__init__()
        self._root, self._stack = root, stack

    def __missing__(self, name: str) -> Door:
        entry = next(entry for entry in DOORS if entry.name == name)
        self[name] = self._stack.enter_context(entry.open(self._root))
        return self[name]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test through every door that its caller can come through.

    A test names its caller by `@pytest.mark.parametrize("caller", [...])`, or is run as anonymous,
    who can come through every door.
    """
    if "door_name" in metafunc.fixturenames:
        wanted = getattr(metafunc.function, "caller", "anonymous")
        metafunc.parametrize(
            "door_name",
            [
                pytest.param(entry.name, marks=[getattr(pytest.mark, m) for m in entry.marks])
                for entry in DOORS
                if wanted in entry.callers
            ],
            scope="session",
        )


@pytest.fixture
def call(open_doors: dict[str, Door], door_name: str, request: pytest.FixtureRequest) -> Call:
    """Ask `search_knowledge` through the door, as the test's caller."""
    caller: str = getattr(request.function, "caller", "anonymous")
    return partial(_call, open_doors[door_name], caller)


async def _call(door: Door, caller: str, arguments: Mapping[str, Any]) -> Reply:
    return await door.call(arguments, caller)
