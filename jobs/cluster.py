"""The Ray that a job runs on: a private local one, or a running cluster that it joins.

Whatever was started here is stopped here, also after an interrupt; a Ray that was already there
is left running.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from engine.config import JobsConfig
from engine.errors import OperatorError
from engine.index.jvm import signals_kept

_OBJECT_STORE_BYTES = 512 * 2**20
_BLOCK_BYTES = 32 * 2**20
_LEAST_CPUS = 4
"""Declared even on a smaller machine: an actor pool and its sources must fit side by side."""

_LOOPBACK = "127.0.0.1"
_OWN: ContextVar[bool] = ContextVar("own", default=False)
"""Whether the Ray of this context was started by `joined`, and runs nothing but jobs."""

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # else a loopback address is replaced
}


class ClusterError(OperatorError):
    """A Ray cluster could not be joined or started."""

    code = "octavo_cluster"


@contextmanager
def joined(config: JobsConfig) -> Iterator[bool]:
    """Be connected to Ray inside the block; yield whether only jobs run on it.

    Uses the Ray this process is already connected to; else joins `config.address`; else starts a
    private local one, without dashboard, in a temporary directory with a short path (Ray's sockets
    must fit 107 bytes), and stops it at the end.

    Raises:
        ClusterError: the cluster at `config.address` cannot be reached.
    """
    with _environment({**_ENVIRONMENT, **({} if config.address else _private_token())}):
        import ray

        if ray.is_initialized():
            _quieten()
            yield _OWN.get()
            return
        private = None if config.address else _private_directory()
        try:
            with signals_kept():
                if private is None:
                    _join(str(config.address))
                else:
                    _start(config.cpus, private)
            _quieten()
            token = _OWN.set(private is not None)
            try:
                yield private is not None
            finally:
                _OWN.reset(token)
        finally:
            with signals_kept():
                ray.shutdown()
            if private is not None:
                shutil.rmtree(private, ignore_errors=True)


def _private_token() -> dict[str, str]:
    """Return the settings of a token of this cluster alone.

    Ray's ports run code for whoever reaches them, other users of the machine included.
    """
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables inside the block, those aside that are set already; Ray reads them at start."""
    added = {name: text for name, text in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _start(cpus: int | None, private: Path) -> None:
    import ray

    try:
        ray.init(
            address="local",  # whatever RAY_ADDRESS says
            num_cpus=cpus or max(_LEAST_CPUS, os.cpu_count() or 1),
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            _node_ip_address=_LOOPBACK,
            _temp_dir=str(private),
        )
    except Exception as error:  # Ray names no class for a node that did not start
        line = str(error).partition("\n")[0]
        raise ClusterError(f"Ray did not start, is the machine very busy? {line}") from error


def _join(address: str) -> None:
    import ray

    packages = Path(__file__).resolve().parent.parent
    ours: list[Any] = [str(packages / name) for name in ("engine", "jobs", "serve")]
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            runtime_env={"py_modules": ours},
        )
    except (ConnectionError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise ClusterError(f"no Ray cluster at {address}: {line}") from None


def _quieten() -> None:
    """Keep Ray Data's own progress bars and messages off the terminal, and its blocks small."""
    import ray.data

    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = _BLOCK_BYTES
    context.min_parallelism = 1
    context.enable_auto_log_stats = False
    context.raise_original_map_exception = True  # wrapped, it would lose its type


def _private_directory() -> Path:
    """Make a directory named after this process, and remove those of processes that are gone."""
    parent = Path(tempfile.gettempdir())
    for stale in parent.glob("octavo-ray-*-*"):
        process = stale.name.split("-")[2]
        if process.isdigit() and not Path("/proc", process).exists() and Path("/proc").exists():
            shutil.rmtree(stale, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"octavo-ray-{os.getpid()}-", dir=parent))
