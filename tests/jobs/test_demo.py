"""The demo: it plays to its end on real texts, and cleans up after an earlier one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from jobs.demo_server import free_port, leave_running, stop_left_running
from jobs.demo_visit import DemoError, expect
from tests.architecture.sources import REPOSITORY

SERVER = "import signal, sys; sys.stdout.write('up'); sys.stdout.flush(); signal.pause()"


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that waits, with arguments that it ignores."""
    command = [sys.executable, "-c", SERVER, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.read(2) == b"up"
        yield running
        running.kill()


def test_a_port_that_is_free_is_taken_as_preferred() -> None:
    port = free_port(0)
    assert free_port(port) == port


def test_a_port_that_is_in_use_is_replaced_by_another() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        assert free_port(port) != port


def test_a_server_left_running_over_the_folder_is_stopped(tmp_path: Path) -> None:
    configuration = json.dumps({"root": str(tmp_path / "store")})
    with process("serve.launcher", configuration) as server:
        leave_running(tmp_path, server.pid)
        waiter = Thread(target=server.wait)  # a child stays in /proc until it is waited for
        waiter.start()
        assert stop_left_running(tmp_path)
        waiter.join()
        assert server.returncode == -15


def test_a_process_that_only_has_the_id_is_left_alone(tmp_path: Path) -> None:
    with process("something.else") as stranger:
        leave_running(tmp_path, stranger.pid)
        assert not stop_left_running(tmp_path)
        assert stranger.poll() is None


@pytest.mark.parametrize("text", ["", "not a number", "999999999"])
def test_a_note_that_names_no_process_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "serve.pid").write_text(text)
    assert not stop_left_running(tmp_path)


def test_a_broken_promise_fails_the_demo_and_names_itself() -> None:
    expect(True, "kept")
    with pytest.raises(DemoError, match="not as promised: the best comes first"):
        expect(False, "the best comes first")


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(900)
def test_the_demo_plays_to_its_end_and_leaves_no_server(tmp_path: Path) -> None:
    config = tmp_path / "hashing.yaml"
    config.write_text("encoder: {model: hashing}\n", "utf-8")
    command = [sys.executable, "-c", "from jobs.cli import main; main()"]
    command += ["--root", str(tmp_path / "octavo"), "--config", str(config), "demo"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "The demo took" in done.stderr
    assert not any(_mentions(path, str(tmp_path)) for path in Path("/proc").glob("[0-9]*/cmdline"))


def _mentions(path: Path, text: str) -> bool:
    try:
        return text in path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
