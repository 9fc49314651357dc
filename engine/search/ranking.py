"""What a ranked search returns, and what it took to be sure of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.contract import Coverage, SearchResult
from engine.ids import ShardId
from engine.search.evidence import Evidence
from engine.search.request import Depth


@dataclass(frozen=True, slots=True)
class Effort:
    """How a ranking came about.

    Attributes:
        rounds: how often shards were asked for candidates, the first time included.
        candidates: passages that the coordinator had to decide on in the end.
        refined: passages whose BM25 was computed in float64 to tell close ones apart.
        depths: how deep each shard was asked in the end.
        milliseconds: time by stage (`count`, `encode`, `search`, `refine`, `hydrate`, `explain`),
            all rounds together, and `total`; `count` and `encode` overlap.
        attempts: how often the query ran: again when the state changed under it.
    """

    rounds: int = 0
    candidates: int = 0
    refined: int = 0
    depths: Mapping[ShardId, Depth] = field(default_factory=dict)
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Ranking:
    """The answer to one ranked search.

    Attributes:
        results: best first.
        coverage: how many shards answered, when not all did.
        certified: whether it is proved that no passage left out could have entered: every shard
            answered, and no frontier comes from an approximate vector search.
        effort: how it came about.
        evidence: what it was computed from; only when an explanation was asked for.
    """

    results: tuple[SearchResult, ...]
    coverage: Coverage | None = None
    certified: bool = True
    effort: Effort = Effort()
    evidence: Evidence | None = None

    def after(self, attempts: int) -> Ranking:
        """Return the same ranking, made after so many attempts that came to nothing."""
        return replace(self, effort=replace(self.effort, attempts=attempts + 1))
