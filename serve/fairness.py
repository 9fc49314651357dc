"""How much one caller may take: a rate, a number of requests at once, and turns when all are busy.

Rates are the generic cell rate algorithm (ITU-T I.371), a token bucket that needs one number a
caller. Who gets in is decided by dynamic thresholds (Choudhury and Hahne, 1998): a caller may hold
no more places than are free, so that one caller takes half of them, two a third each, and there is
always one for who comes next. Who is served next is decided in turns among the callers that wait.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from engine.access_config import is_loopback
from engine.config import Config
from engine.errors import OverloadedError

MAX_CALLERS = 10_000
_REQUESTS_PER_S = 20.0
_CONCURRENT = 16


_ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """What one caller may take of one replica; 0 is no limit.

    Attributes:
        requests_per_s: the rate.
        burst: requests at once after a pause, at least 1.
        concurrent: requests under way at once.
        running: requests of all callers that are worked on at once; the others wait for a turn.
        places: requests of all callers under way at once, running or waiting.
        wait_s: a request that has waited so long is turned away.
    """

    requests_per_s: float = 0.0
    burst: int = 1
    concurrent: int = 0
    running: int = 0
    places: int = 64
    wait_s: float = 10.0

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return the limits of a configuration, in which null depends on where it listens."""
        wanted, local = config.fairness, is_loopback(config.serve.host)
        running = 0 if local else 2 * config.search.threads * config.serve.groups
        rate = 0.0 if local else _REQUESTS_PER_S
        concurrent = 0 if local else _CONCURRENT
        return cls(
            requests_per_s=rate if wanted.requests_per_s is None else wanted.requests_per_s,
            burst=wanted.burst,
            concurrent=concurrent if wanted.concurrent is None else wanted.concurrent,
            running=running if wanted.running is None else wanted.running,
            places=config.serve.max_ongoing_requests,
            wait_s=config.search.deadline_s,
        )

    def of_reading(self) -> Limits:
        """Return what one caller may take of the requests whose body is awaited.

        They are shared out as the places are, but nobody waits for a turn. Off where turns are off.
        """
        if not self.running:
            return replace(self, places=sys.maxsize)
        return replace(self, running=self.places)


class Rates:
    """Counts the requests of callers. Remembers a caller only while it is not at rest."""

    def __init__(
        self, requests_per_s: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the limits.

        Args:
            requests_per_s: 0: everybody may ask as often as they like.
            burst: requests at once after a pause.
            clock: monotonic seconds.
        """
        self._interval_s = 1.0 / requests_per_s if requests_per_s else 0.0
        self._tolerance_s = (burst - 1) * self._interval_s
        self._clock = clock
        self._next: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many callers are remembered."""
        return len(self._next)

    def charge(self, caller: str) -> float:
        """Count one request, if it is within the rate.

        One that is not costs its caller nothing: whoever asks too often still gets the rate.

        Returns:
            0.0: it is within the rate. Else how many seconds too early it is.
        """
        if not self._interval_s:
            return 0.0
        now = self._clock()
        due = max(now, self._next.get(caller, now))
        early_s = due - now - self._tolerance_s
        if early_s > _ROUNDING_S:
            return early_s
        self._next[caller] = due + self._interval_s
        self._next.move_to_end(caller)
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Forget who is at rest, from who asked longest ago on; and who is one too many."""
        while self._next:
            caller, due = next(iter(self._next.items()))
            if due > now and len(self._next) <= MAX_CALLERS:
                return
            del self._next[caller]


class Places:
    """Lets requests in, and those that are in work in turns. For one event loop."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[str, int] = {}
        self._total = 0
        self._running = 0
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """Hold a place while one request is worked on.

        Args:
            caller: whose request it is; the empty name stands for everybody who has none.

        Raises:
            OverloadedError: there is no place for this caller, or its turn did not come in time.
        """
        self._enter(caller)
        try:
            await self._turn(caller)
            try:
                yield
            finally:
                self._running -= 1
                self._wake()
        finally:
            self._leave(caller)

    def _enter(self, caller: str) -> None:
        limits, own = self._limits, self._held.get(caller, 0)
        free = limits.places - self._total
        if free <= 0:
            raise OverloadedError(f"{limits.places} requests are running already")
        if limits.concurrent and own >= limits.concurrent:
            raise OverloadedError(f"{own} requests of this caller are running already")
        if limits.running and caller and own >= free:
            raise OverloadedError("this caller holds its share of a busy server already")
        self._held[caller] = own + 1
        self._total += 1

    def _leave(self, caller: str) -> None:
        self._total -= 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]

    async def _turn(self, caller: str) -> None:
        if not self._limits.running or (self._running < self._limits.running and not self._waiting):
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await turn
        except TimeoutError:
            self._give_up(caller, turn)
            raise OverloadedError("no turn within the deadline") from None
        except asyncio.CancelledError:
            self._give_up(caller, turn)
            raise

    def _give_up(self, caller: str, turn: asyncio.Future[None]) -> None:
        """Leave the line; a turn that was just given is passed on."""
        if turn.done() and not turn.cancelled():
            self._running -= 1
            self._wake()
            return
        line = self._waiting.get(caller)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[caller]

    def _wake(self) -> None:
        """Give free turns away: one to each caller that waits, around and around."""
        while self._waiting and self._running < self._limits.running:
            caller, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[caller] = line  # at the end: the others come first
            if not turn.done():
                self._running += 1
                turn.set_result(None)
