"""The one JVM of the test process."""

from __future__ import annotations

import pytest

from engine.index.jvm import start_jvm


@pytest.fixture(scope="session")
def jvm() -> None:
    """Start it; it lasts as long as the process."""
    start_jvm(512)
