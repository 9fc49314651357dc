"""Takes revisions out of what a reindex made: segments, reference sample, stage, vector cache.

Segments of the newest generation are rebuilt without them and committed as the next generation;
every other segment that holds one is deleted. No encoder is asked, unless the sample gets too few.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.config import Config
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError, SegmentRefusedError
from engine.index.generation import GenerationLog, GenerationRecord, Reference
from engine.index.jvm import start_jvm
from engine.index.segment_builder import (
    SegmentHeader,
    SegmentRecord,
    build_segment,
    clean_unfinished,
    discard_segment,
)
from engine.store.revisions import RevisionKey
from engine.store.storage import LocalStorage
from engine.store.writer import utc_now
from engine.text.reference import reference_sentences
from jobs.reindex import OnStep
from jobs.segments import SEGMENTS, StoredSegment, segment_path
from jobs.shards import vector_settings
from jobs.staging import STAGE, vectors_of
from jobs.vectorcache import forget_vectors

if TYPE_CHECKING:
    from jobs.erase import Erasure

SAMPLE_LEAST = 200
"""Vectors that a reference sample must have (contract, "Scoring")."""
_IDS = ("item_id", "revision_id")


@dataclass(frozen=True, slots=True)
class _Traces:
    """What names the erased texts where no id stands: hashes of passages, and their vectors."""

    hashes: frozenset[bytes]
    rows: frozenset[bytes]


class IndexErasure:
    """One erasure's part in the index. The caller holds the lock of reindexing."""

    def __init__(
        self, config: Config, storage: LocalStorage, keys: Collection[RevisionKey], on_step: OnStep
    ) -> None:
        """Take what to erase; nothing is read."""
        self._config = config
        self._storage = storage
        self._keys = frozenset(keys)
        self._on_step = on_step
        self._log = GenerationLog(storage)

    def names(self) -> tuple[str, ...]:
        """Return the segments on disk that hold one of the revisions, of any generation.

        A damaged one that the newest generation does not need counts as holding one.

        Raises:
            SegmentRefusedError: the newest generation needs one that cannot be read.
        """
        newest = self._log.newest()
        needed = {record.name for record in newest.segments} if newest is not None else set()
        names = self._storage.list(SEGMENTS)
        return tuple(
            name for name in names if not name.startswith(".") and self._holds(name, needed)
        )

    def _holds(self, name: str, needed: Collection[str]) -> bool:
        try:
            return bool(self._held(name).any())
        except (OSError, pa.ArrowInvalid) as error:
            if name in needed:
                raise SegmentRefusedError(name, "entries.arrow cannot be read") from error
            return True

    def run(self, done: Erasure) -> None:
        """Remove the revisions, and note in `done` what was removed."""
        clean_unfinished(self._storage.local_path(SEGMENTS))
        holding = self.names()
        traces = self._traces(holding)
        if self._config.jobs.vector_cache:
            folder = Path(self._config.jobs.vector_cache).expanduser()
            done.vectors = forget_vectors(folder, traces.hashes)
        self._on_step("forgotten")
        newest = self._log.newest()
        if newest is not None:
            newest = self._renew(newest, holding, traces, done)
            done.generation = newest.number
        self._drop_samples(newest, traces)
        self._on_step("sampled")
        done.staged = self._storage.exists(STAGE)
        self._storage.delete(STAGE)
        self._on_step("unstaged")
        done.segments = holding
        for name in holding:
            discard_segment(self._storage.local_path(SEGMENTS), name)
            self._on_step("dropped")
        done.mapped_by = _mapping(holding)

    def _held(self, name: str) -> NDArray[np.bool_]:
        """Return bool of shape (entries,): which entries of a segment are to be erased."""
        file = segment_path(self._storage, name) / "entries.arrow"
        with pa.OSFile(str(file), "rb") as source:
            entries = pa.ipc.open_file(source).read_all()
        pairs = zip(*(entries[column].to_pylist() for column in _IDS), strict=True)
        return np.array([pair in self._keys for pair in pairs], np.bool_)

    def _traces(self, holding: Collection[str]) -> _Traces:
        hashes: set[bytes] = set()
        rows: set[bytes] = set()
        for name in holding:
            try:
                more_hashes, more_rows = self._traces_in(name)
            except (OSError, ValueError, pa.ArrowInvalid):
                continue  # damaged: it is not needed, and goes, or `_rebuilt` refuses it
            hashes |= more_hashes
            rows |= more_rows
        for row in self._staged():
            keys = [bytes(key) for key in row["hashes"]]
            hashes |= set(keys)
            data = bytes(row["vectors"] or b"")
            rows |= {v.tobytes() for v in vectors_of(data, len(data) // 4 // max(1, len(keys)))}
        return _Traces(frozenset(hashes), frozenset(rows))

    def _traces_in(self, name: str) -> tuple[set[bytes], set[bytes]]:
        folder = segment_path(self._storage, name)
        with pa.OSFile(str(folder / "passages.arrow"), "rb") as source:
            passages = pa.ipc.open_file(source).read_all()
        ours = self._held(name)[np.asarray(passages["entry"].to_numpy())]
        vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        places = np.flatnonzero(ours).tolist()
        named = passages["text_hash"].to_pylist()
        return (
            {bytes(named[place] or b"") for place in places},
            {vectors[place].tobytes() for place in places},
        )

    def _staged(self) -> Iterator[dict[str, Any]]:
        for job in self._storage.list(STAGE):
            for file in sorted(self._storage.local_path(f"{STAGE}/{job}").glob("*.arrow")):
                with pa.OSFile(str(file), "rb") as source:
                    block = pa.ipc.open_file(source).read_all()
                if "vectors" in block.schema.names:
                    rows = block.to_pylist()
                    yield from (r for r in rows if (r["item_id"], r["revision_id"]) in self._keys)

    def _renew(
        self, newest: GenerationRecord, holding: Collection[str], traces: _Traces, done: Erasure
    ) -> GenerationRecord:
        """Commit a generation without the revisions, unless the newest one holds none."""
        reference = self._cleaned(newest, traces, done)
        tainted = any(record.name in holding for record in newest.segments)
        if not tainted and reference == newest.reference:
            return newest
        number = newest.number + 1
        segments: list[SegmentRecord] = []
        for record in newest.segments:
            if record.name not in holding:
                segments.append(record)
            elif (built := self._rebuilt(record, newest, number)) is not None:
                segments.append(built)
        done.rebuilt = tuple(s.name for s in segments if s not in newest.segments)
        now = utc_now().isoformat()
        after = replace(
            newest, number=number, segments=tuple(segments), reference=reference, created_at=now
        )
        self._log.commit(after)
        self._on_step("committed")
        return after

    def _rebuilt(
        self, record: SegmentRecord, generation: GenerationRecord, number: int
    ) -> SegmentRecord | None:
        """Build a segment again without the revisions; None: nothing is left of it."""
        segment = StoredSegment(self._storage, record)
        segment.check()
        kept = ~self._held(record.name)
        if not kept.any():
            return None
        told = "\n".join([record.name, *sorted("\t".join(key) for key in self._keys)])
        mark = hashlib.sha256(told.encode()).hexdigest()[:16]
        name = f"g{number:06d}-s{record.shard:04d}-{mark}"
        self._storage.delete(f"{SEGMENTS}/{name}")  # what a killed run left, in no generation
        start_jvm(self._config.jvm.heap_mb)
        rows = segment.copy(kept)
        settings = vector_settings(self._config.index)
        header = SegmentHeader(record.shard, generation.encoder, generation.dimension, settings)
        directory = segment_path(self._storage, name)
        built = build_segment(directory, rows.passages, rows.entries, rows.vectors, header)
        self._on_step("built")
        return built

    def _cleaned(self, newest: GenerationRecord, traces: _Traces, done: Erasure) -> Reference:
        """Return the sample without vectors of the revisions, topped up if it gets too small."""
        sample = np.load(self._storage.local_path(newest.reference.path), allow_pickle=False)
        kept = np.array([row.tobytes() not in traces.rows for row in sample], np.bool_)
        done.sample_rows = int(np.count_nonzero(~kept))
        if not done.sample_rows:
            return newest.reference
        rows = sample[kept]
        if len(rows) < SAMPLE_LEAST:
            held = {row.tobytes() for row in rows} | traces.rows
            pairs = [("", sentence) for sentence in reference_sentences()]
            encoder = open_encoder(self._config.encoder)
            if encoder.fingerprint != newest.encoder:
                raise EncoderError(
                    f"the reference sample needs new vectors of encoder {newest.encoder[:12]}, the "
                    f"configured one is {encoder.fingerprint[:12]}: configure that one, or reindex"
                )
            made = encoder.encode_passages(pairs)
            new = [row for row in np.asarray(made, np.float32) if row.tobytes() not in held]
            rows = np.concatenate([rows, np.stack(new[: SAMPLE_LEAST - len(rows)])])
        file = io.BytesIO()
        np.save(file, np.ascontiguousarray(rows, np.float32), allow_pickle=False)
        digest = hashlib.sha256(file.getvalue()).hexdigest()
        key = f"reference/{digest}.npy"
        self._storage.put_bytes_atomic(key, file.getvalue())
        return Reference(key, digest)

    def _drop_samples(self, newest: GenerationRecord | None, traces: _Traces) -> None:
        """Delete the samples of older generations that hold a vector of the revisions."""
        named = "" if newest is None else newest.reference.path
        for name in self._storage.list("reference"):
            key = f"reference/{name}"
            if key == named or name.startswith("."):
                continue
            sample = np.load(self._storage.local_path(key), allow_pickle=False)
            if any(row.tobytes() in traces.rows for row in sample):
                self._storage.delete(key)


def _mapping(names: Collection[str]) -> tuple[int, ...]:
    """Return the processes of this machine that still map a file of removed segments.

    Only those that this user may look at; none where there is no /proc.
    """
    found = set()
    marks = [mark for name in names for mark in (f"/{SEGMENTS}/{name}/", f"/{SEGMENTS}/.{name}")]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "maps").read_text(errors="replace")
        except OSError:
            continue
        if any(mark in lines for mark in marks) and re.search(r"\(deleted\)$", lines, re.MULTILINE):
            found.add(int(folder.name))
    return tuple(sorted(found))
