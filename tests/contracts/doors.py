"""The doors that the contract suite goes through. To add one, see `conftest.DOORS`.

A door opens on the folder of a store and is called with arguments and the name of a caller. It
lives for the whole run, on no event loop in particular: what belongs to a loop is made per call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.contract import render_error
from engine.errors import EngineError
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.contracts.corpus import CALLERS, ORGANIZATION
from tests.engine.search.building import small_config

Reply = tuple[dict[str, Any], bool]


class Door(Protocol):
    """One way to `search_knowledge`."""

    async def call(self, arguments: Mapping[str, Any], caller: str) -> Reply:
        """Return the JSON object that is answered, and whether it is an error.

        Args:
            arguments: argument name to JSON value.
            caller: a name of `CALLERS` that the door's entry names.
        """
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A door of the suite.

    Attributes:
        name: shown in test ids.
        open: opens it on a store's folder, and closes it.
        callers: who can come through it.
        marks: names of pytest marks, such as `ray`.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[Door]]
    callers: frozenset[str]
    marks: tuple[str, ...] = ()


class EngineDoor:
    """Calls the engine in this process."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge

    async def call(self, arguments: Mapping[str, Any], caller: str) -> Reply:
        try:
            return await self._knowledge.answer(arguments, CALLERS[caller]), False
        except EngineError as error:
            return render_error(error), True


@contextmanager
def open_engine(root: Path) -> Iterator[Door]:
    """Open the engine on a store, as the command line does."""
    knowledge = open_local(small_config(root, organization=ORGANIZATION))
    yield EngineDoor(knowledge)
    asyncio.run(knowledge.close())


DOORS: tuple[Entry, ...] = (Entry("engine", open_engine, frozenset(CALLERS), ("jvm",)),)
