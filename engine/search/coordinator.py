"""The coordinator: one query, over all shard groups, certified."""

from __future__ import annotations

from dataclasses import dataclass

from engine.authorization import Principal
from engine.contract import Coverage, SearchRequest, SearchResult


@dataclass(frozen=True, slots=True)
class Ranking:
    """Results best first, and how many shards answered when not all did."""

    results: tuple[SearchResult, ...]
    coverage: Coverage | None


class Coordinator:
    """Answers ranked searches. It knows shard groups only as `GroupClient`."""

    async def search(self, request: SearchRequest, principal: Principal) -> Ranking:
        """Answer one ranked search.

        Raises:
            ResourceUnavailableError: the base that the request names is not readable.
            OverloadedError: no shard answered in time, or the catalog is not confirmed.
        """
        raise NotImplementedError

    async def ready(self) -> bool:
        """Say whether a search could be answered now."""
        raise NotImplementedError

    def generation(self) -> int | None:
        """Return the number of the generation that is pinned now, or None."""
        raise NotImplementedError
