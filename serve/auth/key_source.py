"""The keys of one issuer as they are now: cached, refreshed beside the requests, once at a time.

A key service that is down costs nothing while its keys are in memory. A stranger who sends tokens
with invented key ids causes one fetch in a cool-down, however many they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.errors import OverloadedError
from serve.auth.fetching import KeyServiceError
from serve.auth.keys import Key

logger = logging.getLogger(__name__)

Fetch = Callable[[], Awaitable[tuple[Key, ...]]]

_FIRST_RETRY_S = 1.0
MAX_WAITING = 256
"""Requests that may wait for keys at once; further ones are told to come again."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what counts, in seconds.

    Attributes:
        refresh_s: keys of this age are fetched again, beside the requests; at twice this age, a
            request waits for it.
        max_age_s: keys are used this long while they cannot be fetched again.
        cooldown_s: between two fetches, at least. After failures it grows up to this from a second.
    """

    refresh_s: float = 300.0
    max_age_s: float = 86_400.0
    cooldown_s: float = 30.0


class KeySource:
    """Holds the keys of one issuer. For one event loop."""

    def __init__(
        self,
        name: str,
        fetch: Fetch,
        patience: Patience,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what fetches; nothing is fetched yet.

        Args:
            name: the issuer's, for the log.
            fetch: gets the keys; raises KeyServiceError.
            patience: how long what counts.
            clock: monotonic seconds.
        """
        self._name = name
        self._fetch = fetch
        self._patience = patience
        self._clock = clock
        self._keys: tuple[Key, ...] = ()
        self._fetched_at = float("-inf")
        self._next_at = float("-inf")
        self._failures = 0
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0

    async def keys(self) -> tuple[Key, ...]:
        """Return the issuer's keys.

        Raises:
            OverloadedError: there are none, or none young enough, and they cannot be had now.
        """
        age = self._clock() - self._fetched_at
        if age >= self._patience.refresh_s:
            fetching = self._begin()
            if fetching is not None and self._worth_waiting(age):
                usable = age < self._patience.max_age_s
                if not usable or self._waiting < MAX_WAITING:
                    await self._wait(fetching)
        if self._clock() - self._fetched_at >= self._patience.max_age_s:
            raise self._unavailable()
        return self._keys

    async def matching(self, key_id: str | None, algorithm: str) -> tuple[Key, ...]:
        """Return the keys that can have signed a token; none when the issuer has no such key.

        Raises:
            OverloadedError: there is none here, and whether the issuer has one cannot be told now.
        """
        found = _fitting(await self.keys(), key_id, algorithm)
        if not found:
            fetching = self._begin()
            if fetching is not None:
                await self._wait(fetching)
                found = _fitting(self._keys, key_id, algorithm)
            if not found and self._failures:
                raise self._unavailable()
        return found

    async def _wait(self, fetching: asyncio.Task[None]) -> None:
        """Wait for a fetch, of which each has a time limit.

        Raises:
            OverloadedError: `MAX_WAITING` requests wait already.
        """
        if self._waiting >= MAX_WAITING:
            raise self._unavailable()
        self._waiting += 1
        try:
            await asyncio.wait({fetching})
        finally:
            self._waiting -= 1

    def _worth_waiting(self, age: float) -> bool:
        """Say whether the cached keys are too old to be used while newer ones are on their way."""
        if age >= self._patience.max_age_s:
            return True
        return not self._failures and age >= 2 * self._patience.refresh_s

    def _begin(self) -> asyncio.Task[None] | None:
        """Begin a fetch unless one runs or the cool-down lasts; return the one that runs."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        if self._clock() < self._next_at:
            return None
        self._fetching = asyncio.create_task(self._refresh())
        return self._fetching

    async def _refresh(self) -> None:
        begun = self._clock()
        self._next_at = begun + self._patience.cooldown_s  # even if this ends in a fault of ours
        try:
            keys = await self._fetch()
        except KeyServiceError as error:
            wait_s = min(self._patience.cooldown_s, _FIRST_RETRY_S * 2.0 ** min(self._failures, 20))
            self._failures += 1
            self._next_at = self._clock() + wait_s
            extra = {"issuer": self._name, "reason": str(error), "failures": self._failures}
            logger.warning("keys of an issuer could not be fetched", extra=extra)
            return
        self._keys, self._fetched_at = keys, begun
        self._failures = 0

    def _unavailable(self) -> OverloadedError:
        wait_s = max(1.0, self._next_at - self._clock())
        return OverloadedError("the credential cannot be checked at the moment", wait_s)


def _fitting(keys: tuple[Key, ...], key_id: str | None, algorithm: str) -> tuple[Key, ...]:
    return tuple(key for key in keys if key.fits(key_id, algorithm))
