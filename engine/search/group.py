"""A shard group: the shards that one process serves together, each query in threads."""

from __future__ import annotations

from engine.search.request import (
    Found,
    Generations,
    Hydrated,
    HydrateQuery,
    Refined,
    RefineQuery,
    SearchQuery,
    Statistics,
    StatisticsQuery,
)


class ShardGroup:
    """Holds shards s with s % groups == position, of the newest generation and its predecessor.

    It is a `GroupClient` itself, for a coordinator in the same process; `handle` is the same for
    one elsewhere.
    """

    @property
    def name(self) -> str:
        """Return what to call the group in logs."""
        raise NotImplementedError

    async def handle(self, frame: bytes) -> bytes:
        """Answer one packed question with a packed answer, or a packed `EngineError`."""
        raise NotImplementedError

    async def statistics(self, query: StatisticsQuery, seconds: float) -> Statistics:
        """Analyse a query and count its terms among what the caller may read."""
        raise NotImplementedError

    async def search(self, query: SearchQuery, seconds: float) -> Found:
        """Return the candidates of the shards named in `query.depths`."""
        raise NotImplementedError

    async def refine(self, query: RefineQuery, seconds: float) -> Refined:
        """Return exact BM25 scores."""
        raise NotImplementedError

    async def hydrate(self, query: HydrateQuery, seconds: float) -> Hydrated:
        """Return what is shown of passages."""
        raise NotImplementedError

    async def generations(self, seconds: float) -> Generations:
        """Return the generations that are open."""
        raise NotImplementedError
