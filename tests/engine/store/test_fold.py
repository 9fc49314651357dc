"""The fold against a naive model, over random histories, orders and splits."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.ids import BaseId, ItemId, RevisionId
from engine.store import fold
from engine.store.fold import HashIndex, ItemFold, PublicationFold, fold_items
from engine.store.states import (
    ITEMS_SCHEMA,
    PUBLICATIONS_SCHEMA,
    ItemState,
    ItemStatus,
    Publication,
    PublicationKind,
    PublicationRow,
    rows_of,
)

GENERATIONS = range(6)
ITEMS = ("a", "b", "\U0001f600", "z")


def state(
    item: str, version: int, status: ItemStatus, current: str | None, current_from: int
) -> ItemState:
    return ItemState(
        item_id=ItemId(item),
        base_id=BaseId("kb"),
        version=version,
        status=status,
        head_revision=RevisionId(f"head{version}"),
        desired_revision=None,
        current_revision=None if current is None else RevisionId(current),
        current_from=current_from,
        source_type="file",
        source_ref="",
        published_at=None,
        changed_at="2026-01-01T00:00:00Z",
    )


statuses: st.SearchStrategy[ItemStatus] = st.sampled_from(("draft", "published", "archived"))
steps = st.tuples(
    st.sampled_from(ITEMS),
    statuses,
    st.sampled_from((None, "r1", "r2", "r3")),
    st.integers(0, 5),
)


@st.composite
def histories(draw: st.DrawFn) -> list[ItemState]:
    """Rows of several items in commit order: each item's versions count from 1."""
    versions: dict[str, int] = {}
    rows = []
    for item, status, current, current_from in draw(st.lists(steps, max_size=30)):
        versions[item] = versions.get(item, 0) + 1
        rows.append(state(item, versions[item], status, current, current_from))
    return rows


def naive_newest(rows: Sequence[ItemState], item: str) -> ItemState | None:
    mine = [row for row in rows if row.item_id == item]
    return max(mine, key=lambda row: row.version, default=None)


def naive_current(rows: Sequence[ItemState], item: str, generation: int) -> str | None:
    mine = [row for row in rows if row.item_id == item and row.current_from <= generation]
    newest = max(mine, key=lambda row: row.version, default=None)
    return None if newest is None else newest.current_revision


def assert_equals_model(folded: ItemFold, rows: Sequence[ItemState]) -> None:
    for item in (*ITEMS, "unknown"):
        newest = naive_newest(rows, item)
        assert folded.newest(ItemId(item)) == newest
        for generation in GENERATIONS:
            expected = naive_current(rows, item, generation)
            standing = folded.standing(ItemId(item), generation)
            assert (standing and standing.current_revision) == expected
            assert (standing and standing.status) == (newest and newest.status)
    known = sorted({row.item_id for row in rows})
    assert sorted(held.item_id for held in folded.states()) == known
    assert len(folded) == len(known)


@given(histories(), st.randoms(use_true_random=False))
def test_a_body_of_shuffled_rows_equals_the_model(
    rows: list[ItemState], rng: random.Random
) -> None:
    shuffled = rng.sample(rows, len(rows))
    assert_equals_model(ItemFold(rows_of(shuffled, ITEMS_SCHEMA)), rows)


@given(histories(), st.lists(st.integers(0, 30), max_size=4))
def test_rows_that_arrive_in_pieces_equal_the_model(rows: list[ItemState], cuts: list[int]) -> None:
    folded = ItemFold(ITEMS_SCHEMA.empty_table())
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    for start, end in itertools.pairwise(edges):
        folded = folded.with_rows(rows_of(rows[start:end], ITEMS_SCHEMA))
    assert_equals_model(folded, rows)


@given(histories(), st.integers(0, 30))
def test_folding_the_rows_of_some_files_changes_nothing(rows: list[ItemState], cut: int) -> None:
    old = fold_items(rows_of(rows[:cut], ITEMS_SCHEMA))
    both = pa.concat_tables([old, rows_of(rows[cut:], ITEMS_SCHEMA)])
    assert_equals_model(ItemFold(both), rows)


@given(histories(), st.integers(0, 30))
def test_the_table_of_a_fold_folds_to_the_same(rows: list[ItemState], cut: int) -> None:
    folded = ItemFold(rows_of(rows[:cut], ITEMS_SCHEMA))
    folded = folded.with_rows(rows_of(rows[cut:], ITEMS_SCHEMA))
    assert_equals_model(ItemFold(folded.table()), rows)


@given(histories())
def test_a_row_that_occurs_twice_counts_once(rows: list[ItemState]) -> None:
    assert_equals_model(ItemFold(rows_of([*rows, *rows], ITEMS_SCHEMA)), rows)


def test_an_overlay_that_grew_large_becomes_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "_MIN_OVERLAY", 2)
    folded = ItemFold(ITEMS_SCHEMA.empty_table())
    rows = [state(f"i{n}", 1, "draft", None, 0) for n in range(7)]
    for row in rows:
        folded = folded.with_rows(rows_of([row], ITEMS_SCHEMA))
    assert len(folded) == 7
    assert [folded.newest(row.item_id) for row in rows] == rows


def test_a_fold_is_not_changed_by_the_folds_made_of_it() -> None:
    first = state("a", 1, "draft", None, 0)
    old = ItemFold(rows_of([first], ITEMS_SCHEMA))
    new = old.with_rows(rows_of([state("a", 2, "published", "r", 1)], ITEMS_SCHEMA))
    assert old.newest(ItemId("a")) == first
    assert new.newest(ItemId("a")) != first


def test_keys_that_share_a_hash_are_told_apart() -> None:
    class Same(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 7

    index = HashIndex([Same("a"), "other", Same("b")])
    assert list(index.rows(Same("b"))) == [0, 2]


times = st.sampled_from([f"2026-01-0{day}T00:00:00Z" for day in range(1, 5)])


@st.composite
def publication_rows(draw: st.DrawFn) -> list[PublicationRow]:
    kinds: st.SearchStrategy[PublicationKind] = st.sampled_from(("published", "withdrawn"))
    row = st.tuples(st.sampled_from(ITEMS), st.sampled_from(("r1", "r2")), kinds, times)
    drawn = draw(st.lists(row, max_size=20))
    return [PublicationRow(ItemId(i), RevisionId(r), kind, at) for i, r, kind, at in drawn]


@given(publication_rows(), st.integers(0, 20), st.integers(1, 5000))
def test_publications_keep_the_first_time_and_every_withdrawal(
    rows: list[PublicationRow], cut: int, overlay: int
) -> None:
    folded = PublicationFold(rows_of(rows[:cut], PUBLICATIONS_SCHEMA))
    folded = folded.with_rows(rows_of(rows[cut:], PUBLICATIONS_SCHEMA))
    for item in ITEMS:
        for revision in ("r1", "r2"):
            key = (ItemId(item), RevisionId(revision))
            mine = [row for row in rows if (row.item_id, row.revision_id) == key]
            first = min((row.at for row in mine if row.kind == "published"), default=None)
            assert folded.published_at(*key) == first
            assert (key in folded.withdrawn) == any(row.kind == "withdrawn" for row in mine)
    published = {(row.item_id, row.revision_id) for row in rows if row.kind == "published"}
    listed = list(folded.publications())
    assert len(listed) == len(published)
    for publication in listed:
        at = folded.published_at(publication.item_id, publication.revision_id)
        assert publication == Publication(publication.item_id, publication.revision_id, at or "")
