"""Same generation, catalog version, query and principal: the same bytes, whatever else differs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from engine.authorization import OPERATOR
from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.local import open_follower, open_knowledge, open_local
from engine.search.answering import Knowledge
from engine.search.client import FrameGroupClient, GroupClient
from engine.search.encoding import LocalQueryEncoder
from engine.search.group import ShardGroup
from engine.search.request import Candidates, Found, SearchQuery
from engine.search.wire import pack_answer, unpack_answer, unpack_question
from tests.engine.search.building import Library, small_config
from tests.engine.search.replaying import (
    MODES,
    answers,
    config_of,
    digest_of,
    restarted,
)
from tests.engine.search.texts import QUERIES, fill

GROUPS = 3
TASKS = 32


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Five shards of two segments, in two generations."""
    library = Library(tmp_path_factory.mktemp("same") / "store")
    library.add_base("open")
    library.add_base("team", scope="team", owner="alice", team="blue")
    fill(library, "open", seed=21, count=60)
    fill(library, "team", seed=22, count=20, prefix="team")
    library.reindex(5, segments=2)
    library.add("open", [(f"item-{at:03d}", "server", f"a server {at}") for at in range(0, 30, 5)])
    library.reindex(5, grow=True)
    return library


@pytest.fixture(scope="module")
def expected(library: Library) -> Mapping[str, bytes]:
    """The answers of one process, asked one after the other."""

    async def ask() -> dict[str, bytes]:
        knowledge = open_local(small_config(library.root))
        found = {question: answer async for question, answer in answers(knowledge)}
        await knowledge.close()
        return found

    return asyncio.run(ask())


async def _asked_again(knowledge: Knowledge) -> dict[str, bytes]:
    return {question: answer async for question, answer in answers(knowledge)}


async def test_warm_caches_and_a_second_replica_change_nothing(
    library: Library, expected: Mapping[str, bytes]
) -> None:
    one, other = (open_local(small_config(library.root)) for _ in range(2))
    assert await _asked_again(one) == expected
    assert await _asked_again(one) == expected
    assert await _asked_again(other) == expected
    await one.close()
    await other.close()


async def test_caches_that_hold_nothing_change_nothing(
    library: Library, expected: Mapping[str, bytes]
) -> None:
    config = small_config(library.root, search={"deadline_s": 120.0, "query_cache": 0})
    knowledge = open_local(config)
    assert await _asked_again(knowledge) == expected
    await knowledge.close()


async def test_thirty_two_callers_at_once_get_what_one_alone_gets(
    library: Library, expected: Mapping[str, bytes]
) -> None:
    config = small_config(library.root, search={"deadline_s": 300.0, "threads": 8})
    knowledge = open_local(config)  # cold: every cache fills under contention

    async def ask(task: int) -> dict[str, bytes]:
        mine = random.Random(task).sample(QUERIES, 3)
        return {question: answer async for question, answer in answers(knowledge, mine)}

    for found in await asyncio.gather(*(ask(task) for task in range(TASKS))):
        assert found == {question: expected[question] for question in found}
    await knowledge.close()


# ---------------------------------------------------------------------------------- arrival


def _shuffled(part: Candidates, rng: random.Random) -> Candidates:
    """Return the candidates of a shard in another order of rows and of items."""
    rows = np.array(rng.sample(range(len(part.items)), len(part.items)), np.int64)
    names = rng.sample(range(len(part.item_ids)), len(part.item_ids))
    codes = np.argsort(np.array(names, np.int64)).astype(np.int32)
    return replace(
        part,
        segments=part.segments[rows],
        ordinals=part.ordinals[rows],
        items=codes[part.items[rows]],
        starts=part.starts[rows],
        fields=part.fields[rows],
        lexical=part.lexical[rows],
        semantic=part.semantic[rows],
        item_ids=tuple(part.item_ids[name] for name in names),
    )


