"""One query on one pinned state: statistics, candidates, certificate, exact scores, texts."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.config import SearchConfig
from engine.contract import Coverage, Scores, SearchRequest, SearchResult
from engine.errors import EngineError, GenerationNotOpenError, OverloadedError
from engine.ids import ShardId
from engine.index.statistics import upper_bound
from engine.index.vector import exact_cosines
from engine.search.cache import BoundedCache
from engine.search.client import GroupClient
from engine.search.encoding import QueryEncoder
from engine.search.pool import FieldBound, Place, Pool, gather, positions_of
from engine.search.request import (
    Candidates,
    Depth,
    FieldTerms,
    Float32,
    Found,
    Hydrated,
    HydrateQuery,
    Passage,
    Pin,
    Positions,
    Readable,
    Refined,
    RefineQuery,
    SearchQuery,
    Statistics,
    StatisticsQuery,
)
from engine.search.shard import query_frequencies, whole_statistics
from engine.search.threshold import Goal, Placed, Rows, Step, decide
from engine.store.catalog import Catalog

logger = logging.getLogger(__name__)

COUNT_SHARE, SEARCH_SHARE, REFINE_SHARE = 0.4, 0.8, 0.9
"""Shares of the deadline by which each stage ends, so that a silent group leaves time for the rest.

