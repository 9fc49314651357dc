"""The groups that one query asks: all at once, within a deadline, without those that failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from engine.config import SearchConfig
from engine.errors import EngineError, GenerationNotOpenError, OverloadedError
from engine.ids import ShardId
from engine.search.client import GroupClient
from engine.search.request import Positions

logger = logging.getLogger(__name__)

COUNT_SHARE, SEARCH_SHARE, REFINE_SHARE = 0.4, 0.8, 0.9
"""Shares of the deadline by which each stage ends, so that a silent group leaves time for the rest.

After `SEARCH_SHARE` shards are no longer asked deeper; the texts have until the end.
"""


class FanOut:
    """Asks the groups of one query. Shard s belongs to group s % groups. Used once."""

    def __init__(
        self, groups: Sequence[GroupClient], shards: int, search: SearchConfig, deadline: float
    ) -> None:
        """Take the groups.

        Args:
            groups: every group, in the order of their positions.
            shards: how many the generation has.
            search: the deadline's length, and whether groups may be left out.
            deadline: in the event loop's time.
        """
        self._groups = groups
        self._shards = shards
        self._search = search
        self._deadline = deadline
        self._failed: set[int] = set()

    @property
    def failures(self) -> int:
        """Return how many groups are left out so far."""
        return len(self._failed)

    def alive(self) -> list[int]:
        """Return the groups that hold shards and have not failed, ascending."""
        held = [n for n in range(len(self._groups)) if self.shards_of(n)]
        return [number for number in held if number not in self._failed]

    def shards_of(self, group: int) -> list[ShardId]:
        """Return the shards of a group, ascending."""
        return [ShardId(shard) for shard in range(group, self._shards, len(self._groups))]

    def group_of(self, shard: ShardId) -> int:
        """Return the group that a shard belongs to."""
        return shard % len(self._groups)

    def answers(self, shard: ShardId) -> bool:
        """Say whether the group of a shard has not failed."""
        return self.group_of(shard) not in self._failed

    def asked(self) -> list[ShardId]:
        """Return the shards of the groups that have not failed, ascending."""
        return sorted(shard for number in self.alive() for shard in self.shards_of(number))

    def by_group(self, shards: Mapping[ShardId, Positions]) -> dict[int, dict[ShardId, Positions]]:
        """Split what is asked of shards by their group."""
        split: dict[int, dict[ShardId, Positions]] = {}
        for shard, positions in shards.items():
            split.setdefault(self.group_of(shard), {})[shard] = positions
        return split

    def seconds(self, share: float = 1.0) -> float:
        """Return what is left of a share of the deadline."""
        later = (1.0 - share) * self._search.deadline_s
        return self._deadline - later - asyncio.get_running_loop().time()

    async def ask[T](
        self,
        wanted: Sequence[int],
        ask: Callable[[GroupClient, int, float], Awaitable[T]],
        share: float = 1.0,
    ) -> list[T]:
        """Ask groups at once; one that fails or is late is left out of the whole query.

        Args:
            wanted: which groups.
            ask: asks one group, given its client, its number and the seconds it has.
            share: of the deadline, by which they must have answered.

        Raises:
            GenerationNotOpenError: a group does not hold the pinned state.
            OverloadedError: a group is left out and partial answers are not allowed, or none is
                left.
        """
        answers = await asyncio.gather(*(self._answer_of(number, ask, share) for number in wanted))
        if self._failed and not self._search.allow_partial:
            raise OverloadedError("a shard group did not answer in time")
        if not self.alive():
            raise OverloadedError("no shard answered in time")
        return [answer for answer in answers if answer is not None]

    async def _answer_of[T](
        self, number: int, ask: Callable[[GroupClient, int, float], Awaitable[T]], share: float
    ) -> T | None:
        seconds, group = self.seconds(share), self._groups[number]
        try:
            async with asyncio.timeout(seconds):
                return await ask(group, number, seconds)
        except GenerationNotOpenError:
            raise
        except (EngineError, TimeoutError) as error:
            why = str(error) or f"no answer within {max(seconds, 0.0):.3f} s"
            extra = {"group": group.name, "error": type(error).__name__, "why": why}
            logger.warning("group left out", extra=extra)
            self._failed.add(number)
            return None