class _Shuffling:
    """A transport that delays answers at random, and shuffles what is in them."""

    def __init__(self, group: ShardGroup, rng: random.Random) -> None:
        self._group, self._rng = group, rng
        self.shuffles = 0

    async def carry(self, frame: bytes, seconds: float) -> bytes:
        question, _ = unpack_question(frame)
        for _ in range(self._rng.randrange(50)):
            await asyncio.sleep(0)
        answer = await self._group.handle(frame)
        for _ in range(self._rng.randrange(50)):
            await asyncio.sleep(0)
        if not isinstance(question, SearchQuery):
            return answer
        parts = [_shuffled(part, self._rng) for part in unpack_answer(answer, Found).shards]
        self._rng.shuffle(parts)
        self.shuffles += 1
        return pack_answer(Found(tuple(parts)))


@pytest.mark.parametrize("seed", [0, 1])
async def test_groups_that_answer_in_any_order_change_nothing(
    library: Library, expected: Mapping[str, bytes], seed: int
) -> None:
    config, rng = small_config(library.root), random.Random(seed)
    followers = [open_follower(config, position=n, groups=GROUPS) for n in range(GROUPS)]
    clients: list[GroupClient] = []
    transports = []
    for follower in followers:
        assert follower.group is not None
        transports.append(_Shuffling(follower.group, rng))
        clients.append(FrameGroupClient(follower.group.name, transports[-1].carry))
    ingress = open_follower(config, position=None, groups=GROUPS)
    encoder = LocalQueryEncoder(library.encoder)
    knowledge = open_knowledge(config, ingress, clients, encoder)
    assert await _asked_again(knowledge) == expected
    assert all(transport.shuffles for transport in transports)
    await knowledge.close()
    for follower in followers:
        follower.close()


# --------------------------------------------------------------------------------- restarts


@pytest.mark.slow
async def test_restarts_under_other_hash_seeds_change_nothing(library: Library) -> None:
    knowledge = open_local(small_config(library.root))
    here = await digest_of(knowledge)
    await knowledge.close()
    assert restarted(library.root, "hashing", [0, 1]) == [here] * 2


@pytest.mark.long
async def test_ten_hash_seeds_change_nothing(library: Library) -> None:
    knowledge = open_local(small_config(library.root))
    here = await digest_of(knowledge)
    await knowledge.close()
    for seeds in (range(5), range(5, 10)):
        assert restarted(library.root, "hashing", seeds) == [here] * 5


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Knowledge]]:
    """A store of the packaged model, open in this process."""
    encoder = open_encoder(EncoderConfig())
    library = Library(
        tmp_path_factory.mktemp("packaged") / "store",
        encoder,  # type: ignore[arg-type]  # the library uses what every encoder has
    )
    library.add_base("open")
    texts = [("rotate", "Keys", "Rotate the certificate, then restore the database backup.")]
    texts += [("reset", "Errors", "ERR_CONN_RESET means that the server closed the connection.")]
    library.add("open", texts)
    library.add("open", [("haus", "Haus", "Die Häuser am Hafen und ein Schiff.")], language="de")
    library.add("open", [("beifen", "备份", "数据库备份恢复和服务器登录错误。")], language="zh")
    library.reindex(2)
    knowledge = open_local(config_of(library.root, "default"), encoder)
    yield library.root, knowledge
    asyncio.run(knowledge.close())


@pytest.mark.slow
async def test_the_packaged_model_answers_alike_alone_together_and_after_a_restart(
    packaged: tuple[Path, Knowledge],
) -> None:
    root, knowledge = packaged
    alone = {question: answer async for question, answer in answers(knowledge)}
    arguments = [{"query": query, "mode": mode} for query in QUERIES[:4] for mode in MODES]
    calls = [knowledge.answer(one, OPERATOR) for one in arguments * 8]
    together = [orjson.dumps(found) for found in await asyncio.gather(*calls)]
    assert together == together[: len(arguments)] * 8
    assert await _asked_again(knowledge) == alone
    here = await digest_of(knowledge)
    assert restarted(root, "default", [1]) == [here]
