"""The processes below one: who they are, and that none is left. Reads /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05
_KILLED_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine. The start time tells it from a later one of the same id."""

    pid: int
    started: int


def _status(pid: int) -> tuple[int, Process, str] | None:
    """Return the parent, identity and state letter of a process, or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[1]), Process(pid, int(fields[19])), fields[0]


def descendants(root: int) -> frozenset[Process]:
    """Return the living processes below a process, itself not included. Empty without /proc."""
    children: dict[int, list[Process]] = {}
    proc = Path("/proc")
    for entry in proc.iterdir() if proc.is_dir() else ():
        status = _status(int(entry.name)) if entry.name.isdigit() else None
        if status is not None and status[2] != "Z":
            children.setdefault(status[0], []).append(status[1])
    found: set[Process] = set()
    queue = [root]
    while queue:
        for child in children.get(queue.pop(), ()):
            if child not in found:
                found.add(child)
                queue.append(child.pid)
    return frozenset(found)


def command(process: Process) -> str:
    """Return the short name of a process, or nothing when it is gone."""
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return ""


def living(processes: Iterable[Process]) -> frozenset[Process]:
    """Return those processes that still run."""
    alive = set()
    for process in processes:
        status = _status(process.pid)
        if status is not None and status[1] == process and status[2] != "Z":
            alive.add(process)
    return frozenset(alive)


def reap(processes: Iterable[Process], patience_s: float = 5.0) -> None:
    """Wait for processes to end; end those that did not, by id."""
    deadline = time.monotonic() + patience_s
    remaining = living(processes)
    while remaining and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        remaining = living(remaining)
    for process in remaining:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_S
    while living(remaining) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
