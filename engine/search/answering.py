"""The one way in: every door calls `Knowledge.answer`, so every door answers alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from engine.authorization import Principal, require_operate, require_read
from engine.contract import SearchRequest, parse_request, render_search, render_window
from engine.errors import InvalidRequestError, ResourceUnavailableError, RuntimeDisabledError
from engine.search.coordinator import Coordinator
from engine.search.explain import render_explanation
from engine.search.ranking import Ranking
from engine.search.read import Reader
from engine.store.runtime import RuntimeSwitch

SWITCH_AGE_S = 0.25

REFUSAL_S = 0.0005
"""What is not available is refused no sooner than so long after it was asked for.

Deciding takes a tenth of it, and how long exactly depends on where a state lies: what changed
lately is found elsewhere than what did not, and what does not exist is found nowhere. So no
refusal may be faster than another.
"""

Close = Callable[[], Awaitable[None]]


class Knowledge:
    """The whole contract over one store. Safe to use from many tasks of one event loop."""

    def __init__(
        self, switch: RuntimeSwitch, coordinator: Coordinator, reader: Reader, close: Close
    ) -> None:
        """Join the parts.

        Args:
            switch: whether the runtime answers at all; re-read at most every `SWITCH_AGE_S`.
            coordinator: answers ranked searches.
            reader: answers addressed reads.
            close: stops what was started for this object.
        """
        self._switch = switch
        self._coordinator = coordinator
        self._reader = reader
        self._close = close
        self._enabled = True
        self._enabled_at = float("-inf")

    async def answer(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        """Answer one call of `search_knowledge`.

        Checked in the contract's order: runtime switch, scope, shape, required, bounds, resource.

        Args:
            arguments: argument name to JSON value.
            principal: the verified caller.

        Returns:
            The contract's query answer or addressed answer, ready for JSON.

        Raises:
            EngineError: with a code of the contract; any other is a fault of ours, and the door
                answers `InternalError` for it.
        """
        if not await self._answers():
            raise RuntimeDisabledError
        require_read(principal)
        request = parse_request(arguments)
        with _refused_in_time():
            if isinstance(request, SearchRequest):
                ranking = await self._coordinator.search(request, principal)
                return render_search(ranking.results, ranking.coverage)
            return render_window(await self._reader.read(request, principal))

    async def explain(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        """Answer a search as `answer` does, and show the arithmetic of every result.

        For operators. The numbers are of the very search that is answered, over what the principal
        may read.

        Args:
            arguments: those of a ranked search.
            principal: the verified caller; it needs the scope `knowledge:operate` too.

        Returns:
            See `engine.search.explain`; `answer` is the contract's.

        Raises:
            EngineError: as `answer` does.
        """
        if not await self._answers():
            raise RuntimeDisabledError
        require_read(principal)
        require_operate(principal)
        request = parse_request(arguments)
        if not isinstance(request, SearchRequest):
            raise InvalidRequestError("only a search can be explained", "knowledge_item_id")
        with _refused_in_time():
            ranking = await self._coordinator.search(request, principal, explain=True)
        return render_explanation(request, ranking)

    async def rank(self, request: SearchRequest, principal: Principal) -> Ranking:
        """Answer one ranked search without rendering it, at any limit.

        For programs of the operator (benchmarks measure R@100); a door calls `answer`.
        """
        return await self._coordinator.search(request, principal)

    async def _answers(self) -> bool:
        now = time.monotonic()
        if now - self._enabled_at >= SWITCH_AGE_S:
            self._enabled = await asyncio.to_thread(self._switch.enabled)
            self._enabled_at = now
        return self._enabled

    async def ready(self) -> bool:
        """Say whether a search could be answered now.

        That is: the catalog is confirmed, and the store's generation, if it has one, is open.
        """
        return await self._coordinator.ready()

    def generation(self) -> int | None:
        """Return the number of the generation that is pinned now, or None."""
        return self._coordinator.generation()

    async def close(self) -> None:
        """Stop the threads that were started for this object. Later calls fail."""
        await self._close()


@contextmanager
def _refused_in_time() -> Iterator[None]:
    """Let no `ResourceUnavailableError` out sooner than `REFUSAL_S` after the beginning.

    By working: a timer of the event loop counts whole milliseconds from now on, and would tell
    when now is.
    """
    until = time.perf_counter() + REFUSAL_S
    try:
        yield
    except ResourceUnavailableError:
        while time.perf_counter() < until:
            pass
        raise
