"""The programs of the conformance tests: the server on a free port, and one run of the suite."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.installation import REPOSITORY, Installation

BASELINES = Path(__file__).resolve().parent / "baselines"
_RUN_S = 240


@contextmanager
def serving(kind: str, *arguments: str) -> Iterator[str]:
    """Start `tests.conformance.server` and yield the URL of its MCP endpoint; then end it."""
    command = [sys.executable, "-m", "tests.conformance.server", kind, *arguments]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            assert url.endswith("/mcp"), "the server ended before it listened"
            yield url
        finally:
            server.terminate()
            server.wait(60)


@dataclass(frozen=True, slots=True)
class Run:
    """How one run of the suite ended.

    Attributes:
        code: the exit status: 0 when exactly what the baseline says failed.
        output: what it wrote.
    """

    code: int
    output: str

    @property
    def totals(self) -> tuple[int, int, int]:
        """How many scenarios ran, how many checks passed, how many failed."""
        total = re.search(r"^Total: (\d+) passed, (\d+) failed$", self.output, re.MULTILINE)
        assert total is not None, self.output[-2000:]
        scenarios = len(re.findall(r"^[✓✗] \S+: \d+ passed", self.output, re.MULTILINE))
        return scenarios, int(total[1]), int(total[2])


def run_suite(installation: Installation, url: str, folder: Path, *options: str) -> Run:
    """Run the suite against a server. `folder` takes its records and is its home."""
    command = [str(installation.node), str(installation.suite), "server", "--url", url]
    done = subprocess.run(
        [*command, "-o", str(folder / "records"), *options],
        cwd=folder,
        env=installation.environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    return Run(done.returncode, done.stdout)
