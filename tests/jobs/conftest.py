"""Fixtures of the jobs: a shell over a store of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.running import Shell, make_shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return make_shell(tmp_path)


@pytest.fixture
def base(shell: Shell) -> Shell:
    """Return a shell whose store has the public base `kb`."""
    shell.json(
        "base", "create", "kb", "--title", "Knowledge", "--owner", "alice", "--scope", "public"
    )
    return shell
