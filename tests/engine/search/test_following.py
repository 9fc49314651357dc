"""Following a store: publishing, withdrawing, new generations, refused segments."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.authorization import OPERATOR, Principal
from engine.config import Config
from engine.errors import (
    OverloadedError,
    ResourceUnavailableError,
    SegmentRefusedError,
)
from engine.ids import BaseId, ItemId, RevisionId
from engine.local import open_follower, open_knowledge
from engine.search.answering import Knowledge
from engine.search.encoding import LocalQueryEncoder
from engine.search.following import Follower
from engine.search.group import ShardGroup
from engine.search.request import Hydrated, HydrateQuery
from tests.engine.search.building import Library, small_config

READ = frozenset({"knowledge:read"})
STRANGER = Principal("stranger", scopes=READ)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = Library(tmp_path_factory.mktemp("following") / "store")
    library.add_base("kb")
    library.add_base("mine", scope="private", owner="alice")
    texts = [(f"item-{at}", "Server", f"server text number {at}") for at in range(6)]
    library.add("kb", texts, revision="r1")
    library.add("mine", [("secret", "Server", "server secret of alice")], revision="r1")
    library.reindex(shards=2)
    return library


@pytest.fixture
def library(template: Library, tmp_path: Path) -> Library:
    return template.copy(tmp_path / "store")


@asynccontextmanager
async def opened(
    library: Library, config: Config | None = None
) -> AsyncIterator[tuple[Knowledge, Follower]]:
    config = config or small_config(library.root)
    follower = open_follower(config)
    assert follower.group is not None
    encoder = LocalQueryEncoder(library.encoder)
    knowledge = open_knowledge(config, follower, [follower.group], encoder)
    yield knowledge, follower
    await knowledge.close()


async def found(knowledge: Knowledge, principal: Principal = OPERATOR, **more: Any) -> list[str]:
    answer = await knowledge.answer({"query": "server text", **more}, principal)
    return [result["knowledge_item_id"] for result in answer["results"]]


async def _unavailable(knowledge: Knowledge, item: str, **more: str) -> bool:
    try:
        await knowledge.answer({"knowledge_item_id": item, **more}, OPERATOR)
    except ResourceUnavailableError:
        return True
    return False


# ------------------------------------------------------------------------------- withdrawing


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic", "rrf"])
async def test_unpublishing_acts_without_reindexing_and_leaves_no_gap(
    library: Library, mode: str
) -> None:
    async with opened(library) as (knowledge, follower):
        assert "item-0" in await found(knowledge, mode=mode)
        library.store.writer.unpublish([ItemId("item-0")])
        follower.views.poll()
        answer = await knowledge.answer({"query": "server text", "mode": mode}, OPERATOR)
        items = [result["knowledge_item_id"] for result in answer["results"]]
        assert sorted(items) == ["item-1", "item-2", "item-3", "item-4", "item-5", "secret"]
        if mode != "hybrid":
            side = "semantic" if mode == "semantic" else "lexical"
            ranks = [result["scores"][f"{side}_rank"] for result in answer["results"]]
            assert sorted(ranks) == [1, 2, 3, 4, 5, 6]
        assert await _unavailable(knowledge, "item-0")


async def test_withdrawing_a_revision_hides_it_from_search_and_pins(library: Library) -> None:
    async with opened(library) as (knowledge, follower):
        library.store.writer.withdraw(ItemId("item-1"), RevisionId("r1"))
        follower.views.poll()
        assert "item-1" not in await found(knowledge)
        assert await _unavailable(knowledge, "item-1", knowledge_revision_id="r1")


async def test_a_base_that_changes_hands_is_hidden_at_once(library: Library) -> None:
    alice = Principal("alice", scopes=READ)
    async with opened(library) as (knowledge, follower):
        assert "secret" in await found(knowledge, alice)
        library.store.writer.set_base(BaseId("mine"), owner="bob")
        follower.views.poll()
        assert "secret" not in await found(knowledge, alice)
        with pytest.raises(ResourceUnavailableError):
            await found(knowledge, alice, knowledge_base_id="mine")
        library.store.writer.archive_base(BaseId("mine"))
        follower.views.poll()
        assert "secret" not in await found(knowledge, OPERATOR)


async def test_a_winner_that_falls_away_while_the_query_runs_is_not_shown(
    library: Library,
) -> None:
    class Withdrawing(ShardGroup):
        """A group beside which a writer withdraws the first winner, before texts are fetched."""

        withdrawn: tuple[ItemId, ...] = ()

        async def hydrate(self, query: HydrateQuery, seconds: float) -> Hydrated:
            answer = await super().hydrate(query, seconds)
            if not self.withdrawn:
                first = next(p for shown in answer.passages.values() for p in shown)
                self.withdrawn = (first.item,)
                library.store.writer.unpublish([first.item])
                self._views.poll()
            return answer

    async with opened(library) as (_, follower):
        assert follower.group is not None
        group = follower.group
        group.__class__ = Withdrawing
        assert isinstance(group, Withdrawing)
        config = small_config(library.root)
        other = open_follower(config, position=None)
        other.views = follower.views
        knowledge = open_knowledge(config, other, [group], LocalQueryEncoder(library.encoder))
        items = await found(knowledge)
        assert group.withdrawn
        assert group.withdrawn[0] not in items
        assert len(items) == 6
        await knowledge.close()


async def test_a_catalog_that_cannot_be_confirmed_is_not_answered_from(
    library: Library,
) -> None:
    config = small_config(
        library.root, catalog={"max_staleness_s": 0.2, "poll_s": 0.05}, search={"deadline_s": 5.0}
    )
    async with opened(library, config) as (knowledge, _):
        assert await found(knowledge)
        log = library.root / "store" / "items" / "_delta_log"
        newest = max(int(path.stem) for path in log.glob("*.json"))
        (log / f"{newest + 1:020d}.json").write_bytes(b"damaged")
        async with asyncio.timeout(30):
            while True:
                try:
                    await knowledge.answer({"query": "server"}, OPERATOR)
                except OverloadedError:
                    break
        with pytest.raises(OverloadedError):
            await knowledge.answer({"knowledge_item_id": "item-2"}, OPERATOR)
        assert not await knowledge.ready()


async def test_a_catalog_that_is_lost_while_a_query_runs_is_not_answered_from(
    library: Library,
) -> None:
    class Losing(ShardGroup):
        """A group that answers its last question when the catalog cannot be confirmed any more."""

        async def hydrate(self, query: HydrateQuery, seconds: float) -> Hydrated:
            self._views._clock = lambda: math.inf  # no poll will ever be young enough
            return await super().hydrate(query, seconds)

    catalog = {"max_staleness_s": 1.0}
    async with opened(library, small_config(library.root, catalog=catalog)) as (
        knowledge,
        follower,
    ):
        assert follower.group is not None
        follower.group.__class__ = Losing
        with pytest.raises(OverloadedError, match="confirmed"):
            await found(knowledge)


# -------------------------------------------------------------------------------- publishing


async def test_a_new_revision_is_current_with_its_generation_for_search_and_read_alike(
    library: Library,
) -> None:
    async with opened(library) as (knowledge, follower):
        library.add("kb", [("item-2", "Server", "server text renewed")], revision="r2")
        library.add("kb", [("item-9", "Server", "server text, all new")], revision="r1")
        follower.views.poll()
        read = {"knowledge_item_id": "item-2"}
        assert "item-9" not in await found(knowledge)
        assert (await knowledge.answer(read, OPERATOR))["knowledge_revision_id"] == "r1"
        assert await _unavailable(knowledge, "item-9")
        library.reindex(2, grow=True)
        follower.follow()
        answer = await knowledge.answer({"query": "server text"}, OPERATOR)
        revisions = {
            result["knowledge_item_id"]: result["knowledge_revision_id"]
            for result in answer["results"]
        }
        assert revisions["item-2"] == "r2"
        assert "item-9" in revisions
        assert knowledge.generation() == 2
        assert (await knowledge.answer(read, OPERATOR))["knowledge_revision_id"] == "r2"
        pinned = {**read, "knowledge_revision_id": "r1"}
        assert (await knowledge.answer(pinned, OPERATOR))["content"] == "server text number 2"


async def test_unchanged_segments_are_opened_once_and_old_ones_closed(library: Library) -> None:
    config = small_config(library.root, search={"deadline_s": 0.001})
    follower = open_follower(config)
    group = follower.group
    assert group is not None
    assert len(group.shelf) == 2
    library.add("kb", [("item-2", "Server", "server text renewed")], revision="r2")
    library.reindex(2, grow=True)
    follower.follow()
    assert group.open_numbers() == (1, 2)
    assert len(group.shelf) == 3
    library.reindex(1)
    follower.follow()
    library.reindex(1)
    follower.follow()
    follower.follow()
    assert group.open_numbers() == (3, 4)
    assert len(group.shelf) == 2
    follower.close()
    assert len(group.shelf) == 0


def _corrupt(library: Library, file: str) -> None:
    newest = max((library.root / "segments").iterdir(), key=lambda path: path.name[-4:])
    path = newest / file
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize("file", ["vectors.npy", "segment.json", "passages.arrow"])
async def test_a_corrupt_segment_is_refused_and_the_last_good_generation_serves(
    library: Library, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(library) as (knowledge, follower):
        before = await found(knowledge)
        library.add("kb", [("item-2", "Server", "server text renewed")], revision="r2")
        library.reindex(2, grow=True)
        _corrupt(library, file)
        follower.follow()
        assert isinstance(follower.refusal, SegmentRefusedError)
        refused = [record for record in caplog.records if record.message == "generation refused"]
        fields: Mapping[str, Any] = vars(refused[0])
        assert fields["generation"] == 2
        assert fields["segment"] == follower.refusal.segment
        assert await found(knowledge) == before
        assert knowledge.generation() == 1
    async with opened(library) as (knowledge, _):  # a restart goes back to the predecessor
        assert await found(knowledge) == before


def test_a_store_whose_only_generation_is_corrupt_is_refused_by_name(library: Library) -> None:
    _corrupt(library, "faiss.index")
    with pytest.raises(SegmentRefusedError, match=r"faiss\.index"):
        open_follower(small_config(library.root))


def test_a_changed_reference_sample_is_refused_by_name(library: Library) -> None:
    (path,) = (library.root / "reference").iterdir()
    data = bytearray(path.read_bytes())
    data[-2] ^= 1  # another number, as good a float as the one before
    path.write_bytes(bytes(data))
    with pytest.raises(SegmentRefusedError, match=r"reference/.*has changed"):
        open_follower(small_config(library.root))


# ------------------------------------------------------------------------------- hidden bases


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic", "rrf"])
async def test_hidden_texts_change_no_byte_of_an_answer(
    template: Library, tmp_path: Path, mode: str
) -> None:
    bare, full = template.copy(tmp_path / "bare"), template.copy(tmp_path / "full")
    full.add_base("hidden", scope="private", owner="nobody")
    hidden = [(f"a-{at}", "Server", "server server text text text " * 20) for at in range(30)]
    full.add("hidden", hidden)
    bare.reindex(2)
    full.reindex(3)
    arguments = {"query": "server text number", "mode": mode}
    async with opened(bare) as (one, _), opened(full) as (other, _):
        expected = orjson.dumps(await one.answer(arguments, STRANGER))
        assert orjson.dumps(await other.answer(arguments, STRANGER)) == expected
        assert orjson.dumps(await other.answer(arguments, OPERATOR)) != expected
