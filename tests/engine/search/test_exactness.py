"""The served ranking against brute force over the stored texts, to the last bit."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from engine.authorization import OPERATOR, Principal
from engine.contract import SearchRequest
from engine.ids import BaseId
from engine.search.answering import Knowledge
from tests.engine.search.building import Library
from tests.engine.search.oracle import Oracle, Text, published_texts, seen
from tests.engine.search.texts import QUERIES

MODES = ("hybrid", "lexical", "semantic", "rrf")
STRANGER = Principal("stranger", scopes=frozenset({"knowledge:read"}))


@pytest.fixture(scope="module")
def texts(seed_library: Library, layouts: Mapping[str, Knowledge]) -> list[Text]:
    """Every live passage, cut and analysed again from the stored revisions."""
    return published_texts(seed_library)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("principal", "readable"),
    [(OPERATOR, None), (STRANGER, {"open"})],
    ids=["operator", "stranger"],
)
async def test_a_ranking_is_that_of_brute_force_over_what_its_caller_may_read(
    seed_library: Library,
    layouts: Mapping[str, Knowledge],
    texts: list[Text],
    mode: str,
    principal: Principal,
    readable: set[str] | None,
) -> None:
    oracle = Oracle.of(seed_library, texts, readable=readable)
    for query in QUERIES:
        request = SearchRequest(query, mode=mode, max_results=50)
        ranking = await layouts["five"].rank(request, principal)
        assert seen(ranking.results, texts) == oracle.answer(request), query


@pytest.mark.parametrize("mode", MODES)
async def test_a_base_narrows_the_candidates_and_moves_no_statistics(
    seed_library: Library, layouts: Mapping[str, Knowledge], texts: list[Text], mode: str
) -> None:
    oracle = Oracle.of(seed_library, texts)
    for query in QUERIES[:6]:
        request = SearchRequest(query, base=BaseId("team"), mode=mode, max_results=50)
        ranking = await layouts["skewed"].rank(request, OPERATOR)
        assert seen(ranking.results, texts) == oracle.answer(request), query
