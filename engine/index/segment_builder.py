"""Writes a segment: everything under a temporary name, fsynced, then renamed. Or nothing."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.errors import ConflictError, InvalidValueError, StorageFullError, StoreError
from engine.index.languages import FIELDS, field_code
from engine.index.lexical_builder import Lengths, LexicalBuilder
from engine.index.lucene import lucene
from engine.index.manifest import MANIFEST, Manifest, dump_manifest, file_facts
from engine.index.segment import ENTRIES, INDEXED, PASSAGES, strings
from engine.index.vector import VectorSettings, build_index, check_vectors
from engine.store.storage import fsync_folder, make_folder

_UNFINISHED = ".building-"
_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment is built for.

    Attributes:
        shard: the shard it belongs to.
        encoder: fingerprint of the vector space.
        dimension: columns of a vector.
        vectors: which FAISS index to make.
    """

    shard: int
    encoder: str
    dimension: int
    vectors: VectorSettings = field(default_factory=VectorSettings)


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A finished segment, as a generation lists it.

    Attributes:
        name: its folder's name.
        shard: the shard it belongs to.
        passages: how many it holds, at least 1.
        entries: how many revisions they belong to.
        size_bytes: of all its files.
        manifest_sha256: of its `segment.json`, which holds the hashes of the others.
    """

    name: str
    shard: int
    passages: int
    entries: int
    size_bytes: int
    manifest_sha256: str


def _check(passages: pa.Table, entries: pa.Table, vectors: NDArray[Any], dimension: int) -> None:
    if not passages.schema.equals(PASSAGES) or not entries.schema.equals(ENTRIES):
        raise InvalidValueError("passages or entries do not have the columns of a segment")
    if not passages.num_rows:
        raise InvalidValueError("a segment needs at least one passage")
    for table in (passages, entries):
        if any(column.null_count for column in table.columns):
            raise InvalidValueError("passages and entries hold no nulls")
    if passages.num_rows != len(vectors):
        raise InvalidValueError(f"{passages.num_rows} passages have {len(vectors)} vectors")
    rows = passages["entry"].to_numpy()
    if rows.min() < 0 or rows.max() >= entries.num_rows:
        raise InvalidValueError("a passage names an entry that is not there")
    check_vectors(vectors, dimension)


@contextlib.contextmanager
def _disk_failures() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFullError("no space left while writing a segment: free some") from error
        raise StoreError(f"cannot write a segment: {error.strerror or error}") from error


def build_segment(
    directory: Path,
    passages: pa.Table,
    entries: pa.Table,
    vectors: NDArray[np.float32],
    header: SegmentHeader,
) -> SegmentRecord:
    """Write a segment: afterwards `directory` is whole and durable, or does not exist.

    Args:
        directory: its final folder; its parent is made. What a crashed build of the same name
            left is removed, so two builds of one name must not run at once.
        passages: see `PASSAGES`, in ordinal order, at least one row.
        entries: see `ENTRIES`.
        vectors: float32 of shape (passages, dimension), unit rows (may be memory-mapped).
        header: what it is built for.

    Returns:
        What a generation lists.

    Raises:
        InvalidValueError: the input is inconsistent, or a vector is not a finite unit row.
        ConflictError: the folder exists.
        StorageFullError: no space is left; nothing is left behind.
        StoreError: it cannot be written; nothing is left behind.
        JavaError: the JVM is not running, or Lucene failed.
    """
    _check(passages, entries, vectors, header.dimension)
    if directory.exists():
        raise ConflictError(f"segment {directory.name} exists")
    with _disk_failures():
        make_folder(directory.parent)
        clean_unfinished(directory.parent, directory.name)
        prefix = f".{directory.name}{_UNFINISHED}"
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=directory.parent))
        try:
            record = _write(work, directory.name, (passages, entries, vectors), header)
            work.chmod(0o755)
            work.rename(directory)
            _fsync(directory.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return record


def clean_unfinished(parent: Path, name: str = "") -> int:
    """Remove what crashed builds left in a folder of segments, and return how many.

    Args:
        parent: the folder.
        name: only builds of this segment; default of all. No such build may be running.
    """
    pattern = f".{name}{_UNFINISHED}*" if name else f".*{_UNFINISHED}*"
    leftovers = [path for path in parent.glob(pattern) if path.is_dir()]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return len(leftovers)


def discard_segment(parent: Path, name: str) -> None:
    """Remove a segment, whole or not at all: what a crash leaves is cleaned as unfinished.

    Args:
        parent: the folder of segments.
        name: of the segment; a missing one is no error.
    """
    away = parent / f".{name}{_UNFINISHED}discarded"
    shutil.rmtree(away, ignore_errors=True)
    try:
        (parent / name).rename(away)
    except FileNotFoundError:
        return
    fsync_folder(parent)
    shutil.rmtree(away, ignore_errors=True)


def _write(
    work: Path,
    name: str,
    rows: tuple[pa.Table, pa.Table, NDArray[np.float32]],
    header: SegmentHeader,
) -> SegmentRecord:
    passages, entries, vectors = rows
    codes = _field_codes(passages, entries)
    lengths = _write_lucene(work / "lucene", passages, entries, codes)
    added = [pa.array(codes), pa.array(lengths.norms), pa.array(lengths.tokens)]
    indexed = pa.Table.from_arrays([*passages.columns, *added], schema=INDEXED)
    _write_arrow(work / "passages.arrow", indexed)
    _write_arrow(work / "entries.arrow", entries)
    np.save(work / "vectors.npy", np.ascontiguousarray(vectors), allow_pickle=False)
    facts = build_index(work / "faiss.index", vectors, header.vectors)
    paths = sorted(path for path in work.rglob("*") if path.is_file())
    manifest = Manifest(
        shard=header.shard,
        passages=passages.num_rows,
        entries=entries.num_rows,
        encoder=header.encoder,
        dimension=header.dimension,
        vectors=facts,
        analyzers={FIELDS[c].name: FIELDS[c].signature for c in np.unique(codes).tolist()},
        lucene=lucene().version,
        statistics=_statistics(passages, entries, codes, lengths),
        files={path.relative_to(work).as_posix(): file_facts(path) for path in paths},
    )
    data = dump_manifest(manifest)
    (work / MANIFEST).write_bytes(data)
    for path in [*paths, work / MANIFEST, work / "lucene", work]:
        _fsync(path)
    size = len(data) + sum(facts.size_bytes for facts in manifest.files.values())
    digest = hashlib.sha256(data).hexdigest()
    return SegmentRecord(name, header.shard, passages.num_rows, entries.num_rows, size, digest)


def _field_codes(passages: pa.Table, entries: pa.Table) -> NDArray[np.uint8]:
    languages = strings(entries["language"])
    by_entry = np.array([field_code(language) for language in languages], dtype=np.uint8)
    return np.asarray(by_entry[passages["entry"].to_numpy()])


def _write_lucene(
    path: Path, passages: pa.Table, entries: pa.Table, codes: NDArray[np.uint8]
) -> Lengths:
    titles = strings(entries["title"])
    path.mkdir()
    builder = LexicalBuilder(path)
    finished = False
    try:
        ordinal = 0
        for batch in passages.select(["entry", "text"]).to_batches(max_chunksize=_BATCH):
            owners, texts = batch.column("entry").to_numpy(), batch.column("text").to_pylist()
            for owner, text in zip(owners, texts, strict=True):
                builder.add(int(codes[ordinal]), f"{titles[owner]}\n{text}")
                ordinal += 1
        finished = True
    finally:
        if not finished:
            builder.abort()
    return builder.finish()


def _write_arrow(path: Path, table: pa.Table) -> None:
    whole = table.combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)


def _statistics(
    passages: pa.Table, entries: pa.Table, codes: NDArray[np.uint8], lengths: Lengths
) -> dict[str, dict[str, tuple[int, int]]]:
    names = strings(entries["base_id"])
    bases = sorted(set(names))
    by_entry = np.array([bases.index(name) for name in names], dtype=np.int32)
    owners = by_entry[passages["entry"].to_numpy()]
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for base_code, base in enumerate(bases):
        fields = {}
        for code in np.unique(codes).tolist():
            tokens = lengths.tokens[(owners == base_code) & (codes == code)]
            count = int(np.count_nonzero(tokens))
            if count:
                fields[FIELDS[code].name] = (count, int(tokens.sum(dtype=np.int64)))
        found[base] = fields
    return found


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
