"""The demo's server: `octavo serve` in a process of its own, stopped or left running."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from engine.errors import OperatorError

_PATIENCE_S = 180.0
_STOP_S = 60.0
_POLL_S = 0.2
_START = "from jobs.cli import main; main()"
_PID_FILE = "serve.pid"
_LOG_FILE = "serve.log"


def free_port(preferred: int) -> int:
    """Return `preferred` when nobody listens there on loopback, else a port that is free."""
    for port in (preferred, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise OperatorError("no free port on loopback")


class DemoServer:
    """One server over a store, in a session of its own."""

    def __init__(self, folder: Path, config: Path, port: int) -> None:
        """Start it; `wait_ready` says when it answers.

        Args:
            folder: where its log and process id are written.
            config: the configuration file that it reads.
            port: where it listens on loopback.
        """
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / _LOG_FILE
        self._pid_file = folder / _PID_FILE
        command = [sys.executable, "-c", _START, "--config", str(config)]
        command += ["serve", "--port", str(port)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._pid_file.write_text(str(self._process.pid), "utf-8")

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        return self._process.pid

    def wait_ready(self) -> float:
        """Wait until `/readyz` answers 200; return the seconds that took.

        Raises:
            OperatorError: it ended, or was not ready in time; the message shows its last words.
        """
        started = time.monotonic()
        while time.monotonic() - started < _PATIENCE_S:
            if self._process.poll() is not None:
                raise OperatorError(f"the server ended at once: {self._last_words()}")
            if _answers(f"{self.url}/readyz"):
                return time.monotonic() - started
            time.sleep(_POLL_S)
        raise OperatorError(
            f"the server was not ready in {_PATIENCE_S:.0f} s: {self._last_words()}"
        )

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"see {self.log}"

    def stop(self) -> None:
        """Ask it to stop, and end its whole session when it does not."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._pid_file.unlink(missing_ok=True)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return int(response.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def stop_left_running(folder: Path) -> bool:
    """Stop the server that an earlier demo left running over a folder, if there is one.

    Returns:
        Whether there was one. A process that only happens to have its id is left alone.

    Raises:
        OperatorError: it does not stop.
    """
    try:
        pid = int((folder / _PID_FILE).read_text("utf-8"))
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    if _START not in arguments or str(folder) not in arguments:
        return False
    os.kill(pid, signal.SIGTERM)
    started = time.monotonic()
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() - started > _STOP_S:
            raise OperatorError(f"an earlier demo is still serving: kill {pid}")
        time.sleep(_POLL_S)
    return True
