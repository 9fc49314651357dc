"""How the coordinator reaches a shard group: in this process, or by frames over any transport."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from engine.errors import OverloadedError
from engine.search.request import (
    Explained,
    ExplainQuery,
    Found,
    Generations,
    GenerationsQuery,
    Hydrated,
    HydrateQuery,
    Question,
    Refined,
    RefineQuery,
    SearchQuery,
    Statistics,
    StatisticsQuery,
)
from engine.search.wire import pack_question, unpack_answer

Transport = Callable[[bytes, float], Awaitable[bytes]]
"""Carry one frame to one replica of a group and return its answer, within so many seconds.

It raises `TimeoutError`, or an `EngineError` (`OverloadedError`) when no replica can be reached.
"""

Broadcast = Callable[[bytes, float], Awaitable[Sequence[bytes]]]
"""Carry one frame to every running replica of a group and return all answers."""


class GroupClient(Protocol):
    """One shard group, seen from the coordinator.

    Every call may raise `GenerationNotOpenError` (the group does not hold the pinned state), an
    `EngineError` or a `TimeoutError` (the group counts as unanswered).
    """

    @property
    def name(self) -> str:
        """Return what to call the group in logs."""
        ...

    async def statistics(self, query: StatisticsQuery, seconds: float) -> Statistics:
        """Analyse a query and count its terms among what the caller may read."""
        ...

    async def search(self, query: SearchQuery, seconds: float) -> Found:
        """Return the candidates of the shards named in `query.depths`."""
        ...

    async def refine(self, query: RefineQuery, seconds: float) -> Refined:
        """Return exact BM25 scores."""
        ...

    async def hydrate(self, query: HydrateQuery, seconds: float) -> Hydrated:
        """Return what is shown of passages."""
        ...

    async def explain(self, query: ExplainQuery, seconds: float) -> Explained:
        """Return what scores were computed from."""
        ...

    async def generations(self, seconds: float) -> Generations:
        """Return the generations that every replica of the group has open."""
        ...


class FrameGroupClient:
    """A group behind a transport that carries bytes."""

    def __init__(self, name: str, transport: Transport, broadcast: Broadcast | None = None) -> None:
        """Take the way to the group.

        Args:
            name: what to call the group in logs.
            transport: reaches one replica.
            broadcast: reaches every replica; without it one replica speaks for the group.
        """
        self._name = name
        self._transport = transport
        self._broadcast = broadcast

    @property
    def name(self) -> str:
        """Return what to call the group in logs."""
        return self._name

    async def _ask(self, question: Question, seconds: float) -> bytes:
        return await self._transport(pack_question(question, seconds), seconds)

    async def statistics(self, query: StatisticsQuery, seconds: float) -> Statistics:
        """Analyse a query and count its terms among what the caller may read."""
        return unpack_answer(await self._ask(query, seconds), Statistics)

    async def search(self, query: SearchQuery, seconds: float) -> Found:
        """Return the candidates of the shards named in `query.depths`."""
        return unpack_answer(await self._ask(query, seconds), Found)

    async def refine(self, query: RefineQuery, seconds: float) -> Refined:
        """Return exact BM25 scores."""
        return unpack_answer(await self._ask(query, seconds), Refined)

    async def hydrate(self, query: HydrateQuery, seconds: float) -> Hydrated:
        """Return what is shown of passages."""
        return unpack_answer(await self._ask(query, seconds), Hydrated)

    async def explain(self, query: ExplainQuery, seconds: float) -> Explained:
        """Return what scores were computed from."""
        return unpack_answer(await self._ask(query, seconds), Explained)

    async def generations(self, seconds: float) -> Generations:
        """Return the generations that every replica of the group has open."""
        question = GenerationsQuery()
        if self._broadcast is None:
            return unpack_answer(await self._ask(question, seconds), Generations)
        frames = await self._broadcast(pack_question(question, seconds), seconds)
        answers = [unpack_answer(frame, Generations) for frame in frames]
        if not answers:
            raise OverloadedError(f"no replica of {self._name} answers")
        common = set.intersection(*(set(answer.shards) for answer in answers))
        return Generations({number: answers[0].shards[number] for number in sorted(common)})
