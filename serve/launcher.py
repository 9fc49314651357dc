"""Starting and stopping the whole server on one machine.

`serve_until_stopped` runs it in this process, for the command line. `spawn` runs it in a process of
its own, for programs that use Ray themselves (the demo, tests).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from engine.config import Config, dump_config, undump_config
from engine.errors import EngineError, OperatorError
from engine.index.jvm import find_java
from engine.store.opening import open_store
from serve import processes, runtime
from serve.auth.opening import open_credentials
from serve.logs import set_aside_long_log

_READY_S = 300.0
_POLL_S = 0.1


def url_of(config: Config) -> str:
    """Return the root URL at which a configuration serves, without a final slash."""
    host = config.serve.host
    if host in {"0.0.0.0", "::", "localhost"}:
        host = runtime.LOOPBACK
    return f"http://{f'[{host}]' if ':' in host else host}:{config.serve.port}"


def check_configuration(config: Config, tokens: Path | None) -> None:
    """Check what can be known before anything is started.

    Raises:
        ConfigurationError: no credentials although other machines could connect; a bad token file
            or deny list; the port is in use.
        StoreError: there is no store at the root.
        JavaError: there is no usable Java.
    """
    wanted = config.serve
    open_credentials(config, tokens)
    host = runtime.LOOPBACK if wanted.host == "localhost" else wanted.host
    runtime.require_free_port(host, wanted.port)
    open_store(config.root)
    find_java()


def absolute(root: str) -> str:
    """Return a store's root as workers see it, whose working directory is another. URIs stay."""
    return root if "://" in root else str(Path(root).absolute())


def located(config: Config) -> Config:
    """Return a configuration whose files are named as workers see them."""
    audit, auth = config.audit, config.auth
    if audit.destination not in ("auto", "off", "stderr"):
        audit = audit.model_copy(update={"destination": absolute(audit.destination)})
    if auth.deny_list:
        auth = auth.model_copy(update={"deny_list": absolute(auth.deny_list)})
    changes = {"root": absolute(config.root), "audit": audit, "auth": auth}
    return config.model_copy(update=changes)


def _answers(url: str) -> int | None:
    """Return the status of a GET, or None when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def await_ready(url: str, running: Callable[[], bool], patience_s: float = _READY_S) -> None:
    """Wait until a server says that it can answer.

    Args:
        url: its root.
        running: whether it still can come up.
        patience_s: how long to wait.

    Raises:
        OperatorError: it ended, or took too long.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if not running():
            raise OperatorError("the server ended while starting")
        if _answers(f"{url}/readyz") == 200:
            return
        time.sleep(_POLL_S)
    raise OperatorError(f"the server did not get ready within {patience_s:.0f} s")


class Server:
    """A server that runs in this process and its children. Stop it, always."""

    def __init__(self, config: Config, preparation: runtime.Preparation) -> None:
        self._preparation = preparation
        self._stopped = False
        self.url = url_of(config)

    @property
    def mcp_url(self) -> str:
        """Return the URL of the MCP endpoint."""
        return f"{self.url}/mcp"

    def stop(self) -> None:
        """End every process that was started, and remove their directory. May be repeated."""
        if not self._stopped:
            self._stopped = True
            runtime.stop_ray(self._preparation)


def _deploy(config: Config, tokens: Path | None, preparation: runtime.Preparation) -> None:
    runtime.start_ray(preparation)
    # imported only now: both read their flags when they are imported
    from ray import serve as rayserve
    from ray.serve.config import HTTPOptions

    from serve.app import LOGS, NAME, build

    options = HTTPOptions(host=preparation.host, port=config.serve.port)
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    rayserve.start(proxy_location="HeadOnly", http_options=options, logging_config=LOGS)
    try:
        rayserve.run(build(config, tokens), name=NAME, route_prefix="/")
    except RuntimeError:
        raise OperatorError(runtime.why_not_deployed(NAME)) from None


