"""What the segments of a generation hold, read without a JVM: keys, hashes, rows to copy.

A job copies rows and vectors; only who searches needs Lucene and FAISS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.errors import SegmentRefusedError
from engine.ids import ItemId, RevisionId
from engine.index.manifest import Manifest, file_facts, read_manifest
from engine.index.segment import ENTRIES, INDEXED, PASSAGES
from engine.index.segment_builder import SegmentRecord
from engine.store.storage import Storage
from jobs.staging import Key

SEGMENTS = "segments"


def segment_path(storage: Storage, name: str) -> Path:
    """Return the folder of a segment."""
    return storage.local_path(f"{SEGMENTS}/{name}")


@dataclass(frozen=True, slots=True)
class Rows:
    """Passages with their entries and vectors, in ordinal order.

    Attributes:
        passages: `PASSAGES`.
        entries: `ENTRIES`.
        vectors: float32 of shape (passages, dimension).
    """

    passages: pa.Table
    entries: pa.Table
    vectors: NDArray[np.float32]


class StoredSegment:
    """The copyable part of a segment, memory-mapped.

    What is copied gets a new hash, so damage must be found before: `check`.
    """

    def __init__(self, storage: Storage, record: SegmentRecord) -> None:
        """Open it; of its files the entries are checked against their hash.

        Raises:
            SegmentRefusedError: it is missing, damaged, or not the one that was committed.
        """
        self._folder = segment_path(storage, record.name)
        self.manifest: Manifest = read_manifest(self._folder, record.manifest_sha256)
        self._check("entries.arrow")
        self.entries = self._table("entries.arrow", ENTRIES)

    def check(self) -> None:
        """Check passages and vectors against their hashes; reads both files whole.

        Raises:
            SegmentRefusedError: one of them is missing or has changed.
        """
        self._check("passages.arrow")
        self._check("vectors.npy")

    def _check(self, file: str) -> None:
        name, told = self._folder.name, self.manifest.files.get(file)
        try:
            found = file_facts(self._folder / file)
        except OSError:
            raise SegmentRefusedError(name, f"{file} cannot be read") from None
        if found != told:
            raise SegmentRefusedError(name, f"{file} has changed since it was written")

    def _table(self, file: str, schema: pa.Schema) -> pa.Table:
        try:
            table = pa.ipc.open_file(pa.memory_map(str(self._folder / file))).read_all()
        except (OSError, pa.ArrowInvalid):
            raise SegmentRefusedError(self._folder.name, f"{file} cannot be read") from None
        if not table.schema.equals(schema):
            raise SegmentRefusedError(self._folder.name, f"{file} has other columns")
        return table

    @property
    def vectors_path(self) -> Path:
        """Return where its vectors lie."""
        return self._folder / "vectors.npy"

    def revisions(self) -> list[Key]:
        """Return the revision of each entry, by entry."""
        columns = (self.entries[name].to_pylist() for name in ("item_id", "revision_id"))
        return [
            (ItemId(item), RevisionId(revision)) for item, revision in zip(*columns, strict=True)
        ]

    def hashes(self) -> NDArray[np.uint8]:
        """Return the text hash of each passage: uint8 of shape (passages, 16)."""
        column = self._table("passages.arrow", INDEXED)["text_hash"].combine_chunks()
        data = b"".join(bytes(value or b"") for value in column.to_pylist())
        return np.frombuffer(data, np.uint8).reshape(-1, 16)

    def copy(self, entries: NDArray[np.bool_]) -> Rows:
        """Return the rows of some entries, renumbered.

        Args:
            entries: bool of shape (entries,): which.
        """
        passages = self._table("passages.arrow", INDEXED).select(PASSAGES.names)
        owner = np.asarray(passages["entry"].to_numpy())
        chosen = np.flatnonzero(entries[owner])
        place = np.cumsum(entries, dtype=np.int32) - np.int32(1)
        taken = passages.take(chosen)
        column = pa.array(place[owner[chosen]], pa.int32())
        vectors = np.load(self.vectors_path, mmap_mode="r")[chosen]
        return Rows(
            taken.set_column(0, PASSAGES.field("entry"), column).cast(PASSAGES),
            self.entries.filter(pa.array(entries)).cast(ENTRIES),
            np.asarray(vectors, np.float32),
        )


def join_rows(parts: Sequence[Rows], dimension: int) -> Rows:
    """Join rows of several sources, ordered by item, revision, offset.

    The order depends on what the rows say alone, so equal revisions give an equal segment.

    Args:
        parts: each in ordinal order; no revision in two of them.
        dimension: of the vectors.
    """
    offsets = np.cumsum([0, *(part.entries.num_rows for part in parts)])
    entries = pa.concat_tables([ENTRIES.empty_table(), *(part.entries for part in parts)])
    keys = list(
        zip(entries["item_id"].to_pylist(), entries["revision_id"].to_pylist(), strict=True)
    )
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    passages = pa.concat_tables([PASSAGES.empty_table(), *(part.passages for part in parts)])
    owners = _owners(parts, offsets, place)
    starts = np.asarray(passages["char_start"].to_numpy())
    ordinals = np.lexsort((starts, owners))
    owner_column = pa.array(owners[ordinals], pa.int32())
    vectors = [np.empty((0, dimension), np.float32), *(part.vectors for part in parts)]
    return Rows(
        passages.take(ordinals).set_column(0, PASSAGES.field("entry"), owner_column),
        entries.take(order),
        np.concatenate(vectors)[ordinals],
    )


def _owners(
    parts: Sequence[Rows], offsets: NDArray[np.int64], place: NDArray[np.int32]
) -> NDArray[np.int32]:
    owned = [
        place[np.asarray(part.passages["entry"].to_numpy()) + offset]
        for part, offset in zip(parts, offsets, strict=False)  # one offset more: the total
    ]
    return np.concatenate([np.empty(0, np.int32), *owned])


def stored_segments(storage: Storage, records: Sequence[SegmentRecord]) -> Iterator[StoredSegment]:
    """Open segments one by one, in the order given."""
    for record in records:
        yield StoredSegment(storage, record)
