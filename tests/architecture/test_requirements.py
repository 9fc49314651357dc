"""The lock: pinned, hashed, and silent about where packages come from."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.architecture.sources import REPOSITORY

LOCKS = ("requirements.lock", "requirements-uv.lock")
SILENT = (*LOCKS, "Makefile", ".ci/run", ".ci/find-python", "pyproject.toml")
ADDRESS = re.compile(r"https?://|--(extra-)?index-url|--find-links|--trusted-host|\bfile://")


@pytest.mark.parametrize("name", SILENT)
def test_set_up_names_no_package_index(name: str) -> None:
    assert ADDRESS.findall((REPOSITORY / name).read_text("utf-8")) == []


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_requirement_is_pinned_and_hashed(name: str) -> None:
    text = (REPOSITORY / name).read_text("utf-8").replace("\\\n", " ")
    loose = [
        line
        for line in text.splitlines()
        if line.strip()
        and not line.lstrip().startswith("#")
        and not ("==" in line and "--hash=sha256:" in line)
    ]
    assert loose == []


def test_everything_the_project_asks_for_is_locked() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].lower() for line in asked}
    lock = (REPOSITORY / "requirements.lock").read_text("utf-8")
    assert names <= set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))


def test_the_editable_install_needs_nothing_outside_the_lock() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text("utf-8")
    version = re.search(r"^setuptools==(\d+)", lock, re.MULTILINE)
    assert version is not None
    assert int(version.group(1)) >= 77
