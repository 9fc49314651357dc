"""One query on one pinned state: statistics, candidates, certificate, exact scores, texts."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from engine.config import SearchConfig
from engine.contract import Coverage, Scores, SearchRequest, SearchResult
from engine.errors import OverloadedError
from engine.ids import ShardId
from engine.index.statistics import upper_bound
from engine.index.vector import exact_cosines
from engine.search.cache import BoundedCache
from engine.search.client import GroupClient
from engine.search.encoding import QueryEncoder
from engine.search.evidence import Evidence, rows_to_describe, trace
from engine.search.fanout import COUNT_SHARE, REFINE_SHARE, SEARCH_SHARE, FanOut
from engine.search.pool import FieldBound, Place, Pool, gather, positions_of
from engine.search.ranking import Effort, Ranking
from engine.search.request import (
    Candidates,
    Depth,
    ExplainQuery,
    FieldTerms,
    Float32,
    HydrateQuery,
    Passage,
    PassageFacts,
    Pin,
    Positions,
    Readable,
    RefineQuery,
    SearchQuery,
    ShardFacts,
    Statistics,
    StatisticsQuery,
)
from engine.search.shard import query_frequencies, whole_statistics
from engine.search.threshold import Goal, Placed, Rows, Step, decide
from engine.store.catalog import Catalog

logger = logging.getLogger(__name__)

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
        encoder: fingerprint of its vectors.
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
    encoder: str
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
        self._groups = FanOut(groups, setting.shards, setting.search, setting.deadline)
        self._encoder = encoder
        self._counted = counted
        self._given_up: set[ShardId] = set()
        self._depths: dict[ShardId, Depth] = {}
        self._found: dict[ShardId, Candidates] = {}
        self._exact: dict[Place, float] = {}
        self._fields: Counted = {}
        self._vector: Float32 | None = None
        self._rounds = 0
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._started = time.perf_counter()

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] += time.perf_counter() - started

    # --------------------------------------------------------------------------------- sides

    async def _count(self) -> None:
        """Learn the terms of the query and what the caller may read holds of them."""
        setting, text = self._setting, self._request.query
        key = (setting.pin, setting.readable, text)
        known = self._counted.get(key)
        if known is None:
            query = StatisticsQuery(setting.pin, setting.readable, text)
            parts = await self._groups.ask(
                self._groups.alive(),
                lambda group, _, seconds: group.statistics(query, seconds),
                COUNT_SHARE,
            )
            known = add_statistics(parts)
            if not self._groups.failures:
                self._counted.put(key, known)
        self._fields = known

    async def _encode(self) -> None:
        seconds = self._groups.seconds()
        try:
            async with asyncio.timeout(seconds):
                self._vector = await self._encoder.encode(self._request.query, seconds)
        except TimeoutError:
            raise OverloadedError("the query could not be encoded in time") from None

    async def _prepare(self) -> None:
        async def timed(stage: str, work: Awaitable[None]) -> None:
            with self._timed(stage):
                await work

        work = []
        if self._request.mode != "semantic":
            work.append(timed("count", self._count()))
        if self._request.mode != "lexical":
            work.append(timed("encode", self._encode()))
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
        setting, groups = self._setting, self._groups
        self._rounds += 1
        self._depths |= depths
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
                depths={s: d for s, d in depths.items() if groups.group_of(s) == number},
            )

        wanted = sorted({groups.group_of(shard) for shard in depths} & set(groups.alive()))
        answers = await groups.ask(
            wanted,
            lambda group, number, seconds: group.search(question(number), seconds),
            SEARCH_SHARE,
        )
        self._found |= {found.shard: found for answer in answers for found in answer.shards}

    async def _refine(self, pool: Pool, rows: Rows) -> None:
        setting = self._setting
        asked = positions_of(pool, rows)
        split = self._groups.by_group({shard: where for shard, (where, _) in asked.items()})

        def question(number: int) -> RefineQuery:
            return RefineQuery(setting.pin, self._fields, *setting.similarity, split[number])

        answers = await self._groups.ask(
            sorted(split),
            lambda group, number, seconds: group.refine(question(number), seconds),
            REFINE_SHARE,
        )
        places = pool.places()
        for answer in answers:
            for shard, scores in answer.lexical.items():
                self._exact.update(
                    zip(places[asked[shard][1]].tolist(), scores.tolist(), strict=True)
                )

    def _candidates(self) -> list[Candidates]:
        """Return what the shards found whose groups still answer."""
        return [found for shard, found in self._found.items() if self._groups.answers(shard)]

    async def _rank(self) -> tuple[Pool, Step]:
        """Follow the certificate's steps until the ranking can no longer change."""
        bounds = {
            name: FieldBound.of(upper_bound(query_frequencies(t), whole_statistics(t)))
            for name, t in self._fields.items()
        }
        goal = self._goal()
        with self._timed("search"):
            await self._search(dict.fromkeys(self._groups.asked(), self._first_depth()))
        while True:
            pool = gather(self._candidates(), bounds, self._exact)
            step = decide(pool, goal, self._given_up)
            if step.final:
                return pool, step
            if step.deepen and self._groups.seconds(SEARCH_SHARE) <= 0.0:
                self._given_up |= step.deepen
            elif step.deepen:
                deeper = {shard: self._depths[shard].doubled() for shard in step.deepen}
                with self._timed("search"):
                    await self._search(deeper)
            if len(step.refine):
                with self._timed("refine"):
                    await self._refine(pool, step.refine)

    # ------------------------------------------------------------------------------- answers

    async def _hydrate(self, pool: Pool, placed: Sequence[Placed]) -> dict[int, Passage]:
        """Return what is shown, by row; rows of a group that fails now are missing."""
        rows = np.array([one.row for one in placed], np.int64)
        asked = positions_of(pool, rows)
        split = self._groups.by_group({shard: where for shard, (where, _) in asked.items()})

        def question(number: int) -> HydrateQuery:
            return HydrateQuery(self._setting.pin, self._request.query, split[number])

        answers = await self._groups.ask(
            sorted(split), lambda group, number, seconds: group.hydrate(question(number), seconds)
        )
        shown: dict[int, Passage] = {}
        for answer in answers:
            for shard, passages in answer.passages.items():
                shown.update(zip(asked[shard][1], passages, strict=True))
        return shown

    async def answer(self, *, explain: bool = False) -> Ranking:
        """Run the query.

        Args:
            explain: keep the evidence; groups are asked once more for it.

        Raises:
            GenerationNotOpenError: a group does not hold the pinned state.
            OverloadedError: no shard answered in time, or not all and that is not allowed.
            EncoderError: the query cannot be encoded.
        """
        await self._prepare()
        while True:
            pool, step = await self._rank()
            failures = self._groups.failures
            with self._timed("hydrate"):
                shown = await self._hydrate(pool, step.placed)
            evidence = await self._evidence(pool, step.placed) if explain else None
            if self._groups.failures == failures:
                break
        coverage = self._coverage()
        return Ranking(
            results=tuple(self._result(pool, one, shown[one.row]) for one in step.placed),
            coverage=coverage,
            certified=coverage is None and all(found.certified for found in self._candidates()),
            effort=self._effort(pool),
            evidence=evidence,
        )

    async def _evidence(self, pool: Pool, placed: Sequence[Placed]) -> Evidence:
        """Keep what the ranking was computed from; facts of a group that fails now are missing."""
        setting, shown = self._setting, trace(pool, placed)
        with self._timed("explain"):
            facts, passages = await self._facts(pool, rows_to_describe(shown))
        return Evidence(
            request=self._request,
            goal=self._goal(),
            pin=setting.pin,
            shards=setting.shards,
            encoder=setting.encoder,
            sample=len(setting.sample),
            similarity=setting.similarity,
            fields=self._fields,
            pool=pool,
            shown=shown,
            certified={found.shard: found.certified for found in self._candidates()},
            facts=facts,
            passages=passages,
        )

    async def _facts(
        self, pool: Pool, rows: Rows
    ) -> tuple[dict[ShardId, ShardFacts], dict[int, PassageFacts]]:
        """Ask every shard what it searched, and what the scores of some rows came from."""
        asked, nothing = positions_of(pool, rows), np.empty(0, np.int32)
        positions = dict.fromkeys(self._groups.asked(), Positions(nothing, nothing))
        split = self._groups.by_group(positions | {s: where for s, (where, _) in asked.items()})
        terms = {name: field.terms for name, field in self._fields.items()}

        def question(number: int) -> ExplainQuery:
            return ExplainQuery(self._setting.pin, terms, split[number])

        answers = await self._groups.ask(
            sorted(split), lambda group, number, seconds: group.explain(question(number), seconds)
        )
        facts = {one.shard: one for answer in answers for one in answer.shards}
        described: dict[int, PassageFacts] = {}
        for shard, (_, numbers) in asked.items():
            if shard in facts:
                described.update(zip(numbers, facts[shard].passages, strict=True))
        return facts, described

    def _effort(self, pool: Pool) -> Effort:
        seconds = self._seconds | {"total": time.perf_counter() - self._started}
        return Effort(
            rounds=self._rounds,
            candidates=len(pool),
            refined=len(self._exact),
            depths=dict(sorted(self._depths.items())),
            milliseconds={stage: 1e3 * spent for stage, spent in seconds.items()},
        )

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
        answered = len(set(self._groups.asked()) - self._given_up)
        if answered == self._setting.shards:
            return None
        if not answered:
            raise OverloadedError("no shard answered in time")
        if not self._setting.search.allow_partial:
            raise OverloadedError("a shard did not answer in time")
        return Coverage(self._setting.shards, answered)
