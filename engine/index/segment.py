"""A segment on disk: passages, vectors, FAISS and Lucene under one ordinal, opened or refused.

Files: `passages.arrow`, `entries.arrow` (Arrow IPC), `vectors.npy`, `faiss.index`, `lucene/`,
`segment.json`. Never changed once they have their name. `segment_builder.py` writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.errors import SegmentRefusedError
from engine.ids import BaseId, ItemId, RevisionId
from engine.index.languages import FIELDS
from engine.index.lexical import LexicalIndex
from engine.index.manifest import Manifest, check_files, read_manifest
from engine.index.vector import VectorIndex, VectorSettings

Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]

_GIVEN: list[pa.Field[Any]] = [
    pa.field("entry", pa.int32(), nullable=False),
    pa.field("char_start", pa.int32(), nullable=False),
    pa.field("char_end", pa.int32(), nullable=False),
    pa.field("text", pa.large_string(), nullable=False),
    pa.field("text_hash", pa.binary(16), nullable=False),
]
_COUNTED: list[pa.Field[Any]] = [
    pa.field("field", pa.uint8(), nullable=False),
    pa.field("norm", pa.uint8(), nullable=False),
    pa.field("length", pa.int32(), nullable=False),
]

PASSAGES = pa.schema(_GIVEN)
"""What `build_segment` takes, a row per passage in ordinal order: the row of `ENTRIES` it belongs
to, its range in code points of the stored content, that slice, and the hash that names its
vector."""

INDEXED = pa.schema([*_GIVEN, *_COUNTED])
"""What `passages.arrow` holds besides: field code, Lucene's length byte, tokens."""

