"""The official MCP conformance suite, against our ASGI stack, in both protocol eras.

`fixtures`: the tools that the suite wants, behind our guard and door, so that it tries everything.
`tool`: the server as it is. What may fail stands in `baselines/`, with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.installation import Installation, InstallationError, installed
from tests.conformance.programs import BASELINES, run_suite, serving

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # the first test installs the suite
]

# Scenarios that ran, checks that passed, checks that failed as the baseline says.
TOTALS = {
    ("fixtures", "2025-11-25"): (33, 58, 9),
    ("fixtures", "2026-07-28"): (50, 158, 31),
    ("tool", "2025-11-25"): (33, 35, 26),
    ("tool", "2026-07-28"): (50, 95, 70),
}


@pytest.mark.parametrize(("kind", "revision"), TOTALS)
def test_a_server_fails_exactly_what_its_baseline_says(
    installation: Installation, totals: list[str], tmp_path: Path, kind: str, revision: str
) -> None:
    baseline = BASELINES / f"{kind}-{revision}.yml"
    with serving(kind) as url:
        options = ("--requirements", revision, "--expected-failures", str(baseline))
        run = run_suite(installation, url, tmp_path, *options)
    scenarios, passed, failed = run.totals
    totals.append(
        f"{kind}, {revision}: {scenarios} scenarios, {passed} checks passed, "
        f"{failed} failed as expected"
    )
    assert run.code == 0, run.output[-4000:]
    assert run.totals == TOTALS[kind, revision]


@pytest.mark.parametrize(
    ("scenario", "expected", "said"),
    [
        ("ping", ["ping:ping"], "Stale"),
        ("logging-set-level", [], "Unexpected"),
    ],
)
def test_an_entry_that_passes_and_a_failure_without_an_entry_fail_the_run(
    installation: Installation, tmp_path: Path, scenario: str, expected: list[str], said: str
) -> None:
    baseline = tmp_path / "baseline.yml"
    baseline.write_text(yaml.safe_dump({"server": expected}), "utf-8")
    with serving("tool") as url:
        options = ("--scenario", scenario, "--spec-version", "2025-11-25")
        run = run_suite(installation, url, tmp_path, *options, "--expected-failures", str(baseline))
    assert run.code == 1
    assert said.lower() in run.output.lower()


@pytest.mark.parametrize(("kind", "revision"), TOTALS)
def test_every_expected_failure_is_one_check_under_a_reason(kind: str, revision: str) -> None:
    path = BASELINES / f"{kind}-{revision}.yml"
    entries: Any = yaml.safe_load(path.read_text("utf-8"))["server"]
    assert len(set(entries)) == len(entries)
    assert all(entry.count(":") == 1 for entry in entries)
    lines = path.read_text("utf-8").partition("server:\n")[2].splitlines()
    assert lines[0].startswith("  # ")
    assert all(line.startswith(("  # ", "  - ")) for line in lines)


def test_a_registry_that_is_missing_is_named(tmp_path: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
    with pytest.raises(InstallationError, match=r"^PyPI: exit status 1\n"):
        installed(tmp_path, nowhere)
    assert list(tmp_path.glob("*/ready")) == []
