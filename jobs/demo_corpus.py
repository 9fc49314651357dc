"""The demo's corpus: the documentation of the Python distributions installed here.

Each distribution's description, and each docstring of a module, class or function, is one item.
Sources are read by parsing; nothing is imported or executed.
"""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

PREFERRED = (
    "ray",
    "mcp",
    "starlette",
    "pydantic",
    "faiss-cpu",
    "pyserini",
    "transformers",
    "deltalake",
    "rich",
    "typer",
    "uvicorn",
    "numpy",
    "pyarrow",
    "torch",
    "hypothesis",
    "pytest",
    "trafilatura",
    "tokenizers",
    "lingua-language-detector",
    "semchunk",
    "ir-measures",
    "orjson",
    "safetensors",
    "pyjwt",
)
"""Read first when not everything is read: what Octavo itself stands on."""

CHARS_PER_PASSAGE = 247
"""Characters of English documentation that fill one passage of 128 tokens, about."""

_SHORTEST = 120
_LONGEST_OF_A_SAMPLE = 12_000
_LONGEST = 1_000_000
_LARGEST_SOURCE_BYTES = 2_000_000
_PASSAGES_OF_ONE = 80
_ITEMS_OF_ONE_FILE = 4
_SKIPPED_FOLDERS = {
    "tests",
    "test",
    "testing",
    "_vendor",
    "vendored",
    "thirdparty_files",
    "examples",
}

type Docstringed = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Document:
    """One text of an installed distribution. `source_ref` is unique in a corpus."""

    title: str
    text: str
    source_type: str
    source_ref: str

    @property
    def passages(self) -> int:
        """Estimate how many passages it will be cut into, at least 1."""
        return max(1, round(len(self.text) / CHARS_PER_PASSAGE))


@dataclass(slots=True)
class Corpus:
    """What was chosen. `unreadable` counts the files that could not be read or parsed."""

    documents: list[Document] = field(default_factory=list)
    distributions: int = 0
    unreadable: int = 0

    @property
    def passages(self) -> int:
        """Estimate the passages of all documents."""
        return sum(document.passages for document in self.documents)


def docstrings(source: str, module: str, path: str) -> Iterator[Document]:
    """Yield the public docstrings of one source file, in the order of the file.

    Names with a leading underscore are left out with all they hold, and so are docstrings shorter
    than a sentence or two.

    Args:
        source: Python source.
        module: its dotted name, which begins every title.
        path: its path in the distribution, which begins every source ref.

    Raises:
        SyntaxError: it is not Python of this version.
        ValueError: it holds a null byte.
        RecursionError: it is nested too deeply to parse.
    """
    waiting: list[tuple[str, Docstringed]] = [("", ast.parse(source))]
    while waiting:
        name, node = waiting.pop(0)
        text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "").strip()
        if _is_a_text(text):
            title = f"{module}.{name}" if name else module
            ref = f"{path}#{name}" if name else path
            yield Document(title[:500], text, "docstring", ref)
        waiting.extend(
            (f"{name}.{child.name}".lstrip("."), child)
            for child in node.body
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not child.name.startswith("_")
        )


def _is_a_text(text: str) -> bool:
    if not _SHORTEST <= len(text) <= _LONGEST or "\0" in text:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in text)


def description(distribution: importlib.metadata.Distribution) -> Document | None:
    """Return the description (README) of a distribution, or None when it has none."""
    text = (distribution.metadata.get("Description") or "").strip()
    if not _is_a_text(text):
        return None
    name, version = distribution.metadata["Name"], distribution.version
    title = f"{name} {version}"
    summary = distribution.metadata.get("Summary")
    if summary and summary != "UNKNOWN":
        title = f"{title}: {' '.join(summary.split())}"
    return Document(title[:500], text, "distribution", f"{name}/{version}")


def collect(
    distributions: Iterable[importlib.metadata.Distribution], *, passages: int | None
) -> Corpus:
    """Choose documents of some distributions.

    Args:
        distributions: where to look; of several with one name the first counts.
        passages: stop at about so many, taking a part of each distribution, preferred ones
            first; None reads everything.

    Returns:
        The documents, in the same order for the same installation.
    """
    corpus = Corpus()
    for distribution in _in_order(distributions):
        left = None if passages is None else passages - corpus.passages
        if left is not None and left <= 0:
            break
        before = len(corpus.documents)
        _take(distribution, corpus, left)
        corpus.distributions += len(corpus.documents) > before
    return corpus


def _in_order(
    distributions: Iterable[importlib.metadata.Distribution],
) -> list[importlib.metadata.Distribution]:
    named: dict[str, importlib.metadata.Distribution] = {}
    for distribution in distributions:
        name = re.sub(r"[-_.]+", "-", distribution.metadata.get("Name") or "").lower()
        if name and name != "octavo":
            named.setdefault(name, distribution)
    places = {name: place for place, name in enumerate(PREFERRED)}
    return [named[name] for name in sorted(named, key=lambda key: (places.get(key, 99), key))]


def _take(distribution: importlib.metadata.Distribution, corpus: Corpus, left: int | None) -> None:
    """Add one distribution's documents: all of them, or a part when `left` passages remain."""
    readme = description(distribution)
    budget = None if left is None else min(left, _PASSAGES_OF_ONE)
    if readme is not None and (budget is None or len(readme.text) <= _LONGEST_OF_A_SAMPLE):
        corpus.documents.append(readme)
        budget = None if budget is None else budget - readme.passages
    for path, module, source in _sources(distribution, corpus):
        if budget is not None and budget <= 0:
            return
        for document in _documents(source, module, path, corpus, sample=budget is not None):
            if budget is not None:
                if document.passages > budget or len(document.text) > _LONGEST_OF_A_SAMPLE:
                    continue
                budget -= document.passages
            corpus.documents.append(document)


def _documents(
    source: str, module: str, path: str, corpus: Corpus, *, sample: bool
) -> list[Document]:
    try:
        found = docstrings(source, module, path)
        return list(islice(found, _ITEMS_OF_ONE_FILE) if sample else found)
    except (SyntaxError, ValueError, RecursionError):
        corpus.unreadable += 1
        return []


def _sources(
    distribution: importlib.metadata.Distribution, corpus: Corpus
) -> Iterator[tuple[str, str, str]]:
    """Yield path, dotted module name and text of a distribution's public sources."""
    files = [file for file in distribution.files or () if file.suffix == ".py"]
    for file in sorted(files, key=lambda file: (len(file.parts), file.as_posix())):
        parts = [*file.parts[:-1], file.stem]
        if file.stem == "__init__":
            parts.pop()
        if not parts or not all(_is_public(part) for part in parts):
            continue
        text = _read(Path(str(file.locate())))
        if text is None:
            corpus.unreadable += 1
        else:
            yield file.as_posix(), ".".join(parts), text


def _is_public(part: str) -> bool:
    return part.isidentifier() and not part.startswith("_") and part not in _SKIPPED_FOLDERS


def _read(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LARGEST_SOURCE_BYTES:
            return None
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def write_jsonl(documents: Iterable[Document], path: Path) -> None:
    """Write documents as the JSON Lines that `octavo ingest` reads, one a line."""
    with path.open("w", encoding="utf-8") as file:
        for document in documents:
            row = {
                "title": document.title,
                "text": document.text,
                "source_type": document.source_type,
                "source_ref": document.source_ref,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
