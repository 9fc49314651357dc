"""A fresh store, and short ways to fill it."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.ids import BaseId
from engine.store.opening import Store, create_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one public base, `kb`."""
    made = create_store(tmp_path / "root")
    made.writer.create_base(BaseId("kb"), "Knowledge", "alice", None, "public")
    return made
