"""The contract's addressed answer: windows, pins, and what is not available."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.contracts.callers import asked_by
from tests.contracts.conftest import Call
from tests.contracts.corpus import LONG
from tests.contracts.test_search import UNAVAILABLE

SHA256 = hashlib.sha256(LONG.encode("utf-8")).hexdigest()


async def _read(call: Call, item: str, **arguments: Any) -> dict[str, Any]:
    payload, is_error = await call({"knowledge_item_id": item, **arguments})
    assert not is_error, payload
    return payload


async def test_a_window_has_the_contracts_shape(call: Call) -> None:
    assert await _read(call, "long") == {
        "type": "knowledge",
        "owner": "carol",
        "team": None,
        "scope": "public",
        "knowledge_base_id": "kb",
        "knowledge_item_id": "long",
        "knowledge_revision_id": "r1",
        "title": "Lang",
        "content": LONG[:4000],
        "locator": {
            "content_sha256": SHA256,
            "char_start": 0,
            "char_end": 4000,
            "language": "de",
        },
        "source": {"type": "file", "ref": "long.md"},
        "reference": "knowledge:///kb/long@r1#char=0,4000",
        "content_offset": 0,
        "content_limit": 4000,
        "content_total_chars": len(LONG),
        "content_truncated": True,
    }


@pytest.mark.parametrize("limit", [997, 4000, 10_000])
async def test_the_windows_of_a_pinned_revision_join_to_the_stored_text(
    call: Call, limit: int
) -> None:
    text, truncated = "", True
    while truncated:
        window = await _read(
            call,
            "long",
            knowledge_revision_id="r1",
            offset=len(text),
            limit_chars=limit,
        )
        assert window["content_limit"] == limit
        assert window["content_offset"] == len(text)
        text += window["content"]
        truncated = window["content_truncated"]
        assert truncated == (len(text) < len(LONG))
    assert text == LONG
    assert hashlib.sha256(text.encode("utf-8")).hexdigest() == SHA256


@pytest.mark.parametrize("offset", [0, 1, 3998, 4001])
@pytest.mark.parametrize("limit", [1, 2, 37])
async def test_a_window_counts_code_points(call: Call, offset: int, limit: int) -> None:
    window = await _read(call, "long", offset=offset, limit_chars=limit)
    assert window["content"] == LONG[offset : offset + limit]
    assert window["locator"]["char_start"] == offset
    assert window["locator"]["char_end"] == offset + limit


@pytest.mark.parametrize("offset", [len(LONG), len(LONG) + 1, 2**53 - 1])
async def test_an_offset_at_or_past_the_end_is_empty_and_not_truncated(
    call: Call, offset: int
) -> None:
    window = await _read(call, "long", offset=offset)
    assert window["content"] == ""
    assert window["content_truncated"] is False
    assert window["content_offset"] == offset


async def test_the_last_window_is_not_truncated(call: Call) -> None:
    window = await _read(call, "long", offset=len(LONG) - 5, limit_chars=5)
    assert window["content"] == LONG[-5:]
    assert window["content_truncated"] is False


async def test_an_unpinned_read_gives_the_current_revision_and_echoes_its_id(call: Call) -> None:
    window = await _read(call, "versions")
    assert window["knowledge_revision_id"] == "v2"
    assert window["content"] == "The second version of it."


async def test_a_revision_that_was_public_stays_readable_by_pin(call: Call) -> None:
    window = await _read(call, "versions", knowledge_revision_id="v1")
    assert window["content"] == "The first version of the server."


async def test_an_odd_id_is_percent_encoded_in_the_reference(call: Call) -> None:
    window = await _read(call, "ids/with space@100%#ü", limit_chars=3)
    assert window["reference"] == "knowledge:///kb/ids%2Fwith%20space%40100%25%23%C3%BC@r1#char=0,3"


async def test_a_base_id_confirms_an_item(call: Call) -> None:
    assert await _read(call, "long", knowledge_base_id="kb") == await _read(call, "long")


@pytest.mark.parametrize(
    "arguments",
    [
        {"knowledge_item_id": "none"},
        {"knowledge_item_id": "long", "knowledge_revision_id": "none"},
        {"knowledge_item_id": "long", "knowledge_base_id": "none"},
        {"knowledge_item_id": "long", "knowledge_base_id": "org"},
        {"knowledge_item_id": "long", "knowledge_base_id": "attic"},
        {"knowledge_item_id": "long", "knowledge_revision_id": "v1"},  # of another item
        {"knowledge_item_id": "secret"},  # private
        {"knowledge_item_id": "secret", "knowledge_revision_id": "r1"},
        {"knowledge_item_id": "secret", "knowledge_base_id": "notes"},
        {"knowledge_item_id": "team-note"},
        {"knowledge_item_id": "org-note"},
        {"knowledge_item_id": "old"},  # its base is archived
        {"knowledge_item_id": "old", "knowledge_revision_id": "r1"},
        {"knowledge_item_id": "unpublished"},
        {"knowledge_item_id": "unpublished", "knowledge_revision_id": "r1"},
        {"knowledge_item_id": "archived"},
        {"knowledge_item_id": "archived", "knowledge_revision_id": "r1"},
        {"knowledge_item_id": "withdrawn", "knowledge_revision_id": "r1"},
        {"knowledge_item_id": "draft"},  # never published
        {"knowledge_item_id": "draft", "knowledge_revision_id": "r1"},
        {"knowledge_item_id": "versions", "knowledge_revision_id": "v3"},  # a draft revision
    ],
)
async def test_what_is_not_available_gives_one_message_for_all(
    call: Call, arguments: dict[str, str]
) -> None:
    assert await call(arguments) == (UNAVAILABLE, True)


@asked_by("alice")
async def test_a_private_item_is_read_by_its_owner(call: Call) -> None:
    window = await _read(call, "secret")
    assert (window["owner"], window["team"], window["scope"]) == ("alice", None, "private")
    window = await _read(call, "team-note")
    assert (window["owner"], window["team"], window["scope"]) == ("carol", "blue", "team")


@asked_by("operator")
async def test_the_operator_does_not_read_what_is_not_published(call: Call) -> None:
    for item in ("draft", "unpublished", "archived", "old"):
        payload, is_error = await call({"knowledge_item_id": item, "knowledge_revision_id": "r1"})
        assert (payload, is_error) == (UNAVAILABLE, True)
    assert (await _read(call, "secret"))["scope"] == "private"
