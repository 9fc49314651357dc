"""What a store holds, in one document: bases, items, what is pending, the newest generation."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from engine.config import Config
from engine.errors import SegmentRefusedError
from engine.index.generation import GenerationLog, GenerationRecord
from engine.index.manifest import read_manifest
from engine.index.segment_builder import SegmentRecord
from engine.index.vector_builder import RECALL_DEPTHS, VectorFacts
from engine.store.opening import Store, open_store
from engine.store.tables import Table
from jobs.segments import segment_path

STATUSES = ("draft", "published", "archived")


def status(config: Config) -> dict[str, Any]:
    """Describe the store of a configuration.

    Returns:
        A JSON object: `root`, `runtime` (on, off), `bases`, `items` (count by status), `revisions`,
        `pending` (publications that no generation holds yet), `encoder` (configured), `generation`
        (the newest, or None), `vectors` (see `describe_vectors`, or None).

    Raises:
        StoreError: there is no store, or it cannot be read.
    """
    store = open_store(config.root)
    catalog = store.catalog.poll()
    record = GenerationLog(store.storage).newest()
    number = 0 if record is None else record.number
    items = Counter[str](state.status for state in catalog.items())
    held = Counter(state.base_id for state in catalog.items())
    bases = [
        {
            "base": base.base_id,
            "title": base.title,
            "scope": base.scope,
            "status": base.status,
            "items": held[base.base_id],
        }
        for base in catalog.bases()
    ]
    return {
        "root": store.storage.root,
        "runtime": "on" if store.runtime.enabled() else "off",
        "bases": bases,
        "items": {name: items[name] for name in STATUSES},
        "revisions": _row_count(store.tables.revisions),
        "pending": len(catalog.pending(number)),
        "encoder": config.encoder.model,
        "generation": None if record is None else describe_generation(record),
        "vectors": None if record is None else describe_vectors(store, record),
    }


def _row_count(table: Table) -> int:
    _, files = table.log.load(None)
    return sum(int(pq.read_metadata(table.local_path(file.path)).num_rows) for file in files)


def describe_generation(record: GenerationRecord) -> dict[str, Any]:
    """Return a generation as a JSON object, its segments counted."""
    passages = [0] * record.shards
    for segment in record.segments:
        passages[segment.shard] += segment.passages
    return {
        "generation": record.number,
        "shards": record.shards,
        "segments": len(record.segments),
        "revisions": sum(segment.entries for segment in record.segments),
        "passages": sum(passages),
        "passages_by_shard": passages,
        "size_bytes": sum(segment.size_bytes for segment in record.segments),
        "encoder": record.encoder,
        "dimension": record.dimension,
        "created_at": record.created_at,
    }


def describe_vectors(store: Store, record: GenerationRecord) -> dict[str, Any]:
    """Say how a generation's vectors are searched, as a JSON object.

    Returns:
        `exact`, `approximate` and `unreadable`: segments of either kind, and those that do not say.
        `least_recall`: by depth, the least that an approximate segment found when it was built, of
        its own rows; empty when all are exact.
    """
    facts: list[VectorFacts] = []
    for segment in record.segments:
        with suppress(SegmentRefusedError):
            facts.append(read_manifest(segment_path(store.storage, segment.name)).vectors)
    approximate = [fact.recall for fact in facts if fact.approximate]
    by_depth = zip(RECALL_DEPTHS, zip(*approximate, strict=True), strict=False)
    return {
        "exact": len(facts) - len(approximate),
        "approximate": len(approximate),
        "unreadable": len(record.segments) - len(facts),
        "least_recall": {str(depth): min(found) for depth, found in by_depth},
    }


def describe_segment(record: SegmentRecord) -> dict[str, Any]:
    """Return a segment of a generation as a JSON object."""
    return {
        "segment": record.name,
        "shard": record.shard,
        "revisions": record.entries,
        "passages": record.passages,
        "size_bytes": record.size_bytes,
    }
