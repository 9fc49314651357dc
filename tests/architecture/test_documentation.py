"""What a user can type, set or receive is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
import typer
import yaml
from pydantic import BaseModel

from engine.access_config import IssuerConfig
from engine.config import Config, load_config
from engine.contract import HTTP_STATUS
from jobs.cli import app
from tests.architecture.sources import PACKAGES, REPOSITORY, sources

LOCAL = REPOSITORY / "configs" / "local.yaml"
REFERENCE = (REPOSITORY / "docs" / "reference.md").read_text("utf-8")


def _keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _commands(group: object, prefix: str = "") -> Iterator[str]:
    for name, command in sorted(getattr(group, "commands", {}).items()):
        if getattr(command, "commands", None):
            yield from _commands(command, f"{prefix}{name} ")
        elif not command.hidden:
            yield f"{prefix}{name}"


def _error_codes() -> list[str]:
    """Return the codes that classes of ours assign, found in the source: importing all is slow."""
    return sorted(
        statement.value.value
        for source in sources(*PACKAGES, "benchmarks")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and ast.unparse(statement.targets[0]) == "code"
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _languages() -> list[str]:
    return sorted(path.name for path in (REPOSITORY / "docs").iterdir() if path.is_dir())


@pytest.mark.parametrize("key", list(_keys(Config)))
def test_every_configuration_key_stands_in_the_local_file_with_a_meaning(key: str) -> None:
    text = LOCAL.read_text("utf-8")
    tree = yaml.safe_load(text)
    for name in key.split("."):
        assert name in tree
        tree = tree[name]
    assert re.search(rf"^ *# [a-z0-9_, ]*\b{key.split('.')[-1]}\b[a-z0-9_, ]*:", text, re.M)


@pytest.mark.parametrize("key", list(_keys(IssuerConfig)))
def test_every_key_of_an_issuer_stands_in_the_local_file(key: str) -> None:
    assert re.search(rf"^ *# +(- )?{key}: ", LOCAL.read_text("utf-8"), re.M)


def test_the_local_file_states_the_defaults() -> None:
    assert load_config(LOCAL) == Config()


def test_the_cluster_file_is_a_configuration() -> None:
    assert load_config(REPOSITORY / "configs" / "cluster.yaml").serve.group_deployments


@pytest.mark.parametrize("command", list(_commands(typer.main.get_command(app))))
def test_every_command_is_in_the_reference(command: str) -> None:
    assert f"`octavo {command}" in REFERENCE


@pytest.mark.parametrize("code", sorted({*_error_codes(), *HTTP_STATUS}))
def test_every_error_code_is_in_the_reference(code: str) -> None:
    assert f"| `{code}` |" in REFERENCE


@pytest.mark.parametrize("language", ["de", "en", "fr", "zh"])
def test_every_language_has_the_same_pages(language: str) -> None:
    assert language in _languages()
    pages = {path.name for path in (REPOSITORY / "docs" / language).glob("*.md")}
    assert pages == {path.name for path in (REPOSITORY / "docs" / "en").glob("*.md")}
    assert len(pages) >= 5
