"""The contract's query answer: its shape, its scores, its addresses, who sees what."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.contracts.callers import asked_by
from tests.contracts.conftest import Call
from tests.contracts.corpus import PUBLIC_ITEMS

MODES = ("hybrid", "lexical", "semantic", "rrf")
RESULT_KEYS = [
    "knowledge_base_id",
    "knowledge_item_id",
    "knowledge_revision_id",
    "title",
    "excerpt",
    "excerpt_offset",
    "source",
    "citation",
    "reference",
    "scores",
]
UNAVAILABLE = {
    "type": "knowledge_error",
    "error": {
        "code": "knowledge_resource_unavailable",
        "message": "the requested knowledge is not available",
    },
}


async def _results(call: Call, **arguments: Any) -> list[dict[str, Any]]:
    payload, is_error = await call({"query": "server", "max_results": 50, **arguments})
    assert not is_error
    assert list(payload) == ["type", "results"]
    assert payload["type"] == "knowledge_search"
    results: list[dict[str, Any]] = payload["results"]
    return results


def _items(results: list[dict[str, Any]]) -> set[str]:
    return {result["knowledge_item_id"] for result in results}


@pytest.mark.parametrize("mode", MODES)
async def test_a_result_has_the_contracts_shape(call: Call, mode: str) -> None:
    for result in await _results(call, mode=mode):
        assert list(result) == RESULT_KEYS
        assert list(result["source"]) == ["type", "ref"]
        assert list(result["citation"]) == [
            "title",
            "revision_id",
            "content_sha256",
            "published_at",
        ]
        assert list(result["scores"]) == [
            "score",
            "lexical",
            "semantic",
            "lexical_rank",
            "semantic_rank",
        ]
        assert result["citation"]["title"] == result["title"]
        assert result["citation"]["revision_id"] == result["knowledge_revision_id"]
        assert result["citation"]["published_at"].endswith("Z")
        assert 0 < len(result["excerpt"]) <= 400


async def test_a_result_opens_exactly_the_text_it_shows(call: Call) -> None:
    for result in await _results(call):
        excerpt, offset = result["excerpt"], result["excerpt_offset"]
        window, is_error = await call(
            {
                "knowledge_item_id": result["knowledge_item_id"],
                "knowledge_revision_id": result["knowledge_revision_id"],
                "offset": offset,
                "limit_chars": len(excerpt),
            }
        )
        assert not is_error
        assert window["content"] == excerpt
        assert window["locator"]["content_sha256"] == result["citation"]["content_sha256"]
        assert window["source"] == result["source"]
        names = ("knowledge_base_id", "knowledge_item_id", "knowledge_revision_id")
        base, item, revision = (quote(result[name], safe="") for name in names)
        span = f"{offset},{offset + len(excerpt)}"
        assert result["reference"] == f"knowledge:///{base}/{item}@{revision}#char={span}"
        assert window["reference"] == result["reference"]


@pytest.mark.parametrize("mode", MODES)
async def test_there_is_one_result_per_item_in_descending_order(call: Call, mode: str) -> None:
    results = await _results(call, mode=mode)
    assert len(_items(results)) == len(results) > 2
    keys = [(-result["scores"]["score"], result["knowledge_item_id"]) for result in results]
    assert keys == sorted(keys)


@pytest.mark.parametrize("mode", MODES)
async def test_max_results_cuts_the_same_ranking(call: Call, mode: str) -> None:
    results = await _results(call, mode=mode)
    for count in (1, 2, 3):
        assert await _results(call, mode=mode, max_results=count) == results[:count]


@pytest.mark.parametrize("mode", MODES)
async def test_a_side_that_the_mode_does_not_use_is_null(call: Call, mode: str) -> None:
    unused = {"lexical": "semantic", "semantic": "lexical"}.get(mode)
    for result in await _results(call, mode=mode):
        scores = result["scores"]
        for side in ("lexical", "semantic"):
            assert (scores[side] is None) == (side == unused)
            if side == unused:
                assert scores[f"{side}_rank"] is None
        if unused:
            assert scores["score"] == scores[mode]


@pytest.mark.parametrize("mode", ["lexical", "semantic"])
async def test_ranks_of_one_side_count_from_one(call: Call, mode: str) -> None:
    ranks = [r["scores"][f"{mode}_rank"] for r in await _results(call, mode=mode)]
    assert ranks == list(range(1, len(ranks) + 1))


async def test_hybrid_ranks_are_those_of_the_sides(call: Call) -> None:
    for side in ("lexical", "semantic"):
        alone = {
            result["knowledge_item_id"]: result["scores"][f"{side}_rank"]
            for result in await _results(call, mode=side)
        }
        for mode in ("hybrid", "rrf"):
            for result in await _results(call, mode=mode):
                rank = result["scores"][f"{side}_rank"]
                assert rank == alone.get(result["knowledge_item_id"])


async def test_rrf_is_the_sum_of_reciprocal_ranks(call: Call) -> None:
    for result in await _results(call, mode="rrf"):
        scores = result["scores"]
        ranks = (scores["lexical_rank"], scores["semantic_rank"])
        expected = sum(1 / (60 + rank) for rank in ranks if rank is not None)
        assert scores["score"] == pytest.approx(expected, abs=1e-6)


async def test_lexical_mode_finds_only_passages_with_a_term(call: Call) -> None:
    assert _items(await _results(call, query="odd", mode="lexical")) == {"ids/with space@100%#ü"}
    assert await _results(call, query="zyxwvut", mode="lexical") == []


@pytest.mark.parametrize("query", ["the and of", "()[]{}", "!!!"])
async def test_a_query_without_terms_goes_on_with_meaning(call: Call, query: str) -> None:
    assert await _results(call, query=query, mode="lexical") == []
    for result in await _results(call, query=query):
        assert result["scores"]["lexical"] == 0
        assert result["scores"]["lexical_rank"] is None
    assert len(await _results(call, query=query, mode="semantic")) == len(PUBLIC_ITEMS) + 1


@pytest.mark.parametrize(
    "query",
    [
        '"unbalanced',
        "a:(^",
        "server AND OR NOT *~?",
        "a/b\\c",
        "x " * 1500,
        "🙂\u0000",
        "服务器 登录",
    ],
)
async def test_no_character_of_a_query_is_an_error(call: Call, query: str) -> None:
    for mode in MODES:
        await _results(call, query=query, mode=mode)


@pytest.mark.parametrize("mode", ["lexical", "semantic"])
async def test_alpha_at_its_ends_gives_the_order_of_one_side(call: Call, mode: str) -> None:
    query = "odd id clean text token"  # its words occur in one language only
    alpha = 1 if mode == "lexical" else 0
    fused = await _results(call, query=query, alpha=alpha)
    alone = [result["knowledge_item_id"] for result in await _results(call, query=query, mode=mode)]
    found = [result["knowledge_item_id"] for result in fused]
    assert found
    assert found == alone[: len(found)]


async def test_a_search_shows_current_revisions_of_published_items_only(call: Call) -> None:
    results = await _results(call, mode="semantic")
    assert _items(results) == {*PUBLIC_ITEMS, "withdrawn"}
    revisions = {r["knowledge_item_id"]: r["knowledge_revision_id"] for r in results}
    assert revisions["versions"] == "v2"
    assert revisions["withdrawn"] == "r2"


@asked_by("alice")
async def test_the_owner_and_the_team_see_theirs(call: Call) -> None:
    items = _items(await _results(call, mode="semantic"))
    assert items == {*PUBLIC_ITEMS, "withdrawn", "secret", "team-note"}


@asked_by("bob")
async def test_the_organization_sees_what_is_its_own(call: Call) -> None:
    items = _items(await _results(call, mode="semantic"))
    assert items == {*PUBLIC_ITEMS, "withdrawn", "org-note"}


@asked_by("operator")
async def test_the_operator_sees_every_active_base(call: Call) -> None:
    items = _items(await _results(call, mode="semantic"))
    assert items == {*PUBLIC_ITEMS, "withdrawn", "secret", "team-note", "org-note"}


async def test_a_base_narrows_a_search(call: Call) -> None:
    assert await _results(call, knowledge_base_id="kb") == await _results(call)


@pytest.mark.parametrize("base", ["none", "notes", "blue", "org", "attic", "KB"])
async def test_a_base_that_may_not_be_read_is_unavailable_not_empty(call: Call, base: str) -> None:
    assert await call({"query": "server", "knowledge_base_id": base}) == (UNAVAILABLE, True)


@asked_by("alice")
async def test_a_base_filter_does_not_move_a_score(call: Call) -> None:
    everywhere = {r["knowledge_item_id"]: r["scores"] for r in await _results(call)}
    for base in ("notes", "blue"):
        for result in await _results(call, knowledge_base_id=base):
            scores = everywhere[result["knowledge_item_id"]]
            for name in ("score", "lexical", "semantic"):
                assert result["scores"][name] == scores[name]
