"""A deployment around one shard group: bytes in, bytes out. It opens new generations by itself."""

from __future__ import annotations

import asyncio

from engine.config import undump_config
from engine.errors import InternalError
from engine.local import open_follower
from serve.health import Health
from serve.logs import open_log
from serve.loopback import keep_replica_local


class GroupDeployment:
    """Serves the shards s with s % groups == position.

    Every question names the generation that its query is pinned to. New generations are opened
    beside the old one, in threads, without a restart.
    """

    def __init__(self, config_text: str, position: int, groups: int) -> None:
        """Open the store.

        Args:
            config_text: the configuration, as `dump_config` wrote it.
            position: which group this is, 0..groups - 1.
            groups: how many there are.
        """
        keep_replica_local()
        config = undump_config(config_text)
        open_log(config)
        self._follower = open_follower(config, position=position, groups=groups)
        self._follower.start()
        self._health = Health(self._follower.healthy)

    async def handle(self, frame: bytes) -> bytes:
        """Answer one packed question."""
        group = self._follower.group
        if group is None:
            raise InternalError("group without shards")
        return await group.handle(frame)

    async def check_health(self) -> None:
        """Tell Serve whether this replica is worth keeping.

        Raises:
            InternalError: it has not followed its store for long.
        """
        self._health.require()

    async def __del__(self) -> None:
        """Close the follower; Serve awaits this when the replica stops."""
        await asyncio.to_thread(self._follower.close)
