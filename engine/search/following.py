"""Following a store: the catalog and the generations, polled by threads."""

from __future__ import annotations

from engine.search.group import ShardGroup


class Follower:
    """What one process holds of a store."""

    group: ShardGroup | None

    def start(self) -> None:
        """Begin to follow the store, in threads that end with `close`."""
        raise NotImplementedError

    def healthy(self) -> bool:
        """Say whether the catalog is confirmed and the threads run."""
        raise NotImplementedError

    def close(self) -> None:
        """End the threads and close every segment."""
        raise NotImplementedError
