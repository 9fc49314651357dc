"""No placement of the items moves a byte: 1, 2, 5 and 13 shards, one or many segments, skewed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.authorization import OPERATOR, READ_SCOPE, Principal
from engine.ids import ItemId, ShardId, shard_of
from engine.index.generation import GenerationLog, GenerationRecord
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.engine.search.building import Library, Place, small_config
from tests.engine.search.texts import QUERIES

MODES = ("hybrid", "lexical", "semantic", "rrf")
LONG_CHARS = 400
SCOPES = frozenset({READ_SCOPE})
BLUE = Principal("bob", frozenset({"blue"}), SCOPES)
STRANGER = Principal("stranger", scopes=SCOPES)

Skews = Mapping[ItemId, tuple[str, int]]
"""Language and characters of each item's newest revision."""


def _skews(library: Library) -> Skews:
    found = {}
    for state in library.store.writer.catalog().items():
        revision = library.store.revisions.read(state.item_id, state.head_revision)
        assert revision is not None
        found[state.item_id] = (revision.language, len(revision.content))
    return found


def _by_length(skews: Skews) -> Place:
    """Put all long items in the last shard, the others in the first: average lengths differ."""
    return lambda item, shards: ShardId(shards - 1 if skews[item][1] > LONG_CHARS else 0)


def _by_language(skews: Skews) -> Place:
    """Put each language in a shard of its own; shards may stay empty."""
    languages = sorted({language for language, _ in skews.values()})
    return lambda item, shards: ShardId(languages.index(skews[item][0]) % shards)


def _newest(library: Library) -> GenerationRecord:
    record = GenerationLog(library.store.storage).newest()
    assert record is not None
    return record


@pytest.fixture(scope="module")
def placed(
    seed_library: Library, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Library]:
    """Stores of the same knowledge, placed in ten ways."""
    root: Path = tmp_path_factory.mktemp("placements")
    skews = _skews(seed_library)
    made: dict[str, Library] = {}

    def place(name: str, shards: int, segments: int = 1, by: Place = shard_of) -> None:
        made[name] = seed_library.copy(root / name)
        made[name].reindex(shards, segments, by)

    for shards in (1, 2, 5, 13):
        place(f"{shards} shards", shards)
    place("1 shard of many segments", 1, segments=9)
    place("5 shards of many segments", 5, segments=4)
    place("long items in one of 5 shards", 5, by=_by_length(skews))
    place("long items in one of 13 shards", 13, segments=2, by=_by_length(skews))
    place("a shard for each language", 5, by=_by_language(skews))
    place("a shard for each language of 13", 13, segments=2, by=_by_language(skews))
    return made


@pytest.fixture(scope="module")
def placements(placed: Mapping[str, Library]) -> Iterator[Mapping[str, Knowledge]]:
    """All of them open."""
    opened = {name: open_local(small_config(library.root)) for name, library in placed.items()}
    yield opened
    for knowledge in opened.values():
        asyncio.run(knowledge.close())


async def _answers(
    placements: Mapping[str, Knowledge], principal: Principal, arguments: Mapping[str, Any]
) -> dict[str, bytes]:
    return {
        name: orjson.dumps(await knowledge.answer(arguments, principal))
        for name, knowledge in placements.items()
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("principal", [OPERATOR, BLUE, STRANGER], ids=lambda p: p.subject)
@pytest.mark.parametrize("base", ["", "open"])
async def test_every_placement_gives_the_same_bytes(
    placements: Mapping[str, Knowledge], mode: str, principal: Principal, base: str
) -> None:
    found = 0
    for query in QUERIES:
        arguments = {"query": query, "mode": mode, "max_results": 50, "knowledge_base_id": base}
        answers = await _answers(placements, principal, arguments)
        first = answers["1 shards"]
        assert {name: answer == first for name, answer in answers.items()} == dict.fromkeys(
            placements, True
        ), query
        found += len(orjson.loads(first)["results"])
    assert found > len(QUERIES)


@pytest.mark.parametrize("mode", MODES)
async def test_placements_agree_for_a_team_narrowed_to_its_base(
    placements: Mapping[str, Knowledge], mode: str
) -> None:
    for query in QUERIES:
        arguments = {"query": query, "mode": mode, "knowledge_base_id": "team"}
        assert len(set((await _answers(placements, BLUE, arguments)).values())) == 1, query


def test_placements_differ_indeed(
    placements: Mapping[str, Knowledge], placed: Mapping[str, Library]
) -> None:
    """Otherwise equal answers would say nothing."""
    held = {
        name: tuple((segment.shard, segment.passages) for segment in _newest(library).segments)
        for name, library in placed.items()
    }
    assert set(held) == set(placements)
    assert len(set(held.values())) == len(held)
    assert max(map(len, held.values())) > 13
