"""Pinning: which generation queries are answered from. The newest that every group has open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from engine.errors import EngineError, OverloadedError
from engine.index.generation import GenerationRecord
from engine.search.client import GroupClient
from engine.search.following import Follower

logger = logging.getLogger(__name__)

_ASK_S = 1.0
_PATIENCE_S = 0.05


class Pins:
    """Moves the pin forward as groups open generations. For one event loop."""

    def __init__(self, follower: Follower, groups: Sequence[GroupClient]) -> None:
        """Take what this process follows, and every group in the order of positions."""
        self._follower = follower
        self._groups = groups
        self._pinned: GenerationRecord | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def number(self) -> int | None:
        """Return the number of the generation that is pinned, or None."""
        return None if self._pinned is None else self._pinned.number

    async def current(self) -> GenerationRecord | None:
        """Return the generation to answer from; None when the store has none.

        While groups are asked about a newer one, the pinned one serves on.

        Raises:
            OverloadedError: the store has generations, but none is open everywhere yet.
        """
        records = self._follower.records()
        if not records and self._follower.refusal is None:
            return None
        if records and (self._pinned is None or self._pinned.number < records[0].number):
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(records))
            patience = 2 * _ASK_S if self._pinned is None else _PATIENCE_S
            await asyncio.wait([self._asking], timeout=patience)
        if self._pinned is None:
            raise OverloadedError("no generation is open yet")
        return self._pinned

    def predecessor(self, record: GenerationRecord) -> GenerationRecord | None:
        """Return the generation before one, if it may still be pinned."""
        older = (known for known in self._follower.records() if known.number < record.number)
        return next(older, None)

    async def _ask(self, records: Sequence[GenerationRecord]) -> None:
        """Pin the newest generation that every group that answers has open.

        Without any group nobody searches, and reads are pinned to the newest of all.
        """
        if not self._groups:
            self._pinned = records[0]
            return
        answers = await asyncio.gather(*(self._open_in(group) for group in self._groups))
        held = [numbers for numbers in answers if numbers is not None]
        if not held:
            return
        common = frozenset.intersection(*held)
        self._pinned = next((r for r in records if r.number in common), self._pinned)

    async def _open_in(self, group: GroupClient) -> frozenset[int] | None:
        try:
            async with asyncio.timeout(_ASK_S):
                return frozenset((await group.generations(_ASK_S)).shards)
        except (EngineError, TimeoutError) as error:
            extra = {"group": group.name, "error": type(error).__name__}
            logger.warning("group does not say what it has open", extra=extra)
            return None

    async def close(self) -> None:
        """Wait for a question that is under way."""
        if self._asking is not None and not self._asking.done():
            await asyncio.wait([self._asking])
