"""The validator and the rendering of the contract, below every door."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import (
    MODES,
    SEARCH_KNOWLEDGE_SCHEMA,
    TOOL_DESCRIPTION,
    Coverage,
    ReadRequest,
    Scores,
    SearchRequest,
    SearchResult,
    Window,
    parse_request,
    render_error,
    render_search,
    render_window,
)
from engine.errors import (
    EngineError,
    GenerationNotOpenError,
    InvalidRequestError,
    ItemRequiredError,
    QueryRequiredError,
    RuntimeDisabledError,
)
from engine.ids import BaseId, ItemId, RevisionId

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
names = st.sampled_from([*SEARCH_KNOWLEDGE_SCHEMA["properties"], "unknown"])


@given(st.dictionaries(names, json_values))
def test_any_arguments_give_a_valid_request_or_a_named_error(arguments: dict[str, Any]) -> None:
    try:
        request = parse_request(arguments)
    except (InvalidRequestError, ItemRequiredError, QueryRequiredError) as error:
        json.dumps(render_error(error))
        return
    if isinstance(request, SearchRequest):
        assert request.query.strip() == request.query != ""
        assert request.mode in MODES
        assert 0.0 <= request.alpha <= 1.0
        assert 1 <= request.max_results <= 50
    else:
        assert request.item
        assert 1 <= request.limit_chars <= 10_000
        assert request.offset >= 0


def test_defaults_are_those_of_the_schema() -> None:
    search = parse_request({"query": " server "})
    assert search == SearchRequest("server")
    assert isinstance(search, SearchRequest)
    properties = SEARCH_KNOWLEDGE_SCHEMA["properties"]
    for name in ("mode", "alpha", "max_results"):
        assert getattr(search, name) == properties[name]["default"]
    read = parse_request({"knowledge_item_id": "a"})
    assert read == ReadRequest(ItemId("a"))
    assert isinstance(read, ReadRequest)
    for name in ("offset", "limit_chars"):
        assert getattr(read, name) == properties[name]["default"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_invalid(value: float) -> None:
    for name in ("alpha", "offset"):
        with pytest.raises(InvalidRequestError):
            parse_request({"query": "x", name: value})


def test_lone_surrogates_in_a_query_are_replaced() -> None:
    request = parse_request({"query": "a\ud800b"})
    assert isinstance(request, SearchRequest)
    request.query.encode("utf-8")


def test_the_tools_texts_stay_short() -> None:
    described = [entry["description"] for entry in SEARCH_KNOWLEDGE_SCHEMA["properties"].values()]
    assert len(TOOL_DESCRIPTION) + sum(map(len, described)) <= 2_500


# --------------------------------------------------------------------------------- rendering


def _result(item: str, score: float) -> SearchResult:
    return SearchResult(
        base=BaseId("kb"),
        item=ItemId(item),
        revision=RevisionId("r"),
        title="Title",
        excerpt="🙂 text",
        excerpt_offset=10,
        source_type="file",
        source_ref="a.md",
        content_sha256="0" * 64,
        published_at="2026-03-01T09:30:00Z",
        scores=Scores(score, score, None, 1, None),
    )


scored = st.lists(st.sampled_from([0.0, 1e-9, 2e-9, 0.5, 0.5 + 1e-9, 0.5 + 2e-9, 1.0]), max_size=8)


@given(scored)
def test_rounding_never_contradicts_the_order(scores: list[float]) -> None:
    ordered = sorted(scores, reverse=True)
    rows = render_search([_result(f"{n:02d}", score) for n, score in enumerate(ordered)])["results"]
    shown = [row["scores"]["score"] for row in rows]
    for at in range(1, len(ordered)):
        assert (shown[at - 1] > shown[at]) == (ordered[at - 1] > ordered[at])
        assert (shown[at - 1] == shown[at]) == (ordered[at - 1] == ordered[at])


@given(scored, st.integers(0, 8))
def test_a_short_answer_shows_the_scores_of_the_long_one(scores: list[float], count: int) -> None:
    results = [_result(f"{n:02d}", s) for n, s in enumerate(sorted(scores, reverse=True))]
    assert render_search(results[:count])["results"] == render_search(results)["results"][:count]


def test_coverage_is_there_only_when_given() -> None:
    assert render_search([]) == {"type": "knowledge_search", "results": []}
    partial = render_search([], Coverage(3, 2))
    assert partial["coverage"] == {"shards": 3, "answered": 2, "fraction": 0.666667}


def test_the_reference_counts_code_points() -> None:
    row = render_search([_result("a", 1.0)])["results"][0]
    assert row["reference"] == "knowledge:///kb/a@r#char=10,16"


@given(st.integers(0, 12), st.integers(1, 12))
def test_a_window_is_truncated_exactly_when_characters_remain(offset: int, limit: int) -> None:
    text = "0123456789"
    window = Window(
        "carol",
        None,
        "public",
        BaseId("kb"),
        ItemId("a"),
        RevisionId("r"),
        "Title",
        text[offset : offset + limit],
        "0" * 64,
        "en",
        "file",
        "a.md",
        offset,
        limit,
        len(text),
    )
    shown = render_window(window)
    assert shown["content_truncated"] == (offset + limit < len(text))
    assert shown["locator"]["char_end"] == offset + len(shown["content"])
    moved = render_window(replace(window, total_chars=offset + len(window.content)))
    assert moved["content_truncated"] is False


def test_an_error_without_a_contract_code_is_not_rendered() -> None:
    with pytest.raises(ValueError, match="octavo_generation_not_open"):
        render_error(GenerationNotOpenError(3))
    assert render_error(RuntimeDisabledError())["type"] == "knowledge_unavailable"


def test_the_root_error_counts_as_a_fault_of_ours() -> None:
    assert render_error(EngineError("x"))["error"]["code"] == "knowledge_internal"
