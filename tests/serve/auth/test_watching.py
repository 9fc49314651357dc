"""A followed file: when a change counts, and what an unreadable file does."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import ConfigurationError, OverloadedError
from serve.auth.watching import BOUND_S, POLL_S, WatchedFile
from tests.serve.auth.clock import Clock


def _parse(text: str, source: str) -> str:
    if text.startswith("bad"):
        raise ConfigurationError(f"{source}: is bad")
    return text


def _write(path: Path, data: str | bytes | None, *, like_before: bool = False) -> None:
    """Write a file, or remove it; perhaps with the times that it had."""
    if data is None:
        path.unlink()
        return
    times = path.stat() if like_before else None
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    if times is not None:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    _write(path, "one")
    return path


def test_a_reading_counts_for_less_than_a_second() -> None:
    assert POLL_S < BOUND_S < 1.0


async def test_a_change_counts_once_the_bound_has_passed(path: Path) -> None:
    clock = Clock()
    file = WatchedFile(path, _parse, clock=clock)
    _write(path, "two")
    clock.now += BOUND_S
    assert await file.value() == "two"


async def test_a_reading_runs_beside_the_asking_until_the_bound(path: Path) -> None:
    clock = Clock()
    file = WatchedFile(path, _parse, clock=clock)
    _write(path, "two")
    clock.now += POLL_S
    assert await file.value() == "one"  # the reading runs beside
    clock.now += BOUND_S - POLL_S
    assert await file.value() == "two"  # waited for


async def test_a_change_of_same_size_and_time_is_noticed(path: Path) -> None:
    clock = Clock()
    file = WatchedFile(path, _parse, clock=clock)
    _write(path, "two", like_before=True)
    clock.now += BOUND_S
    assert await file.value() == "two"


@pytest.mark.parametrize("broken", [b"bad", b"\xff", b"x" * (16 * 2**20 + 1), None])
async def test_a_broken_file_is_named_in_the_log_and_answers_nothing(
    path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    file = WatchedFile(path, _parse, clock=clock)
    _write(path, broken)
    for _ in range(3):
        clock.now += BOUND_S
        with pytest.raises(OverloadedError):
            await file.value()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert str(path) in vars(record)["reason"]


async def test_a_broken_file_is_not_read_more_often_than_the_poll(path: Path) -> None:
    clock, readings = Clock(), []

    def parse(text: str, source: str) -> str:
        readings.append(text)
        return _parse(text, source)

    file = WatchedFile(path, parse, clock=clock)
    _write(path, "bad")
    clock.now += BOUND_S
    for _ in range(50):
        with pytest.raises(OverloadedError):
            await file.value()
    assert readings == ["one", "bad"]


async def test_a_mended_file_is_accepted_again(path: Path) -> None:
    clock = Clock()
    file = WatchedFile(path, _parse, clock=clock)
    _write(path, "bad")
    clock.now += BOUND_S
    with pytest.raises(OverloadedError):
        await file.value()
    _write(path, "two")
    clock.now += POLL_S
    assert await file.value() == "two"


async def test_many_askers_share_one_reading(path: Path) -> None:
    clock, readings, go = Clock(), [], threading.Event()

    def parse(text: str, source: str) -> str:
        readings.append(text)
        assert len(readings) == 1 or go.wait(30)
        return text

    file = WatchedFile(path, parse, clock=clock)
    _write(path, "two")
    clock.now += BOUND_S
    asking = [asyncio.create_task(file.value()) for _ in range(20)]
    await asyncio.sleep(0)
    go.set()
    assert set(await asyncio.gather(*asking)) == {"two"}
    assert readings == ["one", "two"]


def test_a_file_that_is_bad_from_the_start_is_refused(path: Path) -> None:
    _write(path, "bad")
    with pytest.raises(ConfigurationError, match="is bad"):
        WatchedFile(path, _parse)


async def test_threads_that_wait_for_the_store_do_not_delay_a_reading(path: Path) -> None:
    clock, never = Clock(), threading.Event()
    file = WatchedFile(path, _parse, clock=clock)
    store = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(store)
    stalled = asyncio.create_task(asyncio.to_thread(never.wait))
    await asyncio.sleep(0)
    _write(path, "two")
    clock.now += BOUND_S
    try:
        assert await file.value() == "two"
    finally:
        never.set()
        await stalled
