"""Calls to deployments, on a real Ray Serve: deaths, deadlines, the breaker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import serve as rayserve
from ray.serve.handle import DeploymentHandle

from engine.errors import InternalError, OverloadedError
from serve.clients import Breaker, Caller


def _first_visit(marker: Path) -> bool:
    """Say whether nobody was here before, and leave a mark."""
    before = marker.exists()
    marker.touch()
    return not before


class Target:
    """Answers frames in the ways that a replica may."""

    def __init__(self) -> None:
        self._cancelled = 0

    async def handle(self, frame: bytes) -> bytes:
        word, _, path = frame.decode().partition(" ")
        if word == "die" or (word == "die-once" and _first_visit(Path(path))):
            os._exit(1)
        if word == "hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self._cancelled += 1
                raise
        if word == "fail":
            raise InternalError("0123")
        return b"%s %d %d" % (word.encode(), os.getpid(), self._cancelled)


@pytest.fixture(scope="module")
def target(ray_cluster: None) -> Iterator[DeploymentHandle[Any]]:
    """Yield a handle of three replicas of `Target`."""
    serve: Any = rayserve  # Ray leaves some of it without types
    serve.start(proxy_location="Disabled")
    deployment = rayserve.deployment(
        num_replicas=3,
        max_ongoing_requests=16,
        health_check_period_s=1,
        ray_actor_options={"num_cpus": 0.1},
    )(Target)
    yield rayserve.run(deployment.bind(), name="target", route_prefix=None)
    serve.shutdown()


@pytest.fixture
async def caller(target: DeploymentHandle[Any]) -> Caller:
    return Caller("group-0", target, "handle")


@pytest.mark.ray
async def test_a_call_carries_bytes_there_and_back(caller: Caller) -> None:
    answer = await caller.call(b"hello", 30.0)
    assert answer.startswith(b"hello ")


@pytest.mark.ray
async def test_a_broadcast_reaches_every_replica_once(caller: Caller) -> None:
    answers = await caller.everywhere(b"hello", 30.0)
    assert len(answers) == len(set(answers)) == 3


@pytest.mark.ray
async def test_an_error_of_ours_keeps_its_type_and_fields(caller: Caller) -> None:
    with pytest.raises(InternalError) as caught:
        await caller.call(b"fail", 30.0)
    assert caught.value.fault == "0123"


@pytest.mark.ray
async def test_a_passed_deadline_cancels_the_work(caller: Caller) -> None:
    with pytest.raises(TimeoutError):
        await caller.call(b"hang", 1.0)
    cancelled = 0
    async with asyncio.timeout(30):
        while cancelled == 0:
            answers = await caller.everywhere(b"hello", 30.0)
            cancelled = sum(int(answer.split()[2]) for answer in answers)
    assert cancelled == 1


@pytest.mark.ray
async def test_a_call_whose_replica_dies_is_made_once_more(caller: Caller, tmp_path: Path) -> None:
    marker = tmp_path / "died"
    answer = await caller.call(f"die-once {marker}".encode(), 60.0)
    assert answer.startswith(b"die-once ")


@pytest.mark.ray
async def test_a_call_that_kills_twice_is_given_up(caller: Caller) -> None:
    with pytest.raises(OverloadedError, match="group-0 died"):
        await caller.call(b"die", 60.0)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 10.0

    def __call__(self) -> float:
        return self.now


def test_a_breaker_opens_after_failures_in_a_row_and_closes_by_itself() -> None:
    clock = Clock()
    breaker = Breaker(failures=2, open_s=1.0, clock=clock)
    breaker.failed()
    breaker.require_closed("group-0")
    breaker.failed()
    with pytest.raises(OverloadedError, match="group-0 does not answer"):
        breaker.require_closed("group-0")
    clock.now += 1.0
    breaker.require_closed("group-0")
    breaker.failed()
    with pytest.raises(OverloadedError):
        breaker.require_closed("group-0")


def test_a_success_forgets_the_failures() -> None:
    breaker = Breaker(failures=2, clock=Clock())
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    breaker.require_closed("group-0")
