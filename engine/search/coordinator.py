"""The coordinator: pins a state, runs a query over all groups, checks what it will answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from engine.authorization import Principal
from engine.config import Config
from engine.contract import SearchRequest, SearchResult
from engine.errors import (
    CatalogNotHeldError,
    GenerationNotOpenError,
    OverloadedError,
    ResourceUnavailableError,
)
from engine.ids import BaseId
from engine.index.generation import GenerationRecord
from engine.search.cache import BoundedCache
from engine.search.client import GroupClient
from engine.search.encoding import QueryEncoder
from engine.search.following import Follower
from engine.search.pinning import Pins
from engine.search.ranking import Ranking
from engine.search.request import Pin, Readable
from engine.search.run import Counted, CountedKey, Run, Setting, terms_counted
from engine.search.views import Access, CatalogViews
from engine.store.catalog import Catalog

logger = logging.getLogger(__name__)

_TRIES = 4
_KEPT_TERMS = 262_144


class Coordinator:
    """Answers ranked searches. It knows shard groups only as `GroupClient`. For one event loop."""

    def __init__(
        self,
        config: Config,
        follower: Follower,
        groups: Sequence[GroupClient],
        encoder: QueryEncoder,
        access: Access,
    ) -> None:
        """Join the parts.

        Args:
            config: the tree.
            follower: the catalog and the generations of the store.
            groups: every group, in the order of their positions.
            encoder: makes the vectors of queries.
            access: who may read which base.
        """
        self._config = config
        self._follower = follower
        self._views: CatalogViews = follower.views
        self._groups = tuple(groups)
        self._encoder = encoder
        self._fingerprint: str | None = None
        self._access = access
        self._pins = Pins(follower, groups)
        self._counted: BoundedCache[CountedKey, Counted] = BoundedCache(_KEPT_TERMS, terms_counted)

    async def search(
        self, request: SearchRequest, principal: Principal, *, explain: bool = False
    ) -> Ranking:
        """Answer one ranked search.

        Args:
            request: the query.
            principal: the caller.
            explain: keep what the ranking was computed from, see `explain.render_explanation`.

        Raises:
            ResourceUnavailableError: the base that the request names is not readable.
            OverloadedError: no shard answered in time, the catalog is not confirmed, or it
                changed under every try.
        """
        if request.mode != "lexical" and self._fingerprint is None:
            self._readable(await self._views.fresh(), request.base, principal)
            await self._space()  # the first query may have to open a model: not on its deadline
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.search.deadline_s
        not_open = 0
        for attempt in range(_TRIES):
            catalog = await self._views.fresh()
            readable = self._readable(catalog, request.base, principal)
            record = await self._pins.current()
            if record is not None and not_open > 1:
                record = self._pins.predecessor(record) or record
            if record is None or readable == frozenset():
                return Ranking(())
            if request.mode != "lexical":
                await self._require_space(record)
            setting = self._setting(record, catalog, readable, deadline)
            run = Run(request, setting, self._groups, self._encoder, self._counted)
            try:
                ranking = await run.answer(explain=explain)
            except CatalogNotHeldError:
                await asyncio.to_thread(self._views.poll)
                continue
            except GenerationNotOpenError:
                # A replica is behind, or ahead: first with the newest catalog, then a generation
                # back.
                not_open += 1
                await asyncio.to_thread(self._views.poll)
                continue
            if await self._still_readable(ranking.results, record.number, principal):
                return ranking if not attempt else ranking.after(attempt)
            logger.info("winners fell away", extra={"attempt": attempt})
        raise OverloadedError("the knowledge changed while the search ran")

    def _readable(self, catalog: Catalog, base: BaseId | None, principal: Principal) -> Readable:
        if base is not None and base not in self._access.bases(catalog, principal):
            raise ResourceUnavailableError
        return self._access.readable(catalog, principal)

    def _setting(
        self, record: GenerationRecord, catalog: Catalog, readable: Readable, deadline: float
    ) -> Setting:
        return Setting(
            pin=Pin(record.number, catalog.version),
            catalog=catalog,
            readable=readable,
            shards=record.shards,
            spread=_spread(record),
            encoder=record.encoder,
            sample=self._follower.sample(record),
            similarity=(self._config.index.k1, self._config.index.b),
            search=self._config.search,
            deadline=deadline,
        )

    async def _require_space(self, record: GenerationRecord) -> None:
        """Refuse to mix vector spaces.

        Raises:
            EncoderError: the encoder cannot be opened.
            OverloadedError: the generation was made by another encoder than the queries are.
        """
        if record.encoder != await self._space():
            raise OverloadedError("the generation was made by another encoder", 60.0)

    async def _space(self) -> str:
        if self._fingerprint is None:
            self._fingerprint = await asyncio.to_thread(lambda: self._encoder.fingerprint)
        return self._fingerprint

    async def _still_readable(
        self, results: Sequence[SearchResult], generation: int, principal: Principal
    ) -> bool:
        catalog = await self._views.fresh()  # what was withdrawn while the query ran counts
        readable = self._access.bases(catalog, principal)
        return all(
            result.base in readable
            and catalog.current_revision(result.item, generation) == result.revision
            for result in results
        )

    async def ready(self) -> bool:
        """Say whether a search could be answered now."""
        try:
            await self._views.fresh()
            record = await self._pins.current()
        except OverloadedError:
            return False
        return record is None or record.encoder == await self._space()

    async def pinned(self) -> int | None:
        """Return the number of the generation that queries are answered from now, or None.

        Raises:
            OverloadedError: the store has generations, but none is open everywhere yet.
        """
        record = await self._pins.current()
        return None if record is None else record.number

    def generation(self) -> int | None:
        """Return the number of the generation that is pinned now, or None, without waiting."""
        return self._pins.number

    async def close(self) -> None:
        """Wait for what is under way and close the encoder."""
        await self._pins.close()
        await self._encoder.close()


def _spread(record: GenerationRecord) -> float:
    """Guess how many passages of one item are among the best. Only speed depends on it."""
    entries = sum(segment.entries for segment in record.segments)
    passages = sum(segment.passages for segment in record.segments)
    return min(4.0, max(1.5, passages / max(1, entries)))
