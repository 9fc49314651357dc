"""The contract's table of parameters, row by row, and the order in which they are checked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts.callers import asked_by
from tests.contracts.conftest import Call

SEARCH = {"query": "server"}
READ = {"knowledge_item_id": "long", "knowledge_revision_id": "r1"}


def invalid(message: str, parameter: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"code": "knowledge_invalid_request", "message": message}
    return {
        "type": "knowledge_error",
        "error": body if parameter is None else body | {"parameter": parameter},
    }


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", None])
async def test_a_blank_query_counts_as_not_given(call: Call, blank: str | None) -> None:
    payload, is_error = await call({"query": blank})
    assert is_error
    assert payload["error"]["code"] == "knowledge_query_required"
    assert (await call({**READ, "query": blank}))[0]["type"] == "knowledge"


async def test_a_query_is_trimmed_and_has_at_most_4000_characters(call: Call) -> None:
    assert not (await call({"query": "  " + "🙂" * 4000 + "  "}))[1]
    payload, is_error = await call({"query": "x" * 4001})
    assert is_error
    assert payload == invalid("query must have at most 4000 characters, got 4001", "query")
    assert (await call({"query": " server "}))[0] == (await call(SEARCH))[0]


@pytest.mark.parametrize(
    ("name", "low", "high", "shape"),
    [
        ("offset", 0, 2**53 - 1, READ),
        ("limit_chars", 1, 10_000, READ),
        ("max_results", 1, 50, SEARCH),
    ],
)
async def test_bounds_are_rejected_not_clamped(
    call: Call, name: str, low: int, high: int, shape: dict[str, str]
) -> None:
    for value in (low, high):
        assert not (await call({**shape, name: value}))[1]
    for value in (low - 1, high + 1):
        payload, is_error = await call({**shape, name: value})
        shown = value if abs(value) <= 2**53 - 1 else "a larger number"
        assert is_error
        assert payload == invalid(f"{name} must be {low}..{high}, got {shown}", name)


@pytest.mark.parametrize("name", ["offset", "limit_chars", "max_results"])
async def test_bounds_of_both_shapes_are_checked_whichever_was_chosen(
    call: Call, name: str
) -> None:
    for shape in (SEARCH, READ):
        payload, is_error = await call({**shape, name: -1})
        assert is_error
        assert payload["error"]["parameter"] == name


@pytest.mark.parametrize("name", ["limit_chars", "max_results"])
@pytest.mark.parametrize("value", ["10", 10.0, "10.0", " 10 ", "+10"])
async def test_numbers_may_be_sent_as_text_and_whole_floats(
    call: Call, name: str, value: object
) -> None:
    shape = READ if name == "limit_chars" else SEARCH
    assert (await call({**shape, name: value}))[0] == (await call({**shape, name: 10}))[0]


@pytest.mark.parametrize("name", ["offset", "limit_chars", "max_results"])
@pytest.mark.parametrize("value", [10.5, "10.5", "ten", True, [10], {"n": 10}])
async def test_what_is_not_a_whole_number_is_invalid(call: Call, name: str, value: object) -> None:
    payload, is_error = await call({**SEARCH, name: value})
    assert is_error
    assert payload == invalid(f"{name} must be an integer", name)


@pytest.mark.parametrize(
    "name",
    ["knowledge_base_id", "offset", "limit_chars", "max_results", "mode", "alpha"],
)
@pytest.mark.parametrize("nothing", ["", None])
async def test_empty_text_and_null_mean_not_given(
    call: Call, name: str, nothing: str | None
) -> None:
    assert (await call({**SEARCH, name: nothing}))[0] == (await call(SEARCH))[0]
    assert (await call({**READ, name: nothing}))[0] == (await call(READ))[0]


@pytest.mark.parametrize("mode", [" HYBRID ", "fuzzy", "keyword", "hybrid\n"])
async def test_any_other_text_is_the_hybrid_mode(call: Call, mode: str) -> None:
    assert (await call({**SEARCH, "mode": mode}))[0] == (await call(SEARCH))[0]


async def test_a_mode_is_trimmed_and_case_folded(call: Call) -> None:
    lexical = (await call({**SEARCH, "mode": "lexical"}))[0]
    assert (await call({**SEARCH, "mode": " LexICAL "}))[0] == lexical
    assert lexical != (await call(SEARCH))[0]


@pytest.mark.parametrize("value", [7, True, ["hybrid"]])
async def test_a_mode_that_is_not_text_is_invalid(call: Call, value: object) -> None:
    payload, is_error = await call({**SEARCH, "mode": value})
    assert is_error
    assert payload == invalid("mode must be a string", "mode")


@pytest.mark.parametrize(("alpha", "effective"), [(7, 1.0), (-3, 0.0), ("0.25", 0.25), (1, 1.0)])
async def test_alpha_is_clamped_and_may_be_text(
    call: Call, alpha: object, effective: float
) -> None:
    expected = (await call({**SEARCH, "alpha": effective}))[0]
    assert (await call({**SEARCH, "alpha": alpha}))[0] == expected


@pytest.mark.parametrize("mode", ["lexical", "semantic", "rrf"])
async def test_the_other_modes_ignore_alpha(call: Call, mode: str) -> None:
    plain = {**SEARCH, "mode": mode}
    assert (await call({**plain, "alpha": 0.9}))[0] == (await call(plain))[0]


@pytest.mark.parametrize("value", ["NaN", "inf", "half", True, [0.5], "1e999"])
async def test_an_alpha_that_is_not_a_finite_number_is_invalid(call: Call, value: object) -> None:
    payload, is_error = await call({**SEARCH, "alpha": value})
    assert is_error
    assert payload == invalid("alpha must be a finite number", "alpha")


@pytest.mark.parametrize("name", ["knowledge_base_id", "knowledge_item_id"])
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("x" * 257, "must have at most 256 characters"),
        ("a\x07b", "must be valid Unicode without control characters"),
        ("a\nb", "must be valid Unicode without control characters"),
        (".", "must not be . or .."),
        ("..", "must not be . or .."),
    ],
)
async def test_ids_that_cannot_be_are_invalid(
    call: Call, name: str, value: str, fault: str
) -> None:
    arguments = {"query": "server"} if name == "knowledge_base_id" else {}
    payload, is_error = await call({**arguments, name: value})
    assert is_error
    assert payload == invalid(f"{name} {fault}", name)


@pytest.mark.parametrize("value", [" long", "long ", "LONG", "Long"])
async def test_ids_are_case_sensitive_and_never_trimmed(call: Call, value: str) -> None:
    payload, is_error = await call({"knowledge_item_id": value})
    assert is_error
    assert payload["error"]["code"] == "knowledge_resource_unavailable"


@pytest.mark.parametrize(
    "name", ["query", "knowledge_base_id", "knowledge_item_id", "knowledge_revision_id"]
)
async def test_text_of_another_type_is_invalid(call: Call, name: str) -> None:
    payload, is_error = await call({**READ, name: 7})
    assert is_error
    assert payload == invalid(f"{name} must be a string", name)


async def test_an_unknown_argument_is_invalid(call: Call) -> None:
    payload, is_error = await call({**READ, "knowledge_revison_id": "v1"})
    assert is_error
    assert payload == invalid("unknown argument knowledge_revison_id", "knowledge_revison_id")


@pytest.mark.parametrize(
    ("extra", "offender"),
    [
        ({"knowledge_item_id": "long"}, "knowledge_item_id"),
        ({"knowledge_revision_id": "r1"}, "knowledge_revision_id"),
        (READ, "knowledge_item_id"),
    ],
)
async def test_a_query_excludes_item_and_revision(
    call: Call, extra: dict[str, str], offender: str
) -> None:
    payload, is_error = await call({**SEARCH, **extra})
    assert is_error
    assert payload == invalid(f"query and {offender} exclude each other", offender)


@pytest.mark.parametrize("arguments", [{}, {"knowledge_base_id": "kb"}])
async def test_nothing_or_a_base_alone_needs_a_query(call: Call, arguments: dict[str, str]) -> None:
    payload, is_error = await call(arguments)
    assert is_error
    assert payload == {
        "type": "knowledge_error",
        "error": {
            "code": "knowledge_query_required",
            "message": "give a query, or a knowledge_item_id",
        },
    }


async def test_a_revision_needs_its_item(call: Call) -> None:
    payload, is_error = await call({"knowledge_revision_id": "r1"})
    assert is_error
    assert payload == {
        "type": "knowledge_error",
        "error": {
            "code": "knowledge_item_required",
            "message": "knowledge_revision_id needs knowledge_item_id",
            "parameter": "knowledge_item_id",
        },
    }


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        # shape before required, required before bounds, bounds before resource
        ({"limit_chars": "ten"}, "knowledge_invalid_request"),
        ({"unknown": 1}, "knowledge_invalid_request"),
        ({"limit_chars": 0}, "knowledge_query_required"),
        ({"knowledge_revision_id": "r1", "limit_chars": 0}, "knowledge_item_required"),
        ({"knowledge_item_id": "none", "limit_chars": 0}, "knowledge_invalid_request"),
        (
            {"query": "x", "knowledge_base_id": "none", "max_results": 0},
            "knowledge_invalid_request",
        ),
    ],
)
async def test_faults_are_checked_in_the_contracts_order(
    call: Call, arguments: dict[str, Any], code: str
) -> None:
    payload, is_error = await call(arguments)
    assert is_error
    assert payload["error"]["code"] == code


@asked_by("scopeless")
@pytest.mark.parametrize("arguments", [SEARCH, READ, {}, {"unknown": 1}])
async def test_a_caller_without_the_scope_is_told_before_anything_else(
    call: Call, arguments: dict[str, Any]
) -> None:
    payload, is_error = await call(arguments)
    assert is_error
    assert payload == {
        "type": "knowledge_error",
        "error": {
            "code": "knowledge_scope_required",
            "message": "the scope knowledge:read is required",
        },
    }
