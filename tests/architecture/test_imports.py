"""Importing a module of ours starts nothing, reads nothing, changes nothing."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

import engine
import jobs
import serve
from tests.architecture.sources import PACKAGES, REPOSITORY, Source, at_import, dotted, sources

FORBIDDEN_AT_IMPORT = (
    "os.environ",
    "os.getenv",
    "os.putenv",
    "open",
    "print",
    "Path.cwd",
    "Path.home",
    "ray.init",
    "logging.basicConfig",
    "warnings.filterwarnings",
    "signal.signal",
    "threading.Thread",
    "autoclass",
)
FORBIDDEN_METHODS = (".read_text", ".read_bytes", ".exists", ".mkdir", ".start", ".setLevel")

PROBE = """
import importlib, json, sys, threading
from pathlib import Path
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
sys.stdout.write(json.dumps({
    "threads": [t.name for t in threading.enumerate() if t is not threading.main_thread()],
    "children": children.read_text().split() if children.exists() else [],
    "java": "jnius" in sys.modules,
    "ray": "ray" in sys.modules and sys.modules["ray"].is_initialized(),
}))
"""


def _touches(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Attribute | ast.Name | ast.Call):
        return None
    name = dotted(node.func if isinstance(node, ast.Call) else node)
    if isinstance(node, ast.Call):
        return name if name in FORBIDDEN_AT_IMPORT or name.endswith(FORBIDDEN_METHODS) else None
    return name if name == "os.environ" else None


@pytest.mark.parametrize("source", sources(*PACKAGES, "benchmarks"), ids=lambda s: s.path)
def test_importing_a_module_reads_no_file_and_no_environment(source: Source) -> None:
    assert [found for node in at_import(source.tree) if (found := _touches(node))] == []


@pytest.mark.slow
def test_importing_every_module_starts_no_thread_no_process_no_jvm_and_no_ray() -> None:
    names = [source.module for source in sources(*PACKAGES, "benchmarks")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROBE, json.dumps(names)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {
        "threads": [],
        "children": [],
        "java": False,
        "ray": False,
    }


def test_no_other_distribution_owns_our_package_names() -> None:
    owners = importlib.metadata.packages_distributions()
    assert {owner for name in PACKAGES for owner in owners.get(name, ())} <= {"octavo"}


@pytest.mark.parametrize("package", [engine, serve, jobs], ids=lambda package: package.__name__)
def test_our_packages_are_imported_from_this_repository(package: object) -> None:
    origin = getattr(package, "__file__", None)
    assert origin is not None
    assert Path(origin).resolve().is_relative_to(REPOSITORY)