ENTRIES = pa.schema(
    [
        pa.field(name, pa.string(), nullable=False)
        for name in (
            "item_id",
            "revision_id",
            "base_id",
            "title",
            "language",
            "source_type",
            "source_ref",
            "content_sha256",
        )
    ]
)
"""A row per (item, revision) of the segment."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One revision in a segment: what a result says about it."""

    item_id: ItemId
    revision_id: RevisionId
    base_id: BaseId
    title: str
    language: str
    source_type: str
    source_ref: str
    content_sha256: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What a segment must be to be opened; None accepts any.

    Attributes:
        encoder: fingerprint of the vector space.
        dimension: columns of a vector.
        manifest_sha256: of `segment.json`, as the generation recorded it.
    """

    encoder: str | None = None
    dimension: int | None = None
    manifest_sha256: str | None = None


def _read_arrow(path: Path, schema: pa.Schema, name: str, *, full: bool) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=full)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise SegmentRefusedError(name, f"{path.name} cannot be read") from error
    if not table.schema.equals(schema):
        raise SegmentRefusedError(name, f"{path.name} has other columns")
    return table.combine_chunks()


def _read_vectors(path: Path, name: str) -> NDArray[np.float32]:
    try:
        # A plain array over the map: fancy indexing of a memmap would make memmaps.
        vectors = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (ValueError, OSError, SyntaxError, TokenError) as error:  # numpy parses its header
        raise SegmentRefusedError(name, "vectors.npy cannot be read") from error
    if vectors.dtype != np.float32 or vectors.ndim != 2 or not vectors.flags.c_contiguous:
        raise SegmentRefusedError(name, "vectors.npy is not a float32 matrix")
    return vectors


def _check_identity(manifest: Manifest, expected: Expected, name: str) -> None:
    if expected.encoder is not None and manifest.encoder != expected.encoder:
        raise SegmentRefusedError(
            name, f"it was made by encoder {manifest.encoder[:12]}, not {expected.encoder[:12]}"
        )
    if expected.dimension is not None and manifest.dimension != expected.dimension:
        raise SegmentRefusedError(
            name, f"its vectors have dimension {manifest.dimension}, not {expected.dimension}"
        )
    known = {field.name: field.signature for field in FIELDS}
    for field, signature in manifest.analyzers.items():
        if known.get(field) != signature:
            raise SegmentRefusedError(name, f"its analyzer of {field} is {signature}")


@dataclass(frozen=True, slots=True)
class _Files:
    passages: pa.Table
    entries: pa.Table
    vectors: NDArray[np.float32]


def _open_arrays(directory: Path, manifest: Manifest, name: str) -> _Files:
    files = _Files(
        # All text of the passages is not worth reading at each open: `verify` hashes it.
        _read_arrow(directory / "passages.arrow", INDEXED, name, full=False),
        _read_arrow(directory / "entries.arrow", ENTRIES, name, full=True),
        _read_vectors(directory / "vectors.npy", name),
    )
    counts = {
        "passages.arrow": (files.passages.num_rows, manifest.passages),
        "entries.arrow": (files.entries.num_rows, manifest.entries),
        "vectors.npy": (files.vectors.shape[0], manifest.passages),
    }
    for file, (held, told) in counts.items():
        if held != told:
            raise SegmentRefusedError(name, f"{file} holds {held} rows, segment.json says {told}")
    if files.vectors.shape[1] != manifest.dimension:
        raise SegmentRefusedError(name, f"vectors.npy has dimension {files.vectors.shape[1]}")
    return files


class Segment:
    """An open segment. Arrays are read-only and memory-mapped where they are large.

    Attributes:
        name: its folder's name.
        manifest: what `segment.json` says.
        lexical: the Lucene side.
        semantic: the FAISS side.
        entry: int32 of shape (passages,), row of `entries` of each passage.
        char_start, char_end: int32 of shape (passages,), code points of the stored content.
        field: uint8 of shape (passages,), see `languages.FIELDS`.
        norm: uint8 of shape (passages,), Lucene's length byte.
        length: int32 of shape (passages,), tokens.
        text_hash: uint8 of shape (passages, 16).
        vectors: float32 of shape (passages, dimension), unit rows.
        entries: the table, see `ENTRIES`.
        bases: distinct base ids, sorted.
        entry_base: int32 of shape (entries,), index into `bases`.
    """

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        files: _Files,
        lexical: LexicalIndex,
        semantic: VectorIndex,
    ) -> None:
        """Take over what `open` has checked."""
        self.name, self.manifest = name, manifest
        self.lexical, self.semantic = lexical, semantic
        self.entry: Int32 = _column(files.passages, "entry")
        self.char_start: Int32 = _column(files.passages, "char_start")
        self.char_end: Int32 = _column(files.passages, "char_end")
        self.field: UInt8 = _column(files.passages, "field")
        self.norm: UInt8 = _column(files.passages, "norm")
        self.length: Int32 = _column(files.passages, "length")
        self.text_hash: UInt8 = _hashes(files.passages["text_hash"])
        self.vectors = files.vectors
        self.entries: pa.Table = files.entries
        self.bases, self.entry_base = _bases(files.entries)
        self._texts: pa.ChunkedArray[Any] = files.passages["text"]
        self._columns = [files.entries[name] for name in ENTRIES.names]

    @classmethod
    def open(
        cls,
        directory: Path,
        expected: Expected | None = None,
        vectors: VectorSettings | None = None,
        *,
        verify: bool = False,
    ) -> Segment:
        """Open a segment, or refuse it by name.

        Sizes, counts, encoder, dimension, format and analyzers are always checked.

        Args:
            directory: its folder.
            expected: what it must be.
            vectors: with `search` "exact", an approximate index is there but not used.
            verify: also compute every file's hash.

        Raises:
            SegmentRefusedError: with the reason.
            JavaError: the JVM is not running.
        """
        name, expected = directory.name, expected or Expected()
        manifest = read_manifest(directory, expected.manifest_sha256)
        _check_identity(manifest, expected, name)
        check_files(directory, manifest, verify=verify)
        files = _open_arrays(directory, manifest, name)
        lexical = LexicalIndex.open(directory / "lucene", name)
        try:
            if lexical.passages != manifest.passages:
                raise SegmentRefusedError(
                    name,
                    f"lucene holds {lexical.passages} passages, "
                    f"segment.json says {manifest.passages}",
                )
            semantic = VectorIndex.open(
                directory / "faiss.index", files.vectors, manifest.vectors, vectors
            )
        except SegmentRefusedError:
            lexical.close()
            raise
        return cls(name, manifest, files, lexical, semantic)

    def close(self) -> None:
        """Release every file. Nothing of the segment may be used afterwards."""
        self.lexical.close()
        self.semantic.close()
        nothing = np.empty(0, np.int32)
        self.entry = self.char_start = self.char_end = self.length = self.entry_base = nothing
        self.field = self.norm = np.empty(0, np.uint8)
        self.text_hash = np.empty((0, 16), np.uint8)
        self.vectors = np.empty((0, self.manifest.dimension), np.float32)
        self.entries = ENTRIES.empty_table()
        self._texts = pa.chunked_array([], pa.large_string())
        self._columns = []

    @property
    def passages(self) -> int:
        """Return how many passages it holds."""
        return self.manifest.passages

    def text(self, ordinal: int) -> str:
        """Return the text of a passage: a slice of the stored content."""
        return str(self._texts[ordinal].as_py())

    def describe(self, entry: int) -> Entry:
        """Return one row of `entries`."""
        values = [str(column[entry].as_py()) for column in self._columns]
        item, revision, base, *rest = values
        return Entry(ItemId(item), RevisionId(revision), BaseId(base), *rest)


def _column(table: pa.Table, name: str) -> NDArray[Any]:
    array = table[name].combine_chunks() if table[name].num_chunks != 1 else table[name].chunk(0)
    return np.asarray(array.to_numpy(zero_copy_only=True))


def _hashes(column: Any) -> UInt8:
    array = column.chunk(0)
    values = np.frombuffer(array.buffers()[1], dtype=np.uint8)  # fixed width, no nulls
    return values[array.offset * 16 : (array.offset + len(array)) * 16].reshape(-1, 16)


def strings(column: pa.ChunkedArray[Any]) -> list[str]:
    """Return a column of text without nulls as a list."""
    return [str(value) for value in column.to_pylist()]


def _bases(entries: pa.Table) -> tuple[tuple[BaseId, ...], Int32]:
    names = strings(entries["base_id"])
    bases = tuple(sorted(set(names)))
    codes = {base: code for code, base in enumerate(bases)}
    return tuple(BaseId(b) for b in bases), np.array([codes[n] for n in names], dtype=np.int32)
