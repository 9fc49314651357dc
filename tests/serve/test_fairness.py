"""Rates, places and turns: who is let in, by a clock that is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import parse_config
from engine.errors import OverloadedError
from serve.fairness import Limits, Places, Rates
from tests.serve.auth.clock import Clock


def _rates(clock: Callable[[], float], per_s: float = 10.0, burst: int = 5) -> Rates:
    return Rates(per_s, burst, clock=clock)


def test_a_burst_is_let_in_and_no_more() -> None:
    rates = _rates(Clock())
    assert [rates.charge("a") == 0.0 for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_caller_is_let_in_again_when_it_was_told() -> None:
    clock = Clock()
    rates = _rates(clock)
    for _ in range(5):
        rates.charge("a")
    wait_s = rates.charge("a")
    assert wait_s == pytest.approx(0.1)
    clock.now += wait_s
    assert rates.charge("a") == 0.0


@pytest.mark.parametrize("per_s", [11, 25, 1000])
def test_a_caller_that_asks_too_often_still_gets_its_rate(per_s: int) -> None:
    clock = Clock(0.0)
    rates = _rates(clock)
    admitted = 0
    for number in range(60 * per_s):
        clock.now = number / per_s
        admitted += rates.charge("a") == 0.0
    assert admitted >= 60 * 9  # of 10 a second; a tick of the coarsest clock is nearly an interval


def test_callers_do_not_pay_for_one_another() -> None:
    rates = _rates(Clock())
    for _ in range(100):
        rates.charge("a")
    assert rates.charge("b") == 0.0


def test_without_a_rate_everybody_is_let_in_and_nobody_remembered() -> None:
    rates = _rates(Clock(), per_s=0.0)
    assert {rates.charge("a") for _ in range(1000)} == {0.0}
    assert len(rates) == 0


def test_callers_at_rest_are_forgotten() -> None:
    clock = Clock()
    rates = _rates(clock)
    for number in range(500):
        rates.charge(str(number))
        clock.now += 0.05
    assert len(rates) <= 3


def test_many_callers_at_once_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve.fairness.MAX_CALLERS", 50)
    rates = _rates(Clock())
    for number in range(500):
        rates.charge(str(number))
    assert len(rates) == 50


@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 6))
def test_in_any_stretch_no_more_than_burst_and_rate_are_let_in(
    steps: list[int], burst: int
) -> None:
    clock = Clock(0.0)
    rates = _rates(clock, per_s=4.0, burst=burst)
    admitted = []
    for step in steps:
        clock.now += step / 8
        if rates.charge("a") == 0.0:
            admitted.append(clock.now)
    for first, begin in enumerate(admitted):
        for last in range(first, len(admitted)):
            assert last - first + 1 <= burst + 4.0 * (admitted[last] - begin) + 1e-9


class _Crowd:
    """Requests that stay until they are told to go."""

    def __init__(self, limits: Limits) -> None:
        self.places = Places(limits)
        self.served: list[str] = []
        self._leave: dict[int, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, caller: str) -> asyncio.Task[None]:
        number = len(self._tasks)
        self._leave[number] = asyncio.Event()
        task = asyncio.create_task(self._stay(caller, number))
        self._tasks.append(task)
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    async def _stay(self, caller: str, number: int) -> None:
        async with self.places.place(caller):
            self.served.append(caller)
            await self._leave[number].wait()

    async def go(self, number: int) -> None:
        self._leave[number].set()
        for _ in range(5):
            await asyncio.sleep(0)

    async def all_go(self) -> None:
        for event in self._leave.values():
            event.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _refused(task: asyncio.Task[None]) -> bool:
    return task.done() and isinstance(task.exception(), OverloadedError)


async def test_one_caller_cannot_hold_more_than_half_of_the_places() -> None:
    crowd = _Crowd(Limits(running=2, places=8))
    flood = [await crowd.come("flood") for _ in range(20)]
    assert [_refused(each) for each in flood] == [False] * 4 + [True] * 16
    other = [await crowd.come("other") for _ in range(4)]
    assert [_refused(each) for each in other] == [False] * 2 + [True] * 2
    newcomer = await crowd.come("newcomer")
    assert not _refused(newcomer)
    await crowd.all_go()


async def test_a_caller_that_waits_is_served_before_the_rest_of_a_flood() -> None:
    crowd = _Crowd(Limits(running=1, places=64))
    for _ in range(10):
        await crowd.come("flood")
    await crowd.come("other")
    await crowd.go(0)
    await crowd.go(1)
    assert crowd.served == ["flood", "flood", "other"]
    await crowd.all_go()
    assert len(crowd.served) == 11


async def test_callers_that_wait_take_turns() -> None:
    crowd = _Crowd(Limits(running=1, places=64))
    await crowd.come("first")
    for caller in ("a", "a", "a", "b", "b", "c"):
        await crowd.come(caller)
    await crowd.all_go()
    assert crowd.served == ["first", "a", "b", "c", "a", "b", "a"]


async def test_the_number_of_one_callers_requests_is_limited() -> None:
    crowd = _Crowd(Limits(concurrent=2, places=64))
    tasks = [await crowd.come("a") for _ in range(3)] + [await crowd.come("b")]
    assert [_refused(each) for each in tasks] == [False, False, True, False]
    await crowd.all_go()


async def test_one_caller_cannot_hold_all_connections_by_bodies_that_do_not_come() -> None:
    crowd = _Crowd(Limits(concurrent=16, running=4, places=64).of_reading())
    flood = [await crowd.come("a") for _ in range(40)]
    other = await crowd.come("b")
    assert [task.done() for task in flood] == [False] * 16 + [True] * 24
    assert crowd.served[-1] == "b"  # at once: nobody waits for a turn to be read
    await crowd.all_go()
    assert other.exception() is None


async def test_where_limits_are_off_any_number_may_be_read_at_once() -> None:
    crowd = _Crowd(Limits(places=1).of_reading())
    tasks = [await crowd.come("a") for _ in range(100)]
    assert not any(task.done() for task in tasks)
    await crowd.all_go()


async def test_who_stops_waiting_leaves_the_line_and_no_place_is_lost() -> None:
    crowd = _Crowd(Limits(running=1, places=8))
    await crowd.come("a")
    waiting = await crowd.come("b")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await crowd.all_go()
    for _ in range(20):
        task = await crowd.come("c")
        await crowd.all_go()
        assert not _refused(task)


async def test_a_turn_given_to_one_who_just_left_is_passed_on() -> None:
    crowd = _Crowd(Limits(running=1, places=8))
    await crowd.come("a")
    leaving = await crowd.come("b")
    await crowd.come("c")
    crowd._leave[0].set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    await crowd.all_go()
    assert crowd.served[-1] == "c"


async def test_whose_turn_does_not_come_in_time_is_turned_away() -> None:
    crowd = _Crowd(Limits(running=1, places=8, wait_s=0.0))
    await crowd.come("a")
    late = await crowd.come("b")
    with pytest.raises(OverloadedError, match="turn"):
        await late
    await crowd.all_go()


@pytest.mark.parametrize(
    ("tree", "on"),
    [
        ({}, False),
        ({"serve": {"host": "::1"}}, False),
        ({"serve": {"host": "0.0.0.0"}}, True),
        ({"serve": {"host": "kb.example"}}, True),
    ],
)
def test_limits_are_off_on_loopback_and_on_elsewhere(tree: dict[str, object], on: bool) -> None:
    limits = Limits.of(parse_config(tree))
    assert [bool(limits.requests_per_s), bool(limits.concurrent), bool(limits.running)] == [on] * 3


def test_a_configured_limit_counts_wherever_the_server_listens() -> None:
    fairness = {"requests_per_s": 3, "burst": 7, "concurrent": 5, "running": 2}
    limits = Limits.of(parse_config({"fairness": fairness}))
    assert (limits.requests_per_s, limits.burst, limits.concurrent, limits.running) == (3, 7, 5, 2)
    zero = {"requests_per_s": 0, "concurrent": 0, "running": 0}
    limits = Limits.of(parse_config({"fairness": zero, "serve": {"host": "0.0.0.0"}}))
    assert (limits.requests_per_s, limits.concurrent, limits.running) == (0, 0, 0)
