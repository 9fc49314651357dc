"""`octavo verify`: the newest generation, files against hashes, its parts against one another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from engine.config import Config
from engine.errors import NotFoundError, SegmentRefusedError
from engine.ids import ItemId, shard_of
from engine.index.generation import GenerationLog, GenerationRecord
from engine.index.jvm import start_jvm
from engine.index.segment import Expected, Segment
from engine.index.segment_builder import SegmentRecord
from engine.store.opening import Store, open_store
from jobs.progress import Progress
from jobs.segments import segment_path, stored_segments
from jobs.staging import text_hash


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked and found right."""

    generation: int
    segments: int
    revisions: int
    passages: int

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        values = {name: getattr(self, name) for name in VerifyReport.__slots__}
        return {"verified": True, **values}


def verify(config: Config, console: Console) -> VerifyReport:
    """Check the newest generation.

    Every file has the hash that was recorded; Arrow, vectors, FAISS and Lucene hold one ordinal;
    every revision lies in its shard, once; every current revision is there.

    Raises:
        NotFoundError: there is no generation.
        SegmentRefusedError: a segment is damaged, or its parts disagree.
    """
    store = open_store(config.root)
    record = GenerationLog(store.storage).newest()
    if record is None:
        raise NotFoundError("there is no generation yet: run `octavo reindex`")
    start_jvm(config.jvm.heap_mb)
    with Progress(console, "verifying segments", len(record.segments)) as progress:
        for segment in record.segments:
            _verify_segment(store, record, segment)
            progress.advance()
    _verify_revisions(store, record)
    return VerifyReport(
        generation=record.number,
        segments=len(record.segments),
        revisions=sum(segment.entries for segment in record.segments),
        passages=sum(segment.passages for segment in record.segments),
    )


def _verify_segment(store: Store, record: GenerationRecord, told: SegmentRecord) -> None:
    expected = Expected(record.encoder, record.dimension, told.manifest_sha256)
    segment = Segment.open(segment_path(store.storage, told.name), expected, verify=True)
    try:
        for row in range(segment.entries.num_rows):
            item = segment.describe(row).item_id
            if shard_of(item, record.shards) != told.shard:
                raise SegmentRefusedError(told.name, f"item {item} belongs to another shard")
        for ordinal in range(segment.passages):
            entry = segment.describe(int(segment.entry[ordinal]))
            text = segment.text(ordinal)
            length = int(segment.char_end[ordinal]) - int(segment.char_start[ordinal])
            if len(text) != length:
                raise SegmentRefusedError(told.name, f"passage {ordinal} is not its range")
            if text_hash(entry.title, text) != segment.text_hash[ordinal].tobytes():
                raise SegmentRefusedError(told.name, f"passage {ordinal} is not its hash")
        lengths = np.linalg.norm(segment.vectors, axis=1)
        if not np.allclose(lengths, 1.0, atol=1e-3):
            raise SegmentRefusedError(told.name, "a vector is not of unit length")
    finally:
        segment.close()


def _verify_revisions(store: Store, record: GenerationRecord) -> None:
    keys = Counter(
        key for part in stored_segments(store.storage, record.segments) for key in part.revisions()
    )
    twice = [key for key, count in keys.items() if count > 1]
    if twice:
        item, revision = min(twice)
        raise SegmentRefusedError("generation", f"revision {revision} of {item} is there twice")
    catalog = store.catalog.poll()
    for state in catalog.items():
        current = catalog.current_revision(ItemId(state.item_id), record.number)
        if current is not None and (state.item_id, current) not in keys:
            reason = f"revision {current} of item {state.item_id} is current and missing"
            raise SegmentRefusedError("generation", reason)
