"""The log of generations: a Delta table, a row per generation, numbers without a gap.

A generation is an immutable, complete list of segments. Committing is a compare-and-swap: the
number must be the newest plus one, so of two concurrent commits exactly one takes effect.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import (
    InvalidValueError,
    NotFoundError,
    StaleVersionError,
    StorageFullError,
    StoreError,
)
from engine.index.languages import FIELDS
from engine.index.segment_builder import SegmentRecord
from engine.store.log import DataFile, Follower
from engine.store.storage import Storage
from engine.store.tables import MAX_TRIES, Table, TableSpec, contention, pause


def _required(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


_SEGMENT = pa.struct(
    [
        _required("name", pa.string()),
        _required("shard", pa.int32()),
        _required("passages", pa.int64()),
        _required("entries", pa.int64()),
        _required("size_bytes", pa.int64()),
        _required("manifest_sha256", pa.string()),
    ]
)

GENERATIONS = TableSpec(
    "generations",
    pa.schema(
        [
            _required("number", pa.int64()),
            _required("shards", pa.int32()),
            _required("encoder", pa.string()),
            _required("dimension", pa.int32()),
            _required("passages_config", pa.string()),
            _required("analyzers", pa.string()),
            _required("reference_path", pa.string()),
            _required("reference_sha256", pa.string()),
            _required("created_at", pa.string()),
            _required("segments", pa.list_(_SEGMENT)),
        ]
    ),
    sort_by=("number",),
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference sample that hybrid scores are measured against.

    Attributes:
        path: its key below the root, a `.npy` of float32 unit rows.
        sha256: of that file.
    """

    path: str
    sha256: str


def _analyzers() -> dict[str, str]:
    return {field.name: field.signature for field in FIELDS}


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation.

    Attributes:
        number: 1 for the first.
        shards: how many shards the items are spread over.
        encoder: fingerprint of the vector space.
        dimension: columns of a vector.
        passages_config: how revisions were cut, as JSON.
        reference: made with the first generation, inherited by the next.
        created_at: ISO 8601, UTC.
        segments: all of them, every shard; names are distinct.
        analyzers: field name to analyzer signature.
    """

    number: int
    shards: int
    encoder: str
    dimension: int
    passages_config: str
    reference: Reference
    created_at: str
    segments: tuple[SegmentRecord, ...]
    analyzers: Mapping[str, str] = field(default_factory=_analyzers)

    def check(self) -> None:
        """Refuse a record that cannot be a generation.

        Raises:
            InvalidValueError: a segment is named twice or lies in no shard.
        """
        names = [segment.name for segment in self.segments]
        if len(set(names)) != len(names):
            raise InvalidValueError("a generation names a segment twice")
        if any(not 0 <= segment.shard < self.shards for segment in self.segments):
            raise InvalidValueError(f"a segment lies outside the {self.shards} shards")


def _row_of(record: GenerationRecord) -> dict[str, Any]:
    names = GENERATIONS.schema.names
    row = {name: getattr(record, name) for name in names if hasattr(record, name)}
    row["analyzers"] = orjson.dumps(dict(record.analyzers), option=orjson.OPT_SORT_KEYS).decode()
    row["reference_path"], row["reference_sha256"] = record.reference.path, record.reference.sha256
    row["segments"] = [asdict(segment) for segment in record.segments]
    return row


def _record_of(row: Mapping[str, Any]) -> GenerationRecord:
    values = dict(row)
    values["reference"] = Reference(values.pop("reference_path"), values.pop("reference_sha256"))
    values["analyzers"] = orjson.loads(values["analyzers"])
    values["segments"] = tuple(SegmentRecord(**segment) for segment in values["segments"])
    return GenerationRecord(**values)


class GenerationLog:
    """Reads and commits the generations of a store. Thread-safe; processes meet in the table."""

    def __init__(self, storage: Storage) -> None:
        """Name the log; nothing is read or made."""
        self._storage = storage
        self._table = Table(storage, GENERATIONS)
        self._follower = Follower(self._table.log)
        self._records: dict[int, GenerationRecord] = {}
        self._lock = threading.Lock()

    def newest(self) -> GenerationRecord | None:
        """Return the newest generation, or None when there is none yet.

        Costs one look at the file system when nothing changed; then the same object comes back.

        Raises:
            StoreError: the table cannot be read.
        """
        with self._lock:
            self._advance(None)
            return self._records[max(self._records)] if self._records else None

    def get(self, number: int) -> GenerationRecord:
        """Return one generation.

        Raises:
            NotFoundError: there is none of that number.
            StoreError: the table cannot be read.
        """
        with self._lock:
            if number not in self._records:
                self._advance(None)
            if number not in self._records:
                raise NotFoundError(f"there is no generation {number}")
            return self._records[number]

    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of all generations, ascending.

        Raises:
            StoreError: the table cannot be read.
        """
        with self._lock:
            self._advance(None)
            return tuple(sorted(self._records))

    def commit(self, record: GenerationRecord) -> None:
        """Make a generation the newest.

        Raises:
            StaleVersionError: its number is not the newest plus one (another commit came first);
                nothing changed.
            InvalidValueError: it names a segment twice or outside its shards.
            ContentionError, StorageFullError, StoreError: nothing changed.
            CommitUnknownError: whether it took effect is not known.
        """
        record.check()
        rows = pa.Table.from_pylist([_row_of(record)], schema=GENERATIONS.schema)
        self._table.create()
        with self._lock:
            for attempt in range(MAX_TRIES):
                if self._try_commit(record, rows):
                    self._advance(None)
                    return
                pause(attempt)
        raise contention(GENERATIONS.name)

    def _try_commit(self, record: GenerationRecord, rows: pa.Table) -> bool:
        """Commit on one snapshot; return False when anything else was committed meanwhile."""
        snapshot = self._table.snapshot()
        self._advance(snapshot.version)
        newest = max(self._records, default=0)
        if record.number != newest + 1:
            self._table.release(snapshot)
            raise StaleVersionError("the newest generation", record.number - 1, newest)
        staged = self._table.stage(rows)
        try:
            self._table.commit(snapshot, staged)
        except StaleVersionError:
            self._table.discard(staged)
            return False
        except (StorageFullError, StoreError):
            self._table.discard(staged)
            raise
        return True

    def _advance(self, to: int | None) -> None:
        if self._follower.version < 0 and not self._made():
            return
        found = self._follower.advance(to)
        if found.reset:
            self._records = {}
        self._records |= self._read(found.added)

    def _made(self) -> bool:
        commits = self._storage.list(f"{self._storage.table_key(GENERATIONS.name)}/_delta_log")
        return any(name.endswith(".json") for name in commits)

    def _read(self, files: Iterable[DataFile]) -> dict[int, GenerationRecord]:
        records = {}
        for file in files:
            try:
                table = pq.read_table(self._table.local_path(file.path), partitioning=None)
            except (OSError, pa.ArrowInvalid) as error:
                raise StoreError(f"a file of generations cannot be read: {error}") from error
            for row in table.to_pylist():
                records[int(row["number"])] = _record_of(row)
        return records
