"""A shard group: the shards that one process serves together, each query in threads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from engine.errors import (
    CatalogNotHeldError,
    EngineError,
    GenerationNotOpenError,
    OverloadedError,
)
from engine.ids import ShardId
from engine.index.analysis import analyze
from engine.index.generation import GenerationRecord
from engine.index.jvm import detach
from engine.index.statistics import merge_statistics
from engine.search.cache import BoundedCache
from engine.search.request import (
    Answer,
    Explained,
    ExplainQuery,
    FieldTerms,
    Found,
    Generations,
    GenerationsQuery,
    Hydrated,
    HydrateQuery,
    Pin,
    Question,
    Readable,
    Refined,
    RefineQuery,
    SearchQuery,
    Statistics,
    StatisticsQuery,
)
from engine.search.shard import Shard
from engine.search.shelf import SegmentShelf
from engine.search.views import CatalogViews
from engine.search.visibility import View
from engine.search.wire import pack_answer, pack_error, unpack_question

logger = logging.getLogger(__name__)

_KEPT_GENERATIONS = 2
_KEPT_COUNTS = 65_536

CountKey = tuple[Pin, Readable, str, str]


@dataclass(slots=True)
class _Open:
    """A generation that is open here, and how many threads are inside."""

    record: GenerationRecord
    shards: Mapping[ShardId, Shard]
    users: int = 0
    used_at: float = field(default_factory=time.monotonic)


def shards_of(position: int, groups: int, shards: int) -> tuple[ShardId, ...]:
    """Return the shards of a group: those with shard % groups == position."""
    return tuple(ShardId(shard) for shard in range(position, shards, groups))


class ShardGroup:
    """Holds shards s with s % groups == position, of the newest generation and its predecessor.

    It is a `GroupClient` itself, for a coordinator in the same process; `handle` is the same for
    one elsewhere.
    """

    def __init__(
        self,
        shelf: SegmentShelf,
        views: CatalogViews,
        *,
        position: int = 0,
        groups: int = 1,
        threads: int = 2,
        grace_s: float = 10.0,
    ) -> None:
        """Open nothing yet.

        Args:
            shelf: opens segments, each once.
            views: the catalog.
            position: which group this is, 0..groups - 1.
            groups: how many groups share the shards.
            threads: how many shards are searched at a time.
            grace_s: how long an old generation stays open after its last use, at least the
                longest deadline of a query.
        """
        self.shelf = shelf
        self._views = views
        self._position, self._groups = position, groups
        self._grace_s = grace_s
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"group-{position}")
        self._open: dict[int, _Open] = {}
        self._counts: BoundedCache[CountKey, int] = BoundedCache(_KEPT_COUNTS)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Return what to call the group in logs."""
        return f"group-{self._position}"

    # -------------------------------------------------------------------------- generations

    def open_generation(self, record: GenerationRecord) -> None:
        """Open a generation: only segments that no open one has are opened. Blocking.

        Raises:
            SegmentRefusedError: a segment is corrupt or foreign; what was open stays open.
        """
        with self._lock:
            if record.number in self._open:
                return
        held = self.shelf.take(record, shards_of(self._position, self._groups, record.shards))
        shards = {shard: Shard(shard, segments) for shard, segments in held.items()}
        with self._lock:
            self._open[record.number] = _Open(record, shards)

    def close_old(self) -> None:
        """Close generations before the newest two that no query has used for `grace_s`."""
        now = time.monotonic()
        with self._lock:
            old = sorted(self._open)[:-_KEPT_GENERATIONS]
            idle = [
                number
                for number in old
                if not self._open[number].users and now - self._open[number].used_at > self._grace_s
            ]
            closed = [self._open.pop(number) for number in idle]
        for generation in closed:
            self.shelf.put_back(generation.record, tuple(generation.shards))

    def open_numbers(self) -> tuple[int, ...]:
        """Return the numbers of the generations that are open, ascending."""
        with self._lock:
            return tuple(sorted(self._open))

    @contextmanager
    def _shards(self, pin: Pin) -> Iterator[Mapping[ShardId, Shard]]:
        with self._lock:
            held = self._open.get(pin.generation)
            if held is None:
                raise GenerationNotOpenError(pin.generation)
            held.users += 1
        try:
            yield held.shards
        finally:
            with self._lock:
                held.users -= 1
                held.used_at = time.monotonic()

    def _view(self, pin: Pin, readable: Readable) -> View:
        catalog = self._views.at(pin.catalog)
        if catalog is None:
            raise CatalogNotHeldError(pin.generation)
        return View(pin.generation, catalog, readable)

    # ------------------------------------------------------------------------------ queries

    def _count(self, query: StatisticsQuery) -> Statistics:
        view = self._view(query.pin, query.readable)
        with self._shards(query.pin) as shards:
            fields = frozenset[str]().union(*(shard.fields for shard in shards.values()))
            analysed = {name: analyze(name, query.text) for name in sorted(fields)}
            return Statistics(
                {
                    name: self._counted(query, view, name, terms, tuple(shards.values()))
                    for name, terms in analysed.items()
                    if terms
                }
            )

    def _counted(
        self,
        query: StatisticsQuery,
        view: View,
        name: str,
        terms: Mapping[str, int],
        shards: Sequence[Shard],
    ) -> FieldTerms:
        keys = {term: (query.pin, query.readable, name, term) for term in terms}
        known = {term: self._counts.get(key) for term, key in keys.items()}
        missing = tuple(term for term, count in known.items() if count is None)
        counted = merge_statistics(shard.count(view, {name: missing})[name] for shard in shards)
        for term in missing:
            self._counts.put(keys[term], counted.frequencies[term])
        frequencies = {**known, **counted.frequencies}
        return FieldTerms(
            terms=tuple(terms),
            query_frequencies=tuple(terms.values()),
            passages=counted.passages,
            tokens=counted.tokens,
            document_frequencies=tuple(frequencies[term] or 0 for term in terms),
        )

    async def statistics(self, query: StatisticsQuery, seconds: float) -> Statistics:
        """Analyse a query and count its terms among what the caller may read."""
        async with asyncio.timeout(seconds):
            return await self._run(lambda: self._count(query))

    async def search(self, query: SearchQuery, seconds: float) -> Found:
        """Return the candidates of the shards named in `query.depths`."""
        check = _deadline(seconds)

        def search(shard: ShardId) -> Found:
            view = self._view(query.pin, query.readable)
            with self._shards(query.pin) as shards:
                depth = query.depths[shard]
                return Found((shards[shard].search(query, view, depth, check),))

        async with asyncio.timeout(seconds):
            parts = await asyncio.gather(
                *(self._run(partial(search, shard)) for shard in sorted(query.depths))
            )
        return Found(tuple(found for part in parts for found in part.shards))

    async def refine(self, query: RefineQuery, seconds: float) -> Refined:
        """Return exact BM25 scores."""

        def refine() -> Refined:
            with self._shards(query.pin) as shards:
                return Refined(
                    {
                        shard: shards[shard].refine(query, positions)
                        for shard, positions in query.positions.items()
                    }
                )

        async with asyncio.timeout(seconds):
            return await self._run(refine)

    async def hydrate(self, query: HydrateQuery, seconds: float) -> Hydrated:
        """Return what is shown of passages."""

        def hydrate() -> Hydrated:
            with self._shards(query.pin) as shards:
                return Hydrated(
                    {
                        shard: shards[shard].hydrate(query.text, positions)
                        for shard, positions in query.positions.items()
                    }
                )

        async with asyncio.timeout(seconds):
            return await self._run(hydrate)

    async def explain(self, query: ExplainQuery, seconds: float) -> Explained:
        """Return what scores were computed from."""

        def explain() -> Explained:
            with self._shards(query.pin) as shards:
                return Explained(
                    tuple(
                        shards[shard].explain(query.terms, query.positions[shard])
                        for shard in sorted(query.positions)
                    )
                )

        async with asyncio.timeout(seconds):
            return await self._run(explain)

    async def generations(self, seconds: float) -> Generations:
        """Return the generations that are open. Needs no thread, so no seconds either."""
        del seconds
        with self._lock:
            return Generations(
                {number: tuple(held.shards) for number, held in sorted(self._open.items())}
            )

    async def _run[T](self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # ------------------------------------------------------------------------------- frames

    async def handle(self, frame: bytes) -> bytes:
        """Answer one packed question with a packed answer, or a packed `EngineError`."""
        try:
            question, seconds = unpack_question(frame)
            return pack_answer(await self._answer(question, seconds))
        except EngineError as error:
            return pack_error(error)
        except TimeoutError:
            return pack_error(OverloadedError("the deadline passed"))

    async def _answer(self, question: Question, seconds: float) -> Answer:
        match question:
            case StatisticsQuery():
                return await self.statistics(question, seconds)
            case SearchQuery():
                return await self.search(question, seconds)
            case RefineQuery():
                return await self.refine(question, seconds)
            case HydrateQuery():
                return await self.hydrate(question, seconds)
            case ExplainQuery():
                return await self.explain(question, seconds)
            case GenerationsQuery():
                return await self.generations(seconds)

    def close(self) -> None:
        """End the threads, then close every segment."""
        everyone = threading.Barrier(self._threads)

        def leave() -> None:
            everyone.wait()
            detach()

        for _ in range(self._threads):
            self._pool.submit(leave)
        self._pool.shutdown(wait=True)
        with self._lock:
            held, self._open = list(self._open.values()), {}
        for generation in held:
            self.shelf.put_back(generation.record, tuple(generation.shards))


def _deadline(seconds: float) -> Callable[[], None]:
    """Return a check that raises once the seconds have passed. Threads cannot be cancelled."""
    ends_at = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() >= ends_at:
            raise TimeoutError

    return check
