"""The open segments of one process: each is opened once, and closed when nobody holds it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from engine.errors import SegmentRefusedError
from engine.ids import ShardId
from engine.index.generation import GenerationRecord
from engine.index.segment import Expected, Segment
from engine.index.segment_builder import SegmentRecord
from engine.index.vector import VectorSettings
from engine.search.visibility import VisibleSegment
from engine.store.storage import Storage

SEGMENTS = "segments"
"""Key of the folder that holds the segments of a store, each under its name."""


@dataclass(slots=True)
class _Held:
    segment: VisibleSegment
    holders: int


class SegmentShelf:
    """Opens segments, shared between generations. Thread-safe."""

    def __init__(self, storage: Storage, vectors: VectorSettings) -> None:
        """Name the storage; nothing is opened yet."""
        self._storage = storage
        self._vectors = vectors
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many segments are open."""
        return len(self._held)

    def take(
        self, record: GenerationRecord, shards: Collection[ShardId]
    ) -> Mapping[ShardId, tuple[VisibleSegment, ...]]:
        """Hold the segments of some shards of a generation, opening those that are not open.

        Returns:
            By shard, its segments in the generation's order; a shard may have none.

        Raises:
            SegmentRefusedError: one is corrupt or foreign; nothing is held then.
        """
        taken: list[SegmentRecord] = []
        found: dict[ShardId, list[VisibleSegment]] = {shard: [] for shard in shards}
        with self._lock:
            for segment in record.segments:
                shard = ShardId(segment.shard)
                if shard not in found:
                    continue
                try:
                    found[shard].append(self._take_one(record, segment))
                except SegmentRefusedError:
                    self._release(taken)
                    raise
                taken.append(segment)
        return {shard: tuple(segments) for shard, segments in found.items()}

    def _take_one(self, record: GenerationRecord, segment: SegmentRecord) -> VisibleSegment:
        held = self._held.get(segment.name)
        if held is None:
            expected = Expected(record.encoder, record.dimension, segment.manifest_sha256)
            path = self._storage.local_path(f"{SEGMENTS}/{segment.name}")
            held = _Held(VisibleSegment(Segment.open(path, expected, self._vectors)), 0)
            self._held[segment.name] = held
        held.holders += 1
        return held.segment

    def put_back(self, record: GenerationRecord, shards: Collection[ShardId]) -> None:
        """Let go of what `take` held; a segment that nobody holds is closed."""
        wanted = set(shards)
        with self._lock:
            self._release([s for s in record.segments if ShardId(s.shard) in wanted])

    def _release(self, segments: Collection[SegmentRecord]) -> None:
        for segment in segments:
            held = self._held[segment.name]
            held.holders -= 1
            if not held.holders:
                del self._held[segment.name]
                held.segment.segment.close()
