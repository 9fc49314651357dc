"""Stage two of a reindex: one task a touched shard builds its segment from staged and kept rows.

Each task runs in a worker of its own, which ends with it: Lucene's heap goes with the worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.config import IndexConfig, undump_config
from engine.errors import SegmentRefusedError
from engine.ids import ItemId, ShardId, shard_of
from engine.index.jvm import start_jvm
from engine.index.manifest import MANIFEST, check_files, file_facts, read_manifest
from engine.index.segment import ENTRIES, PASSAGES
from engine.index.segment_builder import (
    SegmentHeader,
    SegmentRecord,
    build_segment,
    clean_unfinished,
)
from engine.index.vector import VectorSettings
from engine.store.storage import LocalStorage
from jobs.segments import SEGMENTS, Rows, StoredSegment, join_rows, segment_path
from jobs.staging import Stage, vectors_of

KEPT = "kept.arrow"
"""The file of the stage that names the revisions to copy, when a job copies any."""

_BYTES_A_TASK = 512 * 2**20
"""Memory declared for a build besides the JVM's heap."""


@dataclass(frozen=True, slots=True)
class ShardOrder:
    """What every build of a job is told.

    Attributes:
        config: the configuration, as `dump_config` writes it.
        job: the key of the job, which names its stage.
        generation: the number that will list the segments.
        shards: how many shards that generation has.
        fingerprint: of the vectors.
        dimension: of the vectors.
        blocks: names of the staged blocks.
        sources: segments to copy kept revisions from.
    """

    config: str
    job: str
    generation: int
    shards: int
    fingerprint: str
    dimension: int
    blocks: tuple[str, ...]
    sources: tuple[SegmentRecord, ...]

    def name(self, shard: ShardId) -> str:
        """Return the name of a shard's segment: equal jobs give equal names."""
        return f"g{self.generation:06d}-s{shard:04d}-{self.job[:16]}"


def build_shard(order: ShardOrder, shard: ShardId) -> SegmentRecord:
    """Build the segment of one shard, unless a run of the same job has built it already.

    Raises:
        SegmentRefusedError: a segment to copy from is damaged.
        StorageFullError: no space is left; nothing half-written is left either.
        JavaError: there is no usable Java runtime.
    """
    config = undump_config(order.config)
    storage = LocalStorage(config.root)
    directory = segment_path(storage, order.name(shard))
    if directory.exists():
        return _finished(order, shard, storage)
    rows = join_rows(
        [*_staged(order, shard, storage), *_kept(order, shard, storage)], order.dimension
    )
    start_jvm(config.jvm.heap_mb)
    header = SegmentHeader(shard, order.fingerprint, order.dimension, vector_settings(config.index))
    return build_segment(directory, rows.passages, rows.entries, rows.vectors, header)


def vector_settings(config: IndexConfig) -> VectorSettings:
    """Return what the configuration says about vector indexes."""
    return VectorSettings(search=config.semantic_search, exact_limit=config.exact_limit)


def _finished(order: ShardOrder, shard: ShardId, storage: LocalStorage) -> SegmentRecord:
    """Return the record of a segment that was built before a crash, after checking it."""
    directory = segment_path(storage, order.name(shard))
    manifest = read_manifest(directory)
    identity = (manifest.shard, manifest.encoder, manifest.dimension)
    if identity != (shard, order.fingerprint, order.dimension):
        raise SegmentRefusedError(directory.name, "it was built for another job")
    check_files(directory, manifest, verify=True)
    told = file_facts(directory / MANIFEST)
    size = told.size_bytes + sum(facts.size_bytes for facts in manifest.files.values())
    return SegmentRecord(
        directory.name, shard, manifest.passages, manifest.entries, size, told.sha256
    )


def _in_shard(items: Sequence[Any], order: ShardOrder, shard: ShardId) -> np.ndarray[Any, Any]:
    return np.array([shard_of(ItemId(item), order.shards) == shard for item in items], bool)


def _staged(order: ShardOrder, shard: ShardId, storage: LocalStorage) -> Iterator[Rows]:
    stage = Stage(storage, order.job)
    for name in order.blocks:
        block = stage.read_block(name)
        chosen = _in_shard(block["item_id"].to_pylist(), order, shard)
        if chosen.any():
            yield _unfolded(block.filter(pa.array(chosen)), order.dimension)


def _unfolded(block: pa.Table, dimension: int) -> Rows:
    """Return staged revisions, one row each, as passages, one row each."""
    counts = np.asarray(pc.list_value_length(block["hashes"]).to_numpy())
    owners = np.repeat(np.arange(block.num_rows, dtype=np.int32), counts)

    def flat(name: str, kind: pa.DataType) -> Any:  # the stubs know no list columns
        return pc.list_flatten(block[name]).cast(kind)

    columns: list[Any] = [
        pa.array(owners),
        flat("starts", pa.int32()),
        flat("ends", pa.int32()),
        flat("texts", pa.large_string()),
        flat("hashes", pa.binary(16)),
    ]
    vectors = [vectors_of(bytes(row or b""), dimension) for row in block["vectors"].to_pylist()]
    return Rows(
        pa.Table.from_arrays(columns, schema=PASSAGES),
        block.select(ENTRIES.names).cast(ENTRIES),
        np.concatenate(vectors),
    )


def _kept(order: ShardOrder, shard: ShardId, storage: LocalStorage) -> Iterator[Rows]:
    if not order.sources:
        return
    kept = Stage(storage, order.job).read_table(KEPT)
    wanted = set(zip(kept["item_id"].to_pylist(), kept["revision_id"].to_pylist(), strict=True))
    for record in order.sources:
        segment = StoredSegment(storage, record)
        keys = segment.revisions()
        own = _in_shard([item for item, _ in keys], order, shard)
        chosen = np.array([bool(o) and key in wanted for o, key in zip(own, keys, strict=True)])
        wanted.difference_update(key for key, taken in zip(keys, chosen, strict=True) if taken)
        if chosen.any():
            yield segment.copy(chosen)


def build_shards(
    order: ShardOrder, shards: Sequence[ShardId], *, own: bool
) -> Iterator[SegmentRecord]:
    """Build the segments of some shards in tasks; yield each as it is done. Needs Ray.

    Args:
        order: what to build.
        shards: which.
        own: whether only jobs run on this Ray; else workers are kept apart from others'.
    """
    import ray

    config = undump_config(order.config)
    clean_unfinished(LocalStorage(config.root).local_path(SEGMENTS))
    needs: dict[str, Any] = {"num_cpus": 1, "max_calls": 1}
    if not own:
        needs["memory"] = config.jvm.heap_mb * 2**20 + _BYTES_A_TASK
        needs["runtime_env"] = {"env_vars": {"OCTAVO_WORKER": "build"}}
    task = ray.remote(**needs)(build_shard)
    told = ray.put(order)
    waiting = [task.remote(told, shard) for shard in shards]
    while waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        yield ray.get(done[0])
