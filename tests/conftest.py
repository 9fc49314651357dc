"""Fixtures for every test: one private local Ray for the whole run, started when first wanted."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# How long one example takes says more about the machine than about the code.
settings.register_profile("octavo", deadline=None)
settings.load_profile("octavo")

# Read by Ray when it is imported, which test modules do while they are collected.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every port on the loopback interface only
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "1",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "0.5",
}


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Connect this process to a private local Ray; jobs join the Ray that is connected."""
    import ray

    from engine.index.jvm import signals_kept

    directory = Path(tempfile.mkdtemp(prefix="oct", dir="/tmp"))  # short: sockets fit 107 bytes
    with signals_kept():
        ray.init(
            address="local",
            num_cpus=8,
            object_store_memory=256 * 2**20,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(directory),
        )
    yield
    with signals_kept():
        ray.shutdown()
    shutil.rmtree(directory, ignore_errors=True)
