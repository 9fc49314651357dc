"""The demo's corpus: what is read of installed distributions, and that nothing of it runs."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from jobs.demo_corpus import Document, collect, description, docstrings, write_jsonl

LONG = "This sentence is here to be long enough for a passage of its own. " * 3

MODULE = f'''"""About the module. {LONG}"""
raise RuntimeError("this module must never run")

class Shown:
    """About the class. {LONG}"""

    def method(self):
        """About the method. {LONG}"""

    def _hidden(self):
        """About a private method. {LONG}"""

class _Hidden:
    def method(self):
        """About a method nobody can reach. {LONG}"""

async def function():
    """About the function. {LONG}"""

def brief():
    """Too short."""
'''


def install(folder: Path, name: str, files: dict[str, str], readme: str = "") -> None:
    """Lay a distribution out as an installer does."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: A  thing\n\n"
    (info / "METADATA").write_text(head + readme, "utf-8")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files), "utf-8")


def installed(folder: Path) -> list[importlib.metadata.Distribution]:
    return list(importlib.metadata.distributions(path=[str(folder)]))


def test_public_docstrings_become_documents_in_the_order_of_the_scopes() -> None:
    found = list(docstrings(MODULE, "pkg.mod", "pkg/mod.py"))
    assert [document.title for document in found] == [
        "pkg.mod",
        "pkg.mod.Shown",
        "pkg.mod.function",
        "pkg.mod.Shown.method",
    ]
    assert found[3].source_ref == "pkg/mod.py#Shown.method"
    assert found[3].text == inspect_text("About the method.")


def inspect_text(head: str) -> str:
    return f"{head} {LONG}".strip()


def test_a_distribution_is_read_without_being_imported(tmp_path: Path) -> None:
    install(tmp_path, "alpha", {"alpha/__init__.py": MODULE}, readme=LONG)
    corpus = collect(installed(tmp_path), passages=None)
    assert [document.source_ref for document in corpus.documents] == [
        "alpha/1.0",
        "alpha/__init__.py",
        "alpha/__init__.py#Shown",
        "alpha/__init__.py#function",
        "alpha/__init__.py#Shown.method",
    ]
    assert corpus.documents[0].title == "alpha 1.0: A thing"
    assert (corpus.distributions, corpus.unreadable) == (1, 0)


def test_a_file_that_is_not_python_is_counted_and_skipped(tmp_path: Path) -> None:
    files = {"beta/__init__.py": "def (", "beta/good.py": MODULE, "beta/null.py": "x = 1\0"}
    install(tmp_path, "beta", files)
    (tmp_path / "beta" / "latin.py").write_bytes(b"# \xe9")
    with (tmp_path / "beta-1.0.dist-info" / "RECORD").open("a") as record:
        record.write("beta/latin.py,,\n")
    corpus = collect(installed(tmp_path), passages=None)
    assert corpus.documents[0].title == "beta.good"
    assert corpus.unreadable == 3


def test_private_modules_and_tests_are_left_out(tmp_path: Path) -> None:
    names = ["gamma/_inner.py", "gamma/tests/test_it.py", "gamma/_vendor/x.py", "gamma/not-one.py"]
    install(tmp_path, "gamma", dict.fromkeys(names, MODULE))
    assert collect(installed(tmp_path), passages=None).documents == []


def test_a_sample_stops_near_its_budget_and_takes_from_several(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        files = {f"{name}/m{number:03}.py": MODULE for number in range(100)}
        install(tmp_path, name, files, readme=LONG)
    corpus = collect(installed(tmp_path), passages=120)
    assert corpus.passages <= 121
    assert corpus.passages > 110
    assert corpus.distributions == 2


def test_the_same_installation_gives_the_same_corpus_in_the_same_order(tmp_path: Path) -> None:
    for name in ("one", "two"):
        install(tmp_path, name, {f"{name}/b.py": MODULE, f"{name}/a.py": MODULE}, readme=LONG)
    first = collect(installed(tmp_path), passages=None)
    second = collect(reversed(installed(tmp_path)), passages=None)
    assert first.documents == second.documents


def test_what_is_installed_here_fills_the_demo() -> None:
    corpus = collect(importlib.metadata.distributions(), passages=400)
    assert corpus.passages >= 390
    refs = [document.source_ref for document in corpus.documents]
    assert len(set(refs)) == len(refs)


@pytest.mark.parametrize("readme", ["", "Short.", "UNKNOWN"])
def test_a_distribution_without_a_real_description_has_none(tmp_path: Path, readme: str) -> None:
    install(tmp_path, "delta", {}, readme=readme)
    assert description(installed(tmp_path)[0]) is None


def test_documents_are_written_one_a_line_and_read_back_unchanged(tmp_path: Path) -> None:
    document = Document("Título", "line one\r\nzweite 行 \u2028 three", "docstring", "a.py#b")
    write_jsonl([document], tmp_path / "corpus.jsonl")
    lines = (tmp_path / "corpus.jsonl").read_bytes().decode("utf-8").split("\n")
    assert len(lines) == 2
    row = json.loads(lines[0])
    assert Document(row["title"], row["text"], row["source_type"], row["source_ref"]) == document