def launch(config: Config, tokens: Path | None = None) -> Server:
    """Start the server in this process and return when it is ready.

    Args:
        config: the tree.
        tokens: the token file. Without it and `auth.issuers` everybody is anonymous, on loopback.

    Raises:
        ConfigurationError: the configuration, the token file or the port; nothing was started.
        OperatorError: it did not come up; what was started is stopped.
    """
    check_configuration(config, tokens)
    config = located(config)
    set_aside_long_log(config)
    preparation = runtime.prepare(config)
    server = Server(config, preparation)
    try:
        _deploy(config, tokens, preparation)
        await_ready(server.url, lambda: True)
    except BaseException:
        server.stop()
        raise
    return server


class _StopRequested(BaseException):
    """A signal asked for the end. Not an error, so that nothing on the way handles it."""


def serve_until_stopped(
    config: Config,
    tokens: Path | None = None,
    *,
    announce: Callable[[Server], None] | None = None,
) -> None:
    """Run the server until SIGINT or SIGTERM; then stop it and return.

    Call it from the main thread of a process that has not imported Ray.

    Args:
        config: the tree.
        tokens: the token file. Without it and `auth.issuers` everybody is anonymous, on loopback.
        announce: told once, when the server is ready.

    Raises:
        ConfigurationError: the configuration, the token file or the port; nothing was started.
        OperatorError: it did not come up, or ended by itself; what was started is stopped.
    """
    stop = threading.Event()
    starting = True

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  a handler's shape
        stop.set()
        if starting:
            raise _StopRequested

    runtime.handle_signals(on_signal)
    server: Server | None = None
    try:
        server = launch(config, tokens)
        starting = False
        runtime.handle_signals(on_signal)  # Ray put its own in place
        if announce is not None:
            announce(server)
        while not stop.wait(1.0):
            runtime.require_ray_alive()
    except (_StopRequested, SystemExit):
        starting = False
    finally:
        starting = False
        if server is not None:
            server.stop()


class Spawned:
    """A server in a process of its own."""

    def __init__(self, config: Config, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.url = url_of(config)

    @property
    def pid(self) -> int:
        """Return the id of the process that started everything."""
        return self._process.pid

    @property
    def mcp_url(self) -> str:
        """Return the URL of the MCP endpoint."""
        return f"{self.url}/mcp"

    def running(self) -> bool:
        """Say whether the process runs."""
        return self._process.poll() is None

    def stop(self, patience_s: float = 60.0) -> int:
        """Ask the process to stop, wait for it, and return its exit code: 0 is a clean stop."""
        if self.running():
            self._process.terminate()
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            processes.reap(processes.descendants(self.pid), 0.0)
            self._process.kill()
            return self._process.wait()

    def why(self) -> str:
        """Return the last line that the process wrote."""
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "the server ended without a word"


def spawn(config: Config, tokens: Path | None = None, *, log: Path) -> Spawned:
    """Start the server in a process of its own and return when it is ready.

    Args:
        config: the tree.
        tokens: the token file. Without it and `auth.issuers` everybody is anonymous, on loopback.
        log: the file that receives what the process writes.

    Raises:
        ConfigurationError: the configuration, the token file or the port; nothing was started.
        OperatorError: it did not come up; what was started is stopped.
    """
    check_configuration(config, tokens)
    command = [sys.executable, "-m", "serve.launcher", dump_config(config)]
    command += [] if tokens is None else [str(tokens.absolute())]
    code = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")]))
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": path},
        )
    spawned = Spawned(config, process, log)
    try:
        await_ready(spawned.url, spawned.running)
    except BaseException as error:
        spawned.stop()
        if isinstance(error, OperatorError):
            raise OperatorError(spawned.why()) from None
        raise
    return spawned


def main(arguments: list[str]) -> int:
    """Run a server from a configuration text and perhaps a token file; what `spawn` starts."""
    tokens = Path(arguments[1]) if len(arguments) > 1 else None
    try:
        serve_until_stopped(undump_config(arguments[0]), tokens)
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
