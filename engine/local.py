"""One-process wiring of the whole engine, without Ray: the embedded default.

`serve` builds its deployments from the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.config import Config
from engine.encoders.encoder import Encoder
from engine.search.answering import Knowledge
from engine.search.client import GroupClient
from engine.search.encoding import QueryEncoder
from engine.search.following import Follower


def open_follower(config: Config, *, position: int | None = 0, groups: int = 1) -> Follower:
    """Open what one process holds of a store: its catalog, and the shards of one group.

    `follower.group.handle(frame)` answers frames; `follower.start()` begins to follow the store
    in threads; `follower.close()` ends it. The newest generation is open when this returns.

    Args:
        config: the tree.
        position: which of the groups, 0..groups - 1; None: hold no shards (an ingress).
        groups: how many groups share the shards; shard s belongs to group s % groups.

    Raises:
        SegmentRefusedError: no generation of the store can be opened.
        StoreError: there is no store at the root.
    """
    raise NotImplementedError


def open_knowledge(
    config: Config, follower: Follower, groups: Sequence[GroupClient], encoder: QueryEncoder
) -> Knowledge:
    """Join a coordinator and a reader over shard groups.

    Args:
        config: the tree.
        follower: this process's view of the store; closed with the result.
        groups: every group: `follower.client()` for the one in this process, `FrameGroupClient`
            for others.
        encoder: makes the vectors of queries; `LocalQueryEncoder(encoder)` in this process.
    """
    raise NotImplementedError


def open_local(config: Config, encoder: Encoder | None = None) -> Knowledge:
    """Open a store in this process: one group with every shard, the encoder, threads.

    Args:
        config: the tree; `config.root` names the store.
        encoder: instead of the one that `config.encoder` names.

    Raises:
        SegmentRefusedError: no generation of the store can be opened.
        EncoderError: the encoder cannot be opened, or is not the one of the generation.
        StoreError: there is no store at the root.
    """
    raise NotImplementedError
