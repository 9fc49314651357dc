"""The shape of the code: sizes, names, what a package file may hold."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.sources import PACKAGES, REPOSITORY, Source, sources

HARD_LINES = 500
MAX_FUNCTION_LINES = 80
P95_FUNCTION_LINES = 40
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "manager", "types"}

every_module = pytest.mark.parametrize(
    "source", sources(*PACKAGES, "benchmarks"), ids=lambda source: source.path
)


@every_module
def test_a_module_stays_within_the_hard_line_budget(source: Source) -> None:
    assert len(source.text.splitlines()) <= HARD_LINES


@every_module
def test_a_module_is_not_named_after_a_drawer(source: Source) -> None:
    assert FORBIDDEN_NAMES.isdisjoint(source.module.split("."))


@every_module
def test_a_module_begins_with_a_docstring(source: Source) -> None:
    assert ast.get_docstring(source.tree)


@every_module
def test_a_package_file_holds_a_docstring_only(source: Source) -> None:
    if source.path.endswith("__init__.py"):
        assert len(source.tree.body) == 1


def test_functions_are_short() -> None:
    lengths = sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert lengths[int(len(lengths) * 0.95)] <= P95_FUNCTION_LINES
    assert lengths[-1] <= MAX_FUNCTION_LINES


def test_every_folder_under_tests_is_a_package() -> None:
    folders = {path.parent for path in (REPOSITORY / "tests").rglob("*.py")}
    bare = [str(folder) for folder in folders if not (folder / "__init__.py").exists()]
    assert bare == []


def test_code_lives_in_the_agreed_folders_only() -> None:
    holders = {
        path.relative_to(REPOSITORY).parts[0]
        for path in REPOSITORY.glob("[a-z]*/**/*.py")
        if not path.relative_to(REPOSITORY).parts[0].startswith(("build", "octavo.egg"))
    }
    assert holders == {"engine", "serve", "jobs", "tests", "benchmarks"}
