"""Shard groups in several processes' worth of parts: frames, coverage, deadlines, generations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.authorization import OPERATOR, Principal
from engine.config import Config
from engine.errors import CatalogNotHeldError, GenerationNotOpenError, OverloadedError
from engine.local import open_follower, open_knowledge, open_local
from engine.search.answering import Knowledge
from engine.search.client import FrameGroupClient, GroupClient, Transport
from engine.search.encoding import LocalQueryEncoder
from engine.search.following import Follower
from engine.search.wire import pack_error
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import QUERIES, fill

MODES = ("hybrid", "lexical", "semantic", "rrf")
GROUPS = 3
STRANGER = Principal("stranger", scopes=frozenset({"knowledge:read"}))

Wrap = Callable[[int, Transport], Transport]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = Library(tmp_path_factory.mktemp("groups") / "store")
    library.add_base("kb")
    library.add_base("hidden", scope="private", owner="nobody")
    fill(library, "kb", seed=3, count=40)
    fill(library, "hidden", seed=4, count=20, prefix="hidden")
    library.reindex(shards=5)
    return library


def _direct(number: int, transport: Transport) -> Transport:
    return transport


@pytest.fixture(scope="module")
def followers(library: Library) -> Iterator[Sequence[Follower]]:
    config = small_config(library.root)
    opened = [open_follower(config, position=n, groups=GROUPS) for n in range(GROUPS)]
    yield opened
    for follower in opened:
        follower.close()


@asynccontextmanager
async def _knowledge(
    config: Config, followers: Sequence[Follower], encoder: Any, wrap: Wrap = _direct
) -> AsyncIterator[Knowledge]:
    clients: list[GroupClient] = []
    for number, follower in enumerate(followers):
        assert follower.group is not None
        handle = follower.group.handle

        async def carry(frame: bytes, seconds: float, to: Any = handle) -> bytes:
            answer: bytes = await to(frame)
            return answer

        clients.append(FrameGroupClient(f"group-{number}", wrap(number, carry)))
    ingress = open_follower(config, position=None, groups=GROUPS)
    knowledge = open_knowledge(config, ingress, clients, LocalQueryEncoder(encoder))
    yield knowledge
    await knowledge.close()


async def test_groups_behind_frames_answer_as_one_process_does(
    library: Library, followers: Sequence[Follower]
) -> None:
    config = small_config(library.root)
    alone = open_local(config)
    async with _knowledge(config, followers, library.encoder) as knowledge:
        for mode in MODES:
            for query in QUERIES[:8]:
                arguments = {"query": query, "mode": mode, "max_results": 20}
                for principal in (OPERATOR, STRANGER):
                    together = await knowledge.answer(arguments, principal)
                    expected = await alone.answer(arguments, principal)
                    assert orjson.dumps(together) == orjson.dumps(expected)
        item = {"knowledge_item_id": "item-tie-00"}
        assert await knowledge.answer(item, OPERATOR) == await alone.answer(item, OPERATOR)
    await alone.close()


def _failing(numbers: Sequence[int], fail: Callable[[], Awaitable[bytes]]) -> Wrap:
    """Return transports of which some fail at every frame."""

    def wrap(number: int, transport: Transport) -> Transport:
        async def carry(frame: bytes, seconds: float) -> bytes:
            return await fail() if number in numbers else await transport(frame, seconds)

        return carry

    return wrap


async def _overloaded() -> bytes:
    raise OverloadedError("no replica")


async def _late() -> bytes:
    raise TimeoutError


async def _refusing() -> bytes:
    return pack_error(OverloadedError("busy"))


async def _silent() -> bytes:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("fail", [_overloaded, _late, _refusing])
async def test_a_group_that_fails_is_left_out_and_told_by_coverage(
    library: Library, followers: Sequence[Follower], fail: Callable[[], Awaitable[bytes]]
) -> None:
    config = small_config(library.root)
    async with _knowledge(config, followers, library.encoder, _failing([1], fail)) as knowledge:
        answer = await knowledge.answer({"query": "server"}, OPERATOR)
    # Group 1 of 3 holds shards 1 and 4 of 5.
    assert answer["coverage"] == {"shards": 5, "answered": 3, "fraction": 0.6}
    assert answer["results"]


async def test_a_silent_group_is_left_out_in_time_for_the_others(
    library: Library, followers: Sequence[Follower]
) -> None:
    config = small_config(library.root, search={"deadline_s": 6.0})
    async with _knowledge(config, followers, library.encoder, _failing([0], _silent)) as knowledge:
        answer = await knowledge.answer({"query": "server"}, OPERATOR)
    assert answer["coverage"] == {"shards": 5, "answered": 3, "fraction": 0.6}
    assert answer["results"]


async def test_a_query_whose_only_group_is_silent_is_overloaded(
    library: Library, followers: Sequence[Follower]
) -> None:
    config = small_config(library.root, search={"deadline_s": 1.0})
    wrap = _failing([0, 1, 2], _silent)
    async with _knowledge(config, followers, library.encoder, wrap) as knowledge:
        with pytest.raises(OverloadedError):
            await knowledge.answer({"query": "server"}, OPERATOR)


@pytest.mark.parametrize("fail", [_overloaded, _late, _refusing])
async def test_no_group_at_all_is_overloaded(
    library: Library, followers: Sequence[Follower], fail: Callable[[], Awaitable[bytes]]
) -> None:
    config = small_config(library.root)
    wrap = _failing([0, 1, 2], fail)
    async with _knowledge(config, followers, library.encoder, wrap) as knowledge:
        with pytest.raises(OverloadedError):
            await knowledge.answer({"query": "server"}, OPERATOR)
        assert not await knowledge.ready()


async def test_partial_answers_can_be_forbidden(
    library: Library, followers: Sequence[Follower]
) -> None:
    config = small_config(library.root, search={"allow_partial": False})
    wrap = _failing([2], _overloaded)
    async with _knowledge(config, followers, library.encoder, wrap) as knowledge:
        with pytest.raises(OverloadedError):
            await knowledge.answer({"query": "server"}, OPERATOR)


async def test_a_group_that_fails_midway_is_dropped_from_the_whole_query(
    library: Library, followers: Sequence[Follower]
) -> None:
    """Group 0 answers the search, then dies: nothing of it may be shown."""

    def wrap(number: int, transport: Transport) -> Transport:
        async def carry(frame: bytes, seconds: float) -> bytes:
            if number == 0 and (b'"hydrate?"' in frame or b'"refine?"' in frame):
                raise OverloadedError("died")
            return await transport(frame, seconds)

        return carry

    config = small_config(library.root)
    async with _knowledge(config, followers, library.encoder, wrap) as knowledge:
        for mode in MODES:
            answer = await knowledge.answer({"query": "server", "mode": mode}, OPERATOR)
            assert answer["coverage"]["answered"] == 3
            assert len(answer["results"]) == 10


async def test_a_replica_without_the_pinned_state_makes_the_query_run_again(
    library: Library, followers: Sequence[Follower]
) -> None:
    refusals = [GenerationNotOpenError(1)]

    def wrap(number: int, transport: Transport) -> Transport:
        async def carry(frame: bytes, seconds: float) -> bytes:
            if number == 1 and refusals and b'"search?"' in frame:
                return pack_error(refusals.pop())
            return await transport(frame, seconds)

        return carry

    config = small_config(library.root)
    async with _knowledge(config, followers, library.encoder, wrap) as knowledge:
        answer = await knowledge.answer({"query": "server"}, OPERATOR)
    assert not refusals
    assert "coverage" not in answer


async def test_a_replica_that_is_at_another_catalog_makes_no_query_go_a_generation_back(
    tmp_path: Path,
) -> None:
    library = Library(tmp_path / "store")
    library.add_base("kb")
    for revision in ("r1", "r2"):
        library.add("kb", [("item", "Server", f"server text {revision}")], revision=revision)
        library.reindex()
    refusals = [CatalogNotHeldError(2)] * 3

    def wrap(number: int, transport: Transport) -> Transport:
        async def carry(frame: bytes, seconds: float) -> bytes:
            if refusals and b'"search?"' in frame:
                return pack_error(refusals.pop())
            return await transport(frame, seconds)

        return carry

    config = small_config(library.root)
    follower = open_follower(config)
    async with _knowledge(config, [follower], library.encoder, wrap) as knowledge:
        answer = await knowledge.answer({"query": "server"}, OPERATOR)
    follower.close()
    assert not refusals
    assert [result["knowledge_revision_id"] for result in answer["results"]] == ["r2"]


async def test_a_replica_that_is_behind_polls_the_catalog_once(
    library: Library, followers: Sequence[Follower], tmp_path: Path
) -> None:
    """The groups' views are older than the ingress's: the query names a version they must fetch."""
    config = small_config(library.root)
    async with _knowledge(config, followers, library.encoder) as knowledge:
        views = knowledge._coordinator._views
        groups = [follower.views for follower in followers]
        library.add("kb", [("newer", "Newer", "a newer text")], publish=False)
        version = views.poll().version
        assert version not in {group.newest.version for group in groups}
        answer = await knowledge.answer({"query": "server"}, OPERATOR)
        assert "coverage" not in answer
        assert {group.newest.version for group in groups} == {version}


async def test_a_damaged_frame_is_answered_by_an_error_frame(
    followers: Sequence[Follower],
) -> None:
    group = followers[0].group
    assert group is not None
    assert b"octavo_frame" in await group.handle(b"not a frame")