After `SEARCH_SHARE` shards are no longer asked deeper; the texts have until the end.
"""

Counted = Mapping[str, FieldTerms]
CountedKey = tuple[Pin, Readable, str]


def terms_counted(counted: Counted) -> int:
    """Return the terms that counts hold in memory, at least 1: a query has 1 to 4,000."""
    return 1 + sum(len(field.terms) for field in counted.values())


@dataclass(frozen=True, slots=True)
class Setting:
    """What a query runs on.

    Attributes:
        pin: generation and catalog version.
        catalog: the view of that version.
        readable: the caller's bases.
        shards: how many the generation has.
        spread: places of the depth that an item of the rank window takes, roughly.
        sample: its reference sample, float32 of shape (m, dimension).
        similarity: BM25's (k1, b).
        search: depth, rank window, partial answers.
        deadline: in the event loop's time.
    """

    pin: Pin
    catalog: Catalog
    readable: Readable
    shards: int
    spread: float
    sample: Float32
    similarity: tuple[float, float]
    search: SearchConfig
    deadline: float


def chance_cosine(sample: Float32, vector: Float32) -> float:
    """Return the mean cosine of a query with the reference sample, exactly rounded sums."""
    cosines = exact_cosines(sample, vector)
    return math.fsum(cosines.tolist()) / len(cosines)


def add_statistics(parts: Sequence[Statistics]) -> dict[str, FieldTerms]:
    """Add up what groups counted, by language field; fields without a passage are left out."""
    fields: dict[str, FieldTerms] = {}
    for part in parts:
        for name, terms in part.fields.items():
            known = fields.get(name)
            fields[name] = terms if known is None else _added(known, terms)
    return {name: fields[name] for name in sorted(fields) if fields[name].passages}


def _added(one: FieldTerms, other: FieldTerms) -> FieldTerms:
    counts = zip(one.document_frequencies, other.document_frequencies, strict=True)
    return FieldTerms(
        terms=one.terms,
        query_frequencies=one.query_frequencies,
        passages=one.passages + other.passages,
        tokens=one.tokens + other.tokens,
        document_frequencies=tuple(first + second for first, second in counts),
    )


class Run:
    """One query on one pinned state. Used once."""

    def __init__(
        self,
        request: SearchRequest,
        setting: Setting,
        groups: Sequence[GroupClient],
        encoder: QueryEncoder,
        counted: BoundedCache[CountedKey, Counted],
    ) -> None:
        """Take the query and what it runs on.

        Args:
            request: the query.
            setting: the pinned state.
            groups: every group, in the order of their positions.
            encoder: makes the query's vector.
            counted: remembers complete statistics between queries.
        """
        self._request = request
        self._setting = setting
        self._groups = groups
        self._encoder = encoder
        self._counted = counted
        self._failed: set[int] = set()
        self._given_up: set[ShardId] = set()
        self._found: dict[ShardId, Candidates] = {}
        self._exact: dict[Place, float] = {}
        self._fields: Counted = {}
        self._vector: Float32 | None = None
        self._rounds = 0

    # -------------------------------------------------------------------------------- groups

    def _group_of(self, shard: ShardId) -> int:
        return shard % len(self._groups)

    def _shards_of(self, group: int) -> list[ShardId]:
        return [ShardId(s) for s in range(group, self._setting.shards, len(self._groups))]

    def _alive(self) -> list[int]:
        held = [n for n in range(len(self._groups)) if self._shards_of(n)]
        return [number for number in held if number not in self._failed]

    def _seconds(self, share: float = 1.0) -> float:
        """Return what is left of a share of the deadline."""
        later = (1.0 - share) * self._setting.search.deadline_s
        return self._setting.deadline - later - asyncio.get_running_loop().time()

    async def _ask[T](
        self,
        wanted: Sequence[int],
        ask: Callable[[int, float], Awaitable[T]],
        share: float = 1.0,
    ) -> list[T]:
        """Ask groups at once; one that fails or is late is left out of the whole query.

        Args:
            wanted: which groups.
            ask: asks one group, within so many seconds.
            share: of the deadline, by which they must have answered.

        Raises:
            GenerationNotOpenError: a group does not hold the pinned state.
            OverloadedError: a group is left out and partial answers are not allowed, or none is
                left.
        """
        answers = await asyncio.gather(*(self._answer_of(number, ask, share) for number in wanted))
        if self._failed and not self._setting.search.allow_partial:
            raise OverloadedError("a shard group did not answer in time")
        if not self._alive():
            raise OverloadedError("no shard answered in time")
        return [answer for answer in answers if answer is not None]

    async def _answer_of[T](
        self, number: int, ask: Callable[[int, float], Awaitable[T]], share: float
    ) -> T | None:
        seconds = self._seconds(share)
        try:
            async with asyncio.timeout(seconds):
                return await ask(number, seconds)
        except GenerationNotOpenError:
            raise
        except (EngineError, TimeoutError) as error:
            extra = {"group": self._groups[number].name, "error": type(error).__name__}
            logger.warning("group left out", extra=extra)
            self._drop(number)
            return None

    def _drop(self, number: int) -> None:
        self._failed.add(number)
        for shard in self._shards_of(number):
            self._found.pop(shard, None)

    def _by_group(self, shards: Mapping[ShardId, Positions]) -> dict[int, dict[ShardId, Positions]]:
        split: dict[int, dict[ShardId, Positions]] = {}
        for shard, positions in shards.items():
            split.setdefault(self._group_of(shard), {})[shard] = positions
        return split

    # --------------------------------------------------------------------------------- sides

    async def _count(self) -> None:
        """Learn the terms of the query and what the caller may read holds of them."""
        setting, text = self._setting, self._request.query
        key = (setting.pin, setting.readable, text)
        known = self._counted.get(key)
        if known is None:
            query = StatisticsQuery(setting.pin, setting.readable, text)
            parts = await self._ask(
                self._alive(),
                lambda n, seconds: self._groups[n].statistics(query, seconds),
                COUNT_SHARE,
            )
            known = add_statistics(parts)
            if not self._failed:
                self._counted.put(key, known)
        self._fields = known

    async def _encode(self) -> None:
        seconds = self._seconds()
        try:
            async with asyncio.timeout(seconds):
                self._vector = await self._encoder.encode(self._request.query, seconds)
        except TimeoutError:
            raise OverloadedError("the query could not be encoded in time") from None

    async def _prepare(self) -> None:
        work = []
        if self._request.mode != "semantic":
            work.append(self._count())
        if self._request.mode != "lexical":
            work.append(self._encode())
        await asyncio.gather(*work)

    # ------------------------------------------------------------------------------- ranking

    def _goal(self) -> Goal:
        request = self._request
        floor = 0.0
        if request.mode == "hybrid" and self._vector is not None:
            floor = chance_cosine(self._setting.sample, self._vector)
        window = self._setting.search.rank_window
        return Goal(request.mode, request.max_results, window, request.alpha, floor)

    def _first_depth(self) -> Depth:
        """Return a depth that mostly suffices: results, or the shard's share of rank windows."""
        search = self._setting.search
        share = 0
        if self._request.mode in {"hybrid", "rrf"}:
            share = math.ceil(self._setting.spread * search.rank_window / self._setting.shards)
        depth = max(search.depth, share)
        return Depth(depth, depth)

    async def _search(self, depths: Mapping[ShardId, Depth]) -> None:
        setting = self._setting
        self._rounds += 1
        held = {name: t for name, t in self._fields.items() if any(t.document_frequencies)}

        def question(number: int) -> SearchQuery:
            return SearchQuery(
                pin=setting.pin,
                readable=setting.readable,
                base=self._request.base,
                fields=held,
                vector=self._vector,
                k1=setting.similarity[0],
                b=setting.similarity[1],
                depths={s: d for s, d in depths.items() if self._group_of(s) == number},
            )

        wanted = sorted({self._group_of(shard) for shard in depths} & set(self._alive()))
        answers: list[Found] = await self._ask(
            wanted, lambda n, seconds: self._groups[n].search(question(n), seconds), SEARCH_SHARE
        )
        for answer in answers:
            for found in answer.shards:
                if self._group_of(found.shard) not in self._failed:
                    self._found[found.shard] = found

    async def _refine(self, pool: Pool, rows: Rows) -> None:
        setting = self._setting
        asked = positions_of(pool, rows)
        split = self._by_group({shard: where for shard, (where, _) in asked.items()})

        def question(number: int) -> RefineQuery:
            return RefineQuery(setting.pin, self._fields, *setting.similarity, split[number])

        answers: list[Refined] = await self._ask(
            sorted(split),
            lambda n, seconds: self._groups[n].refine(question(n), seconds),
            REFINE_SHARE,
        )
        places = pool.places()
        for answer in answers:
            for shard, scores in answer.lexical.items():
                self._exact.update(
                    zip(places[asked[shard][1]].tolist(), scores.tolist(), strict=True)
                )

    async def _rank(self) -> tuple[Pool, Step]:
        """Follow the certificate's steps until the ranking can no longer change."""
        bounds = {
            name: FieldBound.of(upper_bound(query_frequencies(t), whole_statistics(t)))
            for name, t in self._fields.items()
        }
        goal = self._goal()
        depths = {shard: self._first_depth() for n in self._alive() for shard in self._shards_of(n)}
        await self._search(depths)
        while True:
            pool = gather(list(self._found.values()), bounds, self._exact)
            step = decide(pool, goal, self._given_up)
            if step.final:
                return pool, step
            if step.deepen and self._seconds(SEARCH_SHARE) <= 0.0:
                self._given_up |= step.deepen
            elif step.deepen:
                depths |= {shard: depths[shard].doubled() for shard in step.deepen}
                await self._search({shard: depths[shard] for shard in step.deepen})
            if len(step.refine):
                await self._refine(pool, step.refine)

    # ------------------------------------------------------------------------------- answers

    async def _hydrate(self, pool: Pool, placed: Sequence[Placed]) -> dict[int, Passage]:
        """Return what is shown, by row; rows of a group that fails now are missing."""
        rows = np.array([one.row for one in placed], np.int64)
        asked = positions_of(pool, rows)
        split = self._by_group({shard: where for shard, (where, _) in asked.items()})

        def question(number: int) -> HydrateQuery:
            return HydrateQuery(self._setting.pin, self._request.query, split[number])

        answers: list[Hydrated] = await self._ask(
            sorted(split), lambda n, seconds: self._groups[n].hydrate(question(n), seconds)
        )
        shown: dict[int, Passage] = {}
        for answer in answers:
            for shard, passages in answer.passages.items():
                shown.update(zip(asked[shard][1], passages, strict=True))
        return shown

    async def answer(self) -> tuple[tuple[SearchResult, ...], Coverage | None]:
        """Run the query.

        Returns:
            The results, best first, and the coverage when not every shard answered.

        Raises:
            GenerationNotOpenError: a group does not hold the pinned state.
            OverloadedError: no shard answered in time, or not all and that is not allowed.
            EncoderError: the query cannot be encoded.
        """
        await self._prepare()
        while True:
            pool, step = await self._rank()
            failed = len(self._failed)
            shown = await self._hydrate(pool, step.placed)
            if len(self._failed) == failed:
                break
        logger.debug("searched", extra={"rounds": self._rounds, "candidates": len(pool)})
        results = tuple(self._result(pool, one, shown[one.row]) for one in step.placed)
        return results, self._coverage()

    def _result(self, pool: Pool, placed: Placed, passage: Passage) -> SearchResult:
        mode, row = self._request.mode, placed.row
        return SearchResult(
            base=passage.base,
            item=passage.item,
            revision=passage.revision,
            title=passage.title,
            excerpt=passage.excerpt,
            excerpt_offset=passage.excerpt_offset,
            source_type=passage.source_type,
            source_ref=passage.source_ref,
            content_sha256=passage.content_sha256,
            published_at=self._published_at(passage),
            scores=Scores(
                score=placed.score,
                lexical=None if mode == "semantic" else float(pool.low[row]),
                semantic=None if mode == "lexical" else float(pool.semantic[row]),
                lexical_rank=placed.lexical_rank,
                semantic_rank=placed.semantic_rank,
            ),
        )

    def _published_at(self, passage: Passage) -> str:
        catalog = self._setting.catalog
        publication = catalog.publication(passage.item, passage.revision)
        if publication is not None:
            return publication.published_at
        state = catalog.item(passage.item)  # the row is repaired by the next reindex
        return (state.published_at if state is not None else None) or ""

    def _coverage(self) -> Coverage | None:
        unanswered = set(self._given_up)
        for number in self._failed:
            unanswered.update(self._shards_of(number))
        if not unanswered:
            return None
        answered = self._setting.shards - len(unanswered)
        if not answered:
            raise OverloadedError("no shard answered in time")
        if not self._setting.search.allow_partial:
            raise OverloadedError("a shard did not answer in time")
        return Coverage(self._setting.shards, answered)
