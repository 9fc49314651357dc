"""Looks for a text in every file below a root, unpacking what can be unpacked.

Raw bytes in UTF-8 and UTF-16 and as JSON escapes them; gzip; every text column of Parquet, page by
page. Arrow files and Parquet footers are not compressed: raw bytes show them.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WINDOW_CHARS = 40
WINDOWS = 24
"""How many pieces of a text are looked for, evenly spread: first and last always."""
LEAST_BYTES = 16
"""Shorter pieces are found anywhere by chance: in other titles, ids and vectors."""
_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """A file that holds a piece of the text, and in which form."""

    file: str
    form: str


def windows(text: str) -> tuple[str, ...]:
    """Return pieces of a text, distinct, at most `WINDOWS`: a short text is one piece."""
    last = max(0, len(text) - WINDOW_CHARS)
    starts = {round(last * place / (WINDOWS - 1)) for place in range(WINDOWS)}
    pieces = (text[start : start + WINDOW_CHARS].strip() for start in sorted(starts))
    return tuple(dict.fromkeys(p for p in pieces if len(p.encode("utf-8")) >= LEAST_BYTES))


def unshared(pieces: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """Return the pieces that no other text holds: only those prove anything."""
    left = list(dict.fromkeys(pieces))
    for text in others:
        left = [piece for piece in left if piece not in text]
        if not left:
            break
    return tuple(left)


def search_root(
    root: Path, pieces: Sequence[str], without: Path | None = None
) -> tuple[Finding, ...]:
    """Return where pieces of a text lie below a root: each file and form once, by file.

    Files that vanish while they are read hold nothing any more.

    Args:
        root: the folder.
        pieces: of the text.
        without: a folder below the root that is not looked into.
    """
    if not pieces:
        return ()
    needles = _needles(pieces)
    found: list[Finding] = []
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if without is not None and path.is_relative_to(without):
            continue
        name = path.relative_to(root).as_posix()
        forms = dict.fromkeys(_forms(path, needles, pieces))
        found.extend(Finding(name, form) for form in forms)
    return tuple(found)


def _needles(pieces: Sequence[str]) -> dict[str, tuple[bytes, ...]]:
    def encoded(codec: str) -> tuple[bytes, ...]:
        return tuple(piece.encode(codec, "surrogatepass") for piece in pieces)

    escaped = tuple(json.dumps(piece)[1:-1].encode() for piece in pieces)
    return {name: encoded(name) for name in ("utf-8", "utf-16-le", "utf-16-be")} | {"json": escaped}


def _forms(path: Path, needles: dict[str, tuple[bytes, ...]], pieces: Sequence[str]) -> list[str]:
    found: list[str] = []
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
            stream.seek(0)
            found += _in_blocks(iter(lambda: stream.read(_BLOCK), b""), needles)
        if head[:2] == b"\x1f\x8b":
            with gzip.open(path) as unpacked:
                inside = _in_blocks(iter(lambda: unpacked.read(_BLOCK), b""), needles)
                found += [f"gzip {form}" for form in inside]
        if head == b"PAR1":
            found += [f"parquet column {name}" for name in _in_columns(path, pieces)]
    except FileNotFoundError:
        return found
    except (EOFError, gzip.BadGzipFile, zlib.error, pa.ArrowInvalid):
        return [*found, "cannot be unpacked"]
    return found


def _in_blocks(blocks: Iterator[bytes], needles: dict[str, tuple[bytes, ...]]) -> list[str]:
    """Return the encodings found in a stream; pieces may lie across its blocks."""
    overlap = max(len(needle) for group in needles.values() for needle in group)
    found: dict[str, None] = {}
    tail = b""
    for block in blocks:
        data = tail + block
        for form, group in needles.items():
            if form not in found and any(needle in data for needle in group):
                found[form] = None
        tail = data[-overlap:]
    return list(found)


def _in_columns(path: Path, pieces: Sequence[str]) -> list[str]:
    found: dict[str, None] = {}
    with pq.ParquetFile(path) as file:
        names = [
            field.name
            for field in file.schema_arrow
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        ]
        for batch in file.iter_batches(batch_size=256, columns=names):
            for name in names:
                values = [value for value in batch.column(name).to_pylist() if value]
                if any(piece in value for value in values for piece in pieces):
                    found[name] = None
    return list(found)
