"""Deliberate errors are found again behind whatever wrapped them."""

from __future__ import annotations

import errno
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ConflictError, EncoderError, StorageFullError
from jobs.faults import engine_error_in, unwrapped
from jobs.lock import locked


class _WrappingError(Exception):
    def __init__(self, cause: Exception) -> None:
        super().__init__("a page of traceback")
        self.cause = cause


class _DoubleError(_WrappingError, EncoderError):
    """As Ray makes it: an error of the cause's class that holds the cause."""


def test_an_error_is_found_in_the_chain_of_causes() -> None:
    told = EncoderError("broken")
    wrapped = _WrappingError(ValueError("outer"))
    wrapped.cause.__cause__ = told
    assert engine_error_in(wrapped) is told
    assert engine_error_in(_DoubleError(told)) is told


def test_a_full_disk_is_named() -> None:
    found = engine_error_in(_WrappingError(OSError(errno.ENOSPC, "full")))
    assert isinstance(found, StorageFullError)


def test_what_was_not_deliberate_passes_unchanged() -> None:
    assert engine_error_in(ValueError("x")) is None
    with pytest.raises(ValueError, match="x"), unwrapped():
        raise ValueError("x")
    for wrapping in (_WrappingError, _DoubleError):
        with pytest.raises(EncoderError, match=r"^broken$"), unwrapped():
            raise wrapping(EncoderError("broken"))


def _fill(batch: dict[str, Any]) -> dict[str, Any]:
    try:
        raise OSError(errno.ENOSPC, "full")
    except OSError as error:
        raise StorageFullError("no space left: free some") from error


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_what_a_task_of_ray_data_raises_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.data

    monkeypatch.setattr(ray.data.DataContext.get_current(), "raise_original_map_exception", True)
    filling: Any = _fill  # the stubs want arrays
    with pytest.raises(StorageFullError, match=r"^no space left: free some$"), unwrapped():
        ray.data.range(2).map_batches(filling).materialize()


def _hold(path: Path, pipe: Connection) -> None:
    with locked(path, "busy"):
        pipe.send("held")
        pipe.recv()


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "job"
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    holder = context.Process(target=_hold, args=(path, there))
    holder.start()
    assert here.recv() == "held"
    with pytest.raises(ConflictError, match="busy"), locked(path, "busy"):
        pass
    holder.kill()
    holder.join()
    with locked(path, "busy"):
        pass
