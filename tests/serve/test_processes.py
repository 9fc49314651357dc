"""The process tree, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from serve.processes import Process, command, descendants, living, reap

GRANDPARENT = (
    "import subprocess, sys;"
    "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE);"
    "print(child.pid, flush=True); input()"
)


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """Yield the ids of a child and of a grandchild of this process."""
    with subprocess.Popen(
        [sys.executable, "-c", GRANDPARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        yield child.pid, int(child.stdout.readline())
        child.kill()


def test_descendants_are_children_and_their_children(family: tuple[int, int]) -> None:
    child, grandchild = family
    found = {process.pid for process in descendants(os.getpid())}
    assert {child, grandchild} <= found
    assert os.getpid() not in found
    assert {process.pid for process in descendants(child)} == {grandchild}


def test_reaping_ends_exactly_the_given_processes(family: tuple[int, int]) -> None:
    child, grandchild = family
    (target,) = descendants(child)
    reap([target], patience_s=0.0)
    reap([target])  # waits until it is gone
    assert not living([target])
    assert child in {process.pid for process in descendants(os.getpid())}
    assert grandchild == target.pid


def test_another_process_of_the_same_id_is_left_alone(family: tuple[int, int]) -> None:
    (target,) = descendants(family[0])
    earlier = Process(target.pid, target.started - 1)
    reap([earlier], patience_s=0.0)
    assert living([target, earlier]) == {target}


def test_a_process_has_a_short_name(family: tuple[int, int]) -> None:
    (target,) = descendants(family[0])
    assert command(target).startswith("python")
    assert command(Process(2**30, 0)) == ""
