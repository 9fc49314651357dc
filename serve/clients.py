"""Calls to other deployments: the only place with `.remote()`. Ray's errors end here.

A call has a deadline, one second try after a replica died, and a breaker for a target that does not
answer, so that a missing group does not cost every query its whole deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import BackPressureError, RayServeException
from ray.serve.handle import DeploymentHandle

from engine.errors import OverloadedError
from engine.search.client import FrameGroupClient
from engine.search.request import Float32

_TRIES = 2


class Breaker:
    """Opens after some failures in a row, for some seconds; then lets calls through again."""

    def __init__(
        self,
        *,
        failures: int = 3,
        open_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failures = 0
        self._until = float("-inf")

    def require_closed(self, name: str) -> None:
        """Check that the target may be asked.

        Raises:
            OverloadedError: it failed too often just now.
        """
        wait = self._until - self._clock()
        if wait > 0:
            raise OverloadedError(f"{name} does not answer", wait)

    def failed(self) -> None:
        """Count a failure."""
        self._failures += 1
        if self._failures >= self._limit:
            self._until = self._clock() + self._open_s

    def succeeded(self) -> None:
        """Forget the failures."""
        self._failures = 0
        self._until = float("-inf")


class Caller:
    """Calls one method of one deployment."""

    def __init__(self, name: str, handle: DeploymentHandle[Any], method: str) -> None:
        """Take the target.

        Args:
            name: what to call it in errors.
            handle: of the deployment.
            method: the name of an asynchronous method of one argument.
        """
        self._name = name
        self._handle = getattr(handle, method)
        self._method = method
        self._deployment = handle
        self._breaker = Breaker()

    async def call(self, argument: object, seconds: float) -> Any:
        """Return what the method answers, within so many seconds.

        Raises:
            TimeoutError: the deadline passed.
            OverloadedError: no replica can be reached, or it sheds load.
        """
        self._breaker.require_closed(self._name)
        try:
            answer = await self._tried(argument, seconds)
        except (TimeoutError, OverloadedError):
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        return answer

    async def _tried(self, argument: object, seconds: float) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        for _ in range(_TRIES):
            response = self._handle.remote(argument)
            try:
                async with asyncio.timeout_at(deadline):
                    return await response
            except RayActorError:  # it died after accepting; the router has dropped that replica
                continue
            except BackPressureError:
                raise OverloadedError(f"{self._name} is overloaded") from None
            except TimeoutError:
                response.cancel()  # a deadline alone leaves the replica working
                raise
            except asyncio.CancelledError:
                response.cancel()
                raise
            except RayServeException:
                raise OverloadedError(f"{self._name} is not available") from None
        raise OverloadedError(f"{self._name} died")

    async def everywhere(self, argument: object, seconds: float) -> Sequence[Any]:
        """Return what every running replica answers, in no order.

        Raises:
            TimeoutError: the deadline passed.
            OverloadedError: a replica died meanwhile.
        """
        responses = self._deployment.broadcast(self._method, argument)
        try:
            answers = await responses.results_async(timeout_s=seconds)
        except RayError:
            raise OverloadedError(f"a replica of {self._name} does not answer") from None
        return list(answers)


def group_client(name: str, handle: DeploymentHandle[Any]) -> FrameGroupClient:
    """Return the client of a shard group that is a deployment."""
    caller = Caller(name, handle, "handle")
    transport: Callable[[bytes, float], Awaitable[bytes]] = caller.call
    return FrameGroupClient(name, transport, caller.everywhere)


class RemoteQueryEncoder:
    """Encodes queries by a deployment."""

    def __init__(self, handle: DeploymentHandle[Any], fingerprint: str) -> None:
        """Take the deployment, and the vector space it works in."""
        self._caller = Caller("encoder", handle, "encode")
        self._fingerprint = fingerprint

    @property
    def fingerprint(self) -> str:
        """Name the vector space."""
        return self._fingerprint

    async def encode(self, query: str, seconds: float) -> Float32:
        """Return float32 of shape (dimension,), unit length.

        Raises:
            TimeoutError: it took longer than `seconds`.
            OverloadedError: no encoder could be reached.
        """
        return np.frombuffer(await self._caller.call(query, seconds), np.float32)

    async def close(self) -> None:
        """Do nothing: the deployment lives on."""


async def remote_encoder(handle: DeploymentHandle[Any], seconds: float) -> RemoteQueryEncoder:
    """Ask an encoder deployment for its vector space, and return its client."""
    async with asyncio.timeout(seconds):
        fingerprint: str = await handle.fingerprint.remote()
    return RemoteQueryEncoder(handle, fingerprint)
