"""What a caller may not read takes no place, costs no result and moves no score."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from engine.authorization import OPERATOR, READ_SCOPE, Principal
from engine.contract import MODES
from engine.ids import BaseId, ItemId, RevisionId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.revisions import NewRevision
from tests.engine.search.building import Library, small_config

pytestmark = pytest.mark.jvm

ALICE = Principal("alice", scopes=frozenset({READ_SCOPE}))
OTHERS = 999
QUERIES = ("server token", "how do I rotate the certificate of a server", "number 17")


def _mine(library: Library) -> None:
    library.add_base("mine", scope="private", owner="alice")
    texts = [
        (f"mine-{at:02d}", f"Server {at}", f"server number {at} " + "has a token " * (at % 7 + 1))
        for at in range(60)
    ]
    library.add("mine", texts)


def _others(library: Library) -> None:
    """Add bases in which every query is answered better than in alice's, many times over."""
    names = [f"other-{at:03d}" for at in range(OTHERS)]
    library.add_private_bases(names, "nobody")
    rows = [
        NewRevision(
            base_id=BaseId(base),
            title="Server token certificate",
            content=f"server token number 17 rotate the certificate of server {at} " * (at % 3 + 1),
            language="en",
            source_type="file",
            source_ref=base,
            item_id=ItemId(f"in-{base}"),
        )
        for at, base in enumerate(names)
    ]
    report = library.store.writer.add_revisions(rows, publish=True)
    assert not report.refused


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = Library(tmp_path_factory.mktemp("alone") / "store")
    _mine(library)
    library.reindex(2)
    return library


@pytest.fixture(scope="module")
def crowd(alone: Library, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A store of 1,000 bases, of which alice reads one."""
    library = alone.copy(tmp_path_factory.mktemp("crowd") / "store")
    _others(library)
    library.reindex(3, segments=2)
    return library


@asynccontextmanager
async def _opened(library: Library) -> AsyncIterator[Knowledge]:
    knowledge = open_local(small_config(library.root))
    yield knowledge
    await knowledge.close()


async def _answers(knowledge: Knowledge, principal: Principal = ALICE) -> dict[str, bytes]:
    found = {}
    for mode in MODES:
        for query in QUERIES:
            for base in ("", "mine"):
                arguments = {"query": query, "mode": mode, "max_results": 50}
                arguments |= {"knowledge_base_id": base}
                answer = await knowledge.answer(arguments, principal)
                found[f"{mode}/{query}/{base}"] = orjson.dumps(answer)
    return found


async def test_one_readable_base_in_a_thousand_is_ranked_as_if_it_were_alone(
    alone: Library, crowd: Library
) -> None:
    async with _opened(alone) as one, _opened(crowd) as other:
        expected = await _answers(one)
        assert await _answers(other) == expected
        assert await _answers(other, OPERATOR) != expected
    for name, answer in expected.items():
        if "server" in name:  # in every text of alice's
            assert len(orjson.loads(answer)["results"]) == 50, name


async def test_a_caller_who_may_read_nothing_gets_nothing(crowd: Library) -> None:
    stranger = Principal("mallory", scopes=frozenset({READ_SCOPE}))
    async with _opened(crowd) as knowledge:
        for mode in MODES:
            answer = await knowledge.answer({"query": QUERIES[0], "mode": mode}, stranger)
            assert answer["results"] == []


HIDDEN = " ".join(["server token certificate rotate number 17"] * 12)


def _hide_a_base(library: Library) -> None:
    library.add_base("hidden", scope="private", owner="nobody")
    library.add("hidden", [(f"a-{at}", "Server token", HIDDEN) for at in range(30)])


def _draft_items(library: Library) -> None:
    library.add("mine", [(f"a-{at}", "Server", HIDDEN) for at in range(30)], publish=False)


def _draft_revisions(library: Library) -> None:
    drafts = [(f"mine-{at:02d}", "Server", HIDDEN) for at in range(60)]
    library.add("mine", drafts, publish=False)


def _publish_and_unpublish(library: Library) -> None:
    library.add("mine", [(f"a-{at}", "Server", HIDDEN) for at in range(30)])
    library.reindex(2)
    library.store.writer.unpublish([ItemId(f"a-{at}") for at in range(30)])


def _publish_and_withdraw(library: Library) -> None:
    library.add("mine", [("a-0", "Server", HIDDEN)], revision="r1")
    library.reindex(2)
    library.store.writer.withdraw(ItemId("a-0"), RevisionId("r1"))


def _archive_items(library: Library) -> None:
    library.add("mine", [("a-0", "Server", HIDDEN)])
    library.reindex(2)
    library.store.writer.archive_item(ItemId("a-0"))


CHANGES = (
    _hide_a_base,
    _draft_items,
    _draft_revisions,
    _publish_and_unpublish,
    _publish_and_withdraw,
    _archive_items,
)


@pytest.mark.parametrize("reindexed", [False, True])
@pytest.mark.parametrize("change", CHANGES)
async def test_no_byte_of_an_answer_tells_that_there_is_more(
    alone: Library, tmp_path: Path, change: object, reindexed: bool
) -> None:
    assert callable(change)
    library = alone.copy(tmp_path / "store")
    async with _opened(library) as before:
        expected = await _answers(before)
    change(library)
    if reindexed:
        library.reindex(3)
    async with _opened(library) as after:
        assert await _answers(after) == expected
