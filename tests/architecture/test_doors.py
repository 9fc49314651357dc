"""Calls that only one place may make."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.sources import PACKAGES, Source, called_names, sources

every_module = pytest.mark.parametrize("source", sources(*PACKAGES), ids=lambda s: s.path)


def _lines_calling(source: Source, suffix: str) -> list[int]:
    return [line for name, line in called_names(source.tree) if name.endswith(suffix)]


@every_module
def test_only_the_clients_of_serve_and_the_jobs_call_remotely(source: Source) -> None:
    if source.path != "serve/clients.py" and not source.path.startswith("jobs/"):
        assert _lines_calling(source, ".remote") == []


@every_module
def test_only_the_application_binds_deployments(source: Source) -> None:
    if source.path != "serve/app.py":
        assert [line for name, line in called_names(source.tree) if _binds(name)] == []


def _binds(name: str) -> bool:
    # a socket is bound too: `sock.bind`, `probe.bind`, `listener.bind`
    owner, _, verb = name.rpartition(".")
    sockets = {"", "sock", "socket", "probe", "listener"}
    return verb == "bind" and owner.split(".")[-1] not in sockets


@every_module
def test_only_the_command_line_prints(source: Source) -> None:
    if not source.path.startswith(("jobs/cli", "jobs/commands/")):
        assert [line for name, line in called_names(source.tree) if name == "print"] == []


@every_module
def test_nothing_swallows_every_exception_without_a_reason(source: Source) -> None:
    lines = source.text.splitlines()
    bare = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and "#" not in lines[node.lineno - 1]
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert bare == []


@every_module
def test_an_exemption_from_a_check_states_its_reason(source: Source) -> None:
    silent = [
        number
        for number, line in enumerate(source.text.splitlines(), start=1)
        if ("# noqa" in line or "# type: ignore" in line) and not _has_reason(line)
    ]
    assert silent == []


def _has_reason(line: str) -> bool:
    comment = line.partition("#")[2]
    spoken = re.sub(
        r"noqa(: *[A-Z]+[0-9]+(, *[A-Z]+[0-9]+)*)?|type: ignore(\[[a-z, -]*\])?", "", comment
    )
    return len(re.findall(r"[A-Za-z]{2,}", spoken)) >= 2
