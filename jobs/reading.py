"""Turning files into texts: which files there are, and what each of them gives.

Broken input never ends a run: it becomes a refusal that names the file, and the line or row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from engine.errors import NotFoundError
from jobs.reading_records import JSONL_SUFFIXES, read_jsonl, read_parquet
from jobs.reading_rows import Reading, Refusal
from jobs.reading_texts import TEXT_SUFFIXES, read_text_file

__all__ = ["Listing", "Reading", "Refusal", "Source", "list_files", "list_sources", "read_source"]


class Kind(StrEnum):
    """How a file is read."""

    TEXT = "text"
    JSONL = "jsonl"
    PARQUET = "parquet"
    UNSUPPORTED = "unsupported"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read, or a path that can only be refused.

    Attributes:
        path: where it is, absolute.
        ref: its path below the directory that was given, with forward slashes; of a file that was
            given itself, its name.
        kind: how it is read.
    """

    path: str
    ref: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Listing:
    """Sources by ref, and the number of files of a directory that are of no supported kind."""

    sources: tuple[Source, ...]
    skipped: int


def list_files(path: Path) -> Listing:
    """Find what can be read in a directory, or take the file given.

    Of a directory, hidden files and folders are left out, links are followed but no folder is
    entered twice, and the queries beside a BEIR corpus are left out. An unsupported file, given
    itself, and a directory without any readable file are sources that `read_source` refuses.

    Raises:
        NotFoundError: there is nothing at `path`.
    """
    root = path.expanduser().absolute()
    if root.is_file():
        return Listing((Source(str(root), root.name, _kind(root.name) or Kind.UNSUPPORTED),), 0)
    if not root.is_dir():
        raise NotFoundError(f"{path} is neither a file nor a directory")
    sources: list[Source] = []
    skipped = 0
    for file in _files(root, set()):
        kind = _kind(file.name)
        if kind is None or _is_queries(file):
            skipped += 1
            continue
        sources.append(Source(str(file), file.relative_to(root).as_posix(), kind))
    if not sources:
        return Listing((Source(str(root), root.name or "/", Kind.EMPTY),), skipped)
    return Listing(tuple(sorted(sources, key=lambda source: source.ref)), skipped)


def list_sources(path: Path) -> list[Source]:
    """Return the sources of `list_files`, ordered by ref."""
    return list(list_files(path).sources)


def read_source(source: Source, language: str | None = None) -> Iterator[Reading | Refusal]:
    """Read a source, lazily.

    Args:
        source: one of `list_sources`.
        language: of the texts that name none; None: detect.

    Yields:
        An outcome for each text, in the order of the file; never an exception for bad input.
    """
    if not _is_unicode(source.ref):
        shown = source.ref.encode("utf-8", "backslashreplace").decode()
        yield Refusal(shown, "file name is not valid Unicode")
        return
    path = Path(source.path)
    match source.kind:
        case Kind.TEXT:
            yield read_text_file(path, source.ref, language)
        case Kind.JSONL:
            yield from read_jsonl(path, source.ref, language)
        case Kind.PARQUET:
            yield from read_parquet(path, source.ref, language)
        case Kind.UNSUPPORTED:
            yield Refusal(source.ref, "unsupported file type")
        case Kind.EMPTY:
            yield Refusal(source.ref, "directory has no readable file")


def _kind(name: str) -> Kind | None:
    lower = name.lower()
    if lower.endswith(JSONL_SUFFIXES):
        return Kind.JSONL
    if lower.endswith(".parquet"):
        return Kind.PARQUET
    return Kind.TEXT if Path(lower).suffix in TEXT_SUFFIXES else None


def _is_queries(file: Path) -> bool:
    """Say whether a file holds the queries of the BEIR corpus beside it."""
    if not file.name.startswith("queries.jsonl"):
        return False
    return any((file.parent / f"corpus.jsonl{end}").is_file() for end in ("", ".gz"))


def _files(folder: Path, entered: set[tuple[int, int]]) -> Iterator[Path]:
    try:
        status = folder.stat()
        identity = status.st_dev, status.st_ino
        if identity in entered:
            return
        entered.add(identity)
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:  # a folder that cannot be listed has no readable file
        return
    for entry in found:
        if entry.name.startswith("."):
            continue
        try:
            is_folder, is_file = entry.is_dir(), entry.is_file()
        except OSError:  # a link to itself
            continue
        if is_folder:
            yield from _files(Path(entry.path), entered)
        elif is_file:
            yield Path(entry.path)


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
