"""What the demo adds to `serve.launcher`: a free port, and finding a server left running."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

from engine.errors import OperatorError

_STOP_S = 60.0
_POLL_S = 0.1
_PID_FILE = "serve.pid"
_PROGRAM = "serve.launcher"
_LOOPBACK = "127.0.0.1"


def free_port(preferred: int) -> int:
    """Return `preferred` when nobody listens there on loopback, else a port that is free."""
    for port in (preferred, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((_LOOPBACK, port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise OperatorError("no free port on loopback")


def leave_running(folder: Path, pid: int) -> None:
    """Write down which process serves a folder, so that the next demo can stop it."""
    (folder / _PID_FILE).write_text(f"{pid}\n", "utf-8")


def stop_left_running(folder: Path) -> bool:
    """Stop the server that an earlier demo left running over a folder, if there is one.

    Returns:
        Whether there was one. A process that only happens to have its id is left alone.

    Raises:
        OperatorError: it does not stop.
    """
    try:
        pid = int((folder / _PID_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    if not _serves(pid, folder):
        return False
    os.kill(pid, signal.SIGTERM)
    started = time.monotonic()
    while _serves(pid, folder):
        if time.monotonic() - started > _STOP_S:
            raise OperatorError(f"an earlier demo is still serving: kill {pid}")
        time.sleep(_POLL_S)
    return True


def _serves(pid: int, folder: Path) -> bool:
    """Say whether a process is a server over a folder: its arguments hold the configuration."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
    return _PROGRAM in arguments and json.dumps(str(folder))[1:-1] in arguments
