"""One-process wiring of the whole engine, without Ray: the embedded default.

`serve` builds its deployments from the same parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.config import Config
from engine.encoders.encoder import Encoder
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError
from engine.index.generation import GenerationLog
from engine.index.jvm import detach, start_jvm
from engine.index.vector import VectorSettings
from engine.search.answering import Knowledge
from engine.search.client import GroupClient
from engine.search.coordinator import Coordinator
from engine.search.encoding import LocalQueryEncoder, QueryEncoder, RememberedQueryEncoder
from engine.search.following import Follower
from engine.search.group import ShardGroup
from engine.search.read import Reader
from engine.search.shelf import SegmentShelf
from engine.search.views import Access, CatalogViews
from engine.store.opening import Store, open_store


def vector_settings(config: Config) -> VectorSettings:
    """Return how a configuration wants vectors to be searched."""
    index = config.index
    return VectorSettings(search=index.semantic_search, exact_limit=index.exact_limit)


def open_follower(config: Config, *, position: int | None = 0, groups: int = 1) -> Follower:
    """Open what one process holds of a store: its catalog, and the shards of one group.

    `follower.group.handle(frame)` answers frames; `follower.start()` begins to follow the store
    in threads; `follower.close()` ends it. The newest generation is open when this returns, or
    its predecessor when it is refused.

    Args:
        config: the tree.
        position: which of the groups, 0..groups - 1; None: hold no shards (an ingress).
        groups: how many groups share the shards; shard s belongs to group s % groups.

    Raises:
        SegmentRefusedError: the store has generations, and none of the newest two can be opened.
        StoreError: there is no store at the root.
        JavaError: there is no usable Java.
    """
    store = open_store(config.root)
    views = CatalogViews(store.catalog, config.catalog.max_staleness_s)
    group = None if position is None else _open_group(config, store, views, position, groups)
    follower = Follower(store, GenerationLog(store.storage), views, group, config.catalog)
    follower.follow()
    if follower.refusal is not None and not follower.records():
        refusal = follower.refusal
        follower.close()
        raise refusal
    return follower


def _open_group(
    config: Config, store: Store, views: CatalogViews, position: int, groups: int
) -> ShardGroup:
    start_jvm(config.jvm.heap_mb)
    return ShardGroup(
        SegmentShelf(store.storage, vector_settings(config)),
        views,
        position=position,
        groups=groups,
        threads=config.search.threads,
        grace_s=config.search.deadline_s,
    )


def open_knowledge(
    config: Config, follower: Follower, groups: Sequence[GroupClient], encoder: QueryEncoder
) -> Knowledge:
    """Join a coordinator and a reader over shard groups, and start to follow the store.

    Args:
        config: the tree.
        follower: this process's view of the store; closed with the result.
        groups: every group in the order of their positions: `follower.group` for the one in this
            process, `FrameGroupClient` for others.
        encoder: makes the vectors of queries; `LocalQueryEncoder(encoder)` in this process;
            closed with the result.
    """
    access = Access(config.organization)
    remembered = RememberedQueryEncoder(encoder, config.search.query_cache)
    coordinator = Coordinator(config, follower, groups, remembered, access)
    reader = Reader(follower.store.revisions, follower.views, access, coordinator.pinned)

    def let_go() -> None:
        follower.close()
        detach()

    async def close() -> None:
        await coordinator.close()
        await asyncio.to_thread(let_go)

    follower.start()
    return Knowledge(follower.store.runtime, coordinator, reader, close)


def open_local(
    config: Config, encoder: Encoder | None = None, *, searches: bool = True
) -> Knowledge:
    """Open a store in this process: one group with every shard, the encoder, threads.

    The encoder that `config.encoder` names is opened when first needed: reads and lexical searches
    do without. Its errors (`EncoderError`: it cannot be opened, or is not the one of the
    generation) come with the first search that needs it.

    Args:
        config: the tree; `config.root` names the store.
        encoder: instead of the one that `config.encoder` names.
        searches: False opens no segment and no JVM: only addressed reads are answered.

    Raises:
        SegmentRefusedError: the store has generations, and none of the newest two can be opened.
        EncoderError: the given encoder is not the one of the generation.
        StoreError: there is no store at the root.
        JavaError: there is no usable Java.
    """
    follower = open_follower(config, position=0 if searches else None)
    groups = [] if follower.group is None else [follower.group]
    if encoder is not None:
        try:
            _require_space(follower, encoder)
        except EncoderError:
            follower.close()
            raise
        return open_knowledge(config, follower, groups, LocalQueryEncoder(encoder))

    def opened() -> Encoder:
        found = open_encoder(config.encoder)
        _require_space(follower, found)
        return found

    return open_knowledge(config, follower, groups, LocalQueryEncoder(opened))


def _require_space(follower: Follower, encoder: Encoder) -> None:
    for record in follower.records()[:1]:
        if record.encoder != encoder.fingerprint:
            raise EncoderError(
                f"generation {record.number} was made by encoder {record.encoder[:12]}, the "
                f"configured one is {encoder.fingerprint[:12]}: configure the one it was made "
                "with, or reindex"
            )
