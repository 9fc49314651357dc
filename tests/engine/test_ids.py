"""Ids: their rules, their derivation, the shard that owns them, their addresses."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidValueError
from engine.ids import (
    BaseId,
    ItemId,
    RevisionId,
    check_id,
    content_sha256,
    derive_item_id,
    derive_revision_id,
    id_fault,
    reference_uri,
    shard_of,
)

legal = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=256).filter(
    lambda value: value not in {".", ".."}
)


@given(legal)
def test_a_legal_id_is_returned_unchanged(value: str) -> None:
    assert check_id(value, "item id") == value


@pytest.mark.parametrize(
    "value", ["", ".", "..", "x" * 257, "a\x00b", "a\nb", "a\x7fb", "a\x85b", "\ud800"]
)
def test_an_illegal_id_is_refused_without_being_repeated(value: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        check_id(value, "item id")
    assert str(caught.value) == f"item id {id_fault(value)}"
    assert not value or value in {".", ".."} or value not in str(caught.value)


def test_derived_ids_are_the_same_on_every_machine() -> None:
    item = derive_item_id(BaseId("kb"), "docs/a.md")
    fields = ("item", "kb", "docs/a.md")
    joined = b"".join(len(f.encode()).to_bytes(8, "big") + f.encode() for f in fields)
    assert item == hashlib.sha256(joined).hexdigest()[:32]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), min_size=10))
def test_moving_text_between_fields_gives_another_revision_id(fields: list[str]) -> None:
    first, second = fields[:5], fields[5:10]
    ids = []
    for title, language, kind, ref, sha256 in (first, second):
        ids.append(derive_revision_id(ItemId("i"), title, language, kind, ref, sha256))
    assert (ids[0] == ids[1]) == (first == second)


def test_going_back_to_an_earlier_text_gives_the_earlier_revision_id() -> None:
    def revision(content: str) -> RevisionId:
        return derive_revision_id(
            ItemId("i"), "Title", "en", "file", "a.md", content_sha256(content)
        )

    assert revision("one") == revision("one")
    assert revision("one") != revision("two")


@given(legal, st.integers(1, 64))
def test_a_shard_is_in_range_and_stable(item: str, shards: int) -> None:
    shard = shard_of(ItemId(item), shards)
    assert 0 <= shard < shards
    assert shard == shard_of(ItemId(item), shards)


def test_items_spread_over_shards() -> None:
    counts = [0] * 8
    for at in range(4000):
        counts[shard_of(ItemId(f"item-{at}"), 8)] += 1
    assert min(counts) > 400


def test_there_is_at_least_one_shard() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        shard_of(ItemId("a"), 0)


@given(legal, legal, legal, st.integers(0, 10**6), st.integers(0, 400))
def test_an_address_can_be_taken_apart_again(
    base: str, item: str, revision: str, start: int, length: int
) -> None:
    uri = reference_uri(BaseId(base), ItemId(item), RevisionId(revision), start, start + length)
    path, _, fragment = uri.removeprefix("knowledge:///").partition("#")
    first, _, rest = path.partition("/")
    second, _, third = rest.partition("@")
    assert [unquote(part) for part in (first, second, third)] == [base, item, revision]
    assert fragment == f"char={start},{start + length}"
    assert uri.isascii()
