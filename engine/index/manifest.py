"""`segment.json`: what a segment is, what every one of its files must be.

Stored JSON is versioned by `FORMAT`; an older format is refused by name, never guessed at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from engine.errors import SegmentRefusedError
from engine.index.vector_builder import VectorFacts

FORMAT = 2
MANIFEST = "segment.json"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Size and lower-case hexadecimal SHA-256 of one file."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `segment.json` says.

    Attributes:
        shard: the shard it belongs to.
        passages: rows of `passages.arrow` and `vectors.npy`, documents of Lucene and FAISS.
        entries: rows of `entries.arrow`.
        encoder: fingerprint of the vector space.
        dimension: columns of a vector.
        vectors: what `faiss.index` is, and what it finds.
        analyzers: field name to analyzer signature, of the fields that are used.
        lucene: version of Lucene that wrote `lucene/`.
        statistics: base id to field name to (passages with a token, tokens).
        files: path below the folder to its facts; every file but `segment.json`.
    """

    shard: int
    passages: int
    entries: int
    encoder: str
    dimension: int
    vectors: VectorFacts
    analyzers: Mapping[str, str]
    lucene: str
    statistics: Mapping[str, Mapping[str, tuple[int, int]]]
    files: Mapping[str, FileFacts]


def dump_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of `segment.json`: sorted keys, one line end at the end."""
    document = {"format": FORMAT} | {
        name: getattr(manifest, name) for name in Manifest.__slots__ if name != "files"
    }
    document["files"] = {
        path: {"bytes": facts.size_bytes, "sha256": facts.sha256}
        for path, facts in manifest.files.items()
    }
    options = orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(document, option=options)


def _parse(document: Mapping[str, Any]) -> Manifest:
    values = {name: document[name] for name in Manifest.__slots__}
    values["files"] = {
        str(path): FileFacts(int(facts["bytes"]), str(facts["sha256"]))
        for path, facts in document["files"].items()
    }
    facts = document["vectors"]
    values["vectors"] = VectorFacts(**facts | {"recall": tuple(facts["recall"])})
    values["statistics"] = {
        base: {field: (int(n), int(t)) for field, (n, t) in fields.items()}
        for base, fields in document["statistics"].items()
    }
    return Manifest(**values)


def read_manifest(directory: Path, sha256: str | None = None) -> Manifest:
    """Read a segment's `segment.json`.

    Args:
        directory: the segment's folder.
        sha256: what the file's hash must be, or None.

    Raises:
        SegmentRefusedError: no segment, another format, damaged, or not the one expected.
    """
    name = directory.name
    try:
        data = (directory / MANIFEST).read_bytes()
    except OSError as error:
        raise SegmentRefusedError(name, f"it has no readable {MANIFEST}") from error
    try:
        document = orjson.loads(data)
        version = document["format"]
        if version != FORMAT:
            raise SegmentRefusedError(name, f"its format is {version}, this program reads {FORMAT}")
        manifest = _parse(document)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise SegmentRefusedError(name, f"its {MANIFEST} is damaged") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise SegmentRefusedError(name, f"its {MANIFEST} is not the one that was committed")
    return manifest


def file_facts(path: Path) -> FileFacts:
    """Return size and SHA-256 of a file, read in blocks."""
    state, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            state.update(block)
            size += len(block)
    return FileFacts(size, state.hexdigest())


def check_files(directory: Path, manifest: Manifest, *, verify: bool) -> None:
    """Check that every file is there with its size and, if asked, its hash.

    Raises:
        SegmentRefusedError: a file is missing, cut short, changed, or too many.
    """
    name = directory.name
    for path, facts in manifest.files.items():
        try:
            size = (directory / path).stat().st_size
        except OSError as error:
            raise SegmentRefusedError(name, f"{path} is missing") from error
        if size != facts.size_bytes:
            raise SegmentRefusedError(name, f"{path} has {size} bytes, not {facts.size_bytes}")
        if verify and file_facts(directory / path) != facts:
            raise SegmentRefusedError(name, f"{path} has changed since it was written")
    present = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    foreign = present - set(manifest.files) - {MANIFEST}
    if foreign:
        raise SegmentRefusedError(name, f"{min(foreign)} does not belong to it")
