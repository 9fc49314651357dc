"""The same knowledge gives the same bytes in every layout: shards, segments, skew, the dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from engine.authorization import OPERATOR, Principal
from engine.search.answering import Knowledge
from tests.engine.search.texts import QUERIES

MODES = ("hybrid", "lexical", "semantic", "rrf")
ALICE = Principal("alice", scopes=frozenset({"knowledge:read"}))
STRANGER = Principal("stranger", scopes=frozenset({"knowledge:read"}))


async def _bytes(knowledge: Knowledge, principal: Principal, **arguments: Any) -> bytes:
    return orjson.dumps(await knowledge.answer(arguments, principal))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("principal", [OPERATOR, STRANGER], ids=["operator", "stranger"])
async def test_every_layout_gives_the_same_bytes(
    layouts: Mapping[str, Knowledge], mode: str, principal: Principal
) -> None:
    for query in QUERIES:
        arguments = {"query": query, "mode": mode, "max_results": 20}
        answers = {
            name: await _bytes(knowledge, principal, **arguments)
            for name, knowledge in layouts.items()
        }
        assert len(set(answers.values())) == 1, (query, answers)


@pytest.mark.parametrize("mode", MODES)
async def test_a_base_filter_gives_the_same_bytes_in_every_layout(
    layouts: Mapping[str, Knowledge], mode: str
) -> None:
    for query in QUERIES[:6]:
        arguments = {"query": query, "mode": mode, "knowledge_base_id": "team"}
        answers = {await _bytes(knowledge, ALICE, **arguments) for knowledge in layouts.values()}
        assert len(answers) == 1
        found = orjson.loads(answers.pop())["results"]
        assert {result["knowledge_base_id"] for result in found} <= {"team"}


@pytest.mark.parametrize("mode", MODES)
async def test_a_page_of_ten_is_the_head_of_the_page_of_fifty(
    layouts: Mapping[str, Knowledge], mode: str
) -> None:
    for name in ("one", "skewed"):
        for query in QUERIES:
            arguments = {"query": query, "mode": mode}
            ten = await layouts[name].answer(arguments, OPERATOR)
            fifty = await layouts[name].answer({**arguments, "max_results": 50}, OPERATOR)
            assert ten["results"] == fifty["results"][:10]


async def test_the_flood_is_one_result_and_hides_nobody(layouts: Mapping[str, Knowledge]) -> None:
    for mode in MODES:
        answer = await layouts["one"].answer(
            {"query": "server flood", "mode": mode, "max_results": 50}, OPERATOR
        )
        items = [result["knowledge_item_id"] for result in answer["results"]]
        assert len(items) == len(set(items)) == 50


async def test_ties_are_ordered_by_item_id(layouts: Mapping[str, Knowledge]) -> None:
    answer = await layouts["five"].answer(
        {"query": "deploy the server token", "mode": "lexical", "max_results": 50}, OPERATOR
    )
    ties = [
        result["knowledge_item_id"]
        for result in answer["results"]
        if "-tie-" in result["knowledge_item_id"]
    ]
    assert ties == sorted(ties)
    assert len(ties) == 23  # 12 in each base, one archived
