"""What the conformance tests share: the installation, and the totals at the end of a run."""

from __future__ import annotations

import pytest

from tests.conformance.installation import Installation, installed

TOTALS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def installation() -> Installation:
    """Return what the locks install; the first time takes a minute or two."""
    return installed()


@pytest.fixture(scope="session")
def totals(pytestconfig: pytest.Config) -> list[str]:
    """Return the lines that are shown when all tests have run."""
    return pytestconfig.stash.setdefault(TOTALS, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show the totals of the suite."""
    lines = config.stash.get(TOTALS, [])
    if lines:
        terminalreporter.section("MCP conformance")
        for line in lines:
            terminalreporter.line(line)
