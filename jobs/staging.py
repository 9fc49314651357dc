"""The durable boundary between encoding and building: staged blocks of passages with vectors.

A block is a fixed set of revisions. Its file appears whole, by a rename, or not at all, so a job
that was killed goes on with the blocks that are missing. One row is one revision: a revision is
never half-written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.ids import ItemId, RevisionId
from engine.store.storage import LocalStorage

type Key = tuple[ItemId, RevisionId]

STAGE = "stage"
_SUFFIX = ".arrow"

CUT_SCHEMA = pa.schema(
    [
        ("item_id", pa.string()),
        ("revision_id", pa.string()),
        ("base_id", pa.string()),
        ("title", pa.string()),
        ("language", pa.string()),
        ("source_type", pa.string()),
        ("source_ref", pa.string()),
        ("content_sha256", pa.string()),
        ("starts", pa.list_(pa.int64())),  # code points of the content
        ("ends", pa.list_(pa.int64())),
        ("texts", pa.list_(pa.large_string())),
        ("hashes", pa.list_(pa.binary(16))),  # of title and text: the key of a vector
    ]
)
STAGED_SCHEMA = CUT_SCHEMA.append(pa.field("vectors", pa.large_binary()))
"""`vectors` holds the passages' rows, float32, little-endian, one after another."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some revisions that are read, cut, encoded and staged together."""

    name: str
    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class BlockReport:
    """What became of a block: revisions, passages, and whence its passages' vectors came."""

    revisions: int = 0
    passages: int = 0
    encoded: int = 0
    copied: int = 0
    fingerprint: str = ""
    dimension: int = 0

    def encode(self) -> bytes:
        """Return it as JSON."""
        names = BlockReport.__slots__
        return json.dumps({name: getattr(self, name) for name in names}).encode()

    @classmethod
    def decode(cls, data: bytes) -> BlockReport:
        """Return what `encode` wrote."""
        return cls(**json.loads(data))


def text_hash(title: str, text: str) -> bytes:
    """Return the key of a passage's vector: 16 bytes of SHA-256 over title and text."""
    head = title.encode("utf-8")
    state = hashlib.sha256(len(head).to_bytes(8, "big") + head)
    state.update(text.encode("utf-8"))
    return state.digest()[:16]


def divide(plan_key: str, keys: Sequence[Key], rows: int) -> tuple[Block, ...]:
    """Divide revisions into blocks of `rows`, in the order given; names follow from the keys."""
    blocks = []
    for start in range(0, len(keys), rows):
        part = tuple(keys[start : start + rows])
        state = hashlib.sha256(plan_key.encode())
        state.update(json.dumps(part, ensure_ascii=True).encode())
        blocks.append(Block(state.hexdigest()[:32], part))
    return tuple(blocks)


class Stage:
    """The folder of one job's blocks, named by the job's key."""

    def __init__(self, storage: LocalStorage, key: str) -> None:
        """Name the folder; nothing is made yet."""
        self._storage = storage
        self._key = f"{STAGE}/{key}"

    @property
    def folder(self) -> Path:
        """Return the folder's path."""
        return self._storage.local_path(self._key)

    def open(self) -> None:
        """Make the folder, and remove those of other jobs, which can never be finished."""
        for name in self._storage.list(STAGE):
            if f"{STAGE}/{name}" != self._key:
                self._storage.delete(f"{STAGE}/{name}")
        self.folder.mkdir(parents=True, exist_ok=True)

    def sweep(self) -> None:
        """Remove the folders of all jobs: nothing is left to do."""
        self._storage.delete(STAGE)

    def put(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all, durably.

        Raises:
            StorageFullError: no space is left.
        """
        self._storage.put_bytes_atomic(f"{self._key}/{name}", data)

    def put_block(self, name: str, table: pa.Table, report: BlockReport) -> None:
        """Write a staged block; its report travels in the schema's metadata."""
        marked = table.replace_schema_metadata({"report": report.encode()})
        self.put(name + _SUFFIX, ipc_bytes(marked))

    def done(self, blocks: Iterable[Block]) -> dict[str, BlockReport]:
        """Return the reports of those blocks that are written."""
        present = set(self._storage.list(self._key))
        return {
            block.name: self._report(block.name)
            for block in blocks
            if block.name + _SUFFIX in present
        }

    def _report(self, name: str) -> BlockReport:
        with pa.memory_map(str(self.folder / (name + _SUFFIX))) as source:
            metadata = pa.ipc.open_file(source).schema.metadata or {}
        return BlockReport.decode(metadata[b"report"])

    def read_block(self, name: str) -> pa.Table:
        """Return a staged block, memory-mapped."""
        return self.read_table(name + _SUFFIX)

    def read_table(self, file: str) -> pa.Table:
        """Return a table of the folder, an Arrow IPC file, memory-mapped."""
        return pa.ipc.open_file(pa.memory_map(str(self.folder / file))).read_all()

    def delete(self) -> None:
        """Remove the folder, and the parent when it is empty."""
        self._storage.delete(self._key)
        if not self._storage.list(STAGE):
            self._storage.delete(STAGE)


def keys_table(keys: Iterable[Key]) -> pa.Table:
    """Return revisions as a table of `item_id` and `revision_id`."""
    pairs = list(keys)
    columns = [pa.array([pair[place] for pair in pairs], pa.string()) for place in (0, 1)]
    return pa.Table.from_arrays(columns, names=["item_id", "revision_id"])


def ipc_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def vectors_of(row: bytes, dimension: int) -> NDArray[np.float32]:
    """Return a staged row's vectors: float32 of shape (passages, dimension), read-only."""
    return np.frombuffer(row, "<f4").reshape(-1, dimension)
