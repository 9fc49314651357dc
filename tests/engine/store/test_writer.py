"""Bases, items, publications: every mutation, and who sees it when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.errors import ConflictError, InvalidValueError, NotFoundError, StaleVersionError
from engine.ids import BaseId, ItemId, RevisionId
from engine.store.catalog import BaseState, Publication
from engine.store.opening import Store
from engine.store.writer import StoreWriter
from tests.engine.store.samples import KB, add_one, new, raw_rows


def test_a_base_is_made_once_and_made_again_only_the_same(store: Store) -> None:
    first = store.writer.catalog().base(KB)
    assert store.writer.create_base(KB, "Knowledge", "alice", None, "public") == first
    with pytest.raises(ConflictError, match="exists already and differs"):
        store.writer.create_base(KB, "Other", "alice", None, "public")
    assert len(raw_rows(store.tables.bases)) == 1


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("", "alice", None, "public"), "title must not be blank"),
        (("x" * 501, "alice", None, "public"), "title must have 1..500 characters"),
        (("T", " ", None, "public"), "owner must not be blank"),
        (("T", "alice", "", "team"), "team must not be blank"),
        (("T", "alice", None, "team"), "scope team needs a team"),
        (("T", "alice", None, "secret"), "scope must be one of private, team"),
    ],
)
def test_a_base_over_a_limit_is_refused(store: Store, values: Any, reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        store.writer.create_base(BaseId("b"), *values)
    assert store.catalog.poll().base(BaseId("b")) is None


def test_setting_a_base_changes_what_is_named_and_counts_the_version(store: Store) -> None:
    after = store.writer.set_base(KB, scope="team", team="red")
    assert (after.version, after.scope, after.team, after.title) == (2, "team", "red", "Knowledge")
    assert store.catalog.poll().base(KB) == after
    assert store.writer.set_base(KB, scope="team") == after
    with pytest.raises(InvalidValueError, match="scope team needs a team"):
        store.writer.set_base(KB, team=None)
    with pytest.raises(InvalidValueError, match="no status to be set"):
        store.writer.set_base(KB, status="archived")  # type: ignore[call-arg]  # on purpose


def test_a_stale_expected_version_is_refused_for_bases_and_items(store: Store) -> None:
    item, _ = add_one(store, new())
    with pytest.raises(StaleVersionError) as base_error:
        store.writer.set_base(KB, 7, title="Other")
    with pytest.raises(StaleVersionError) as item_error:
        store.writer.publish([item], expected_version=2)
    assert (base_error.value.expected, base_error.value.actual) == (7, 1)
    assert (item_error.value.expected, item_error.value.actual) == (2, 1)
    assert store.writer.publish([item], expected_version=1)[0].version == 2


def test_missing_things_are_named(store: Store) -> None:
    item, _ = add_one(store, new())
    writer = store.writer
    with pytest.raises(NotFoundError, match="no base b"):
        writer.archive_base(BaseId("b"))
    with pytest.raises(NotFoundError, match="no item i"):
        writer.publish([ItemId("i")])
    with pytest.raises(NotFoundError, match="no revision r"):
        writer.publish([item], RevisionId("r"))
    with pytest.raises(NotFoundError, match="no revision r"):
        writer.withdraw(item, RevisionId("r"))


def test_publishing_waits_for_the_generation_and_keeps_the_old_text_until_then(
    store: Store,
) -> None:
    item, first = add_one(store, new("one"), publish=True)
    catalog = store.catalog.poll()
    assert catalog.next_generation_moves(1) == ((item, first),)
    assert catalog.current_revision(item, 1) is None
    assert store.writer.set_current([(item, first)], 1) == 1

    _, second = add_one(store, new("two"), publish=True)
    catalog = store.catalog.poll()
    assert catalog.current_revision(item, 1) == first
    assert [state.item_id for state in catalog.pending(1)] == [item]
    store.writer.set_current([(item, second)], 2)
    catalog = store.catalog.poll()
    assert catalog.current_revision(item, 0) is None
    assert catalog.current_revision(item, 1) == first
    assert catalog.current_revision(item, 2) == second
    assert catalog.pending(2) == ()


def test_a_generation_that_never_was_committed_moves_nobody(store: Store) -> None:
    item, first = add_one(store, new("one"), publish=True)
    store.writer.set_current([(item, first)], 1)
    _, second = add_one(store, new("two"), publish=True)
    store.writer.set_current([(item, second)], 2)  # and then the job crashed
    _, third = add_one(store, new("three"), publish=True)
    catalog = store.catalog.poll()
    assert catalog.current_revision(item, 1) == first
    assert catalog.next_generation_moves(2) == ((item, third),)
    store.writer.set_current([(item, third)], 2)
    catalog = store.catalog.poll()
    assert [catalog.current_revision(item, g) for g in (1, 2)] == [first, third]


def test_an_unpublished_text_does_not_come_back_with_the_next_publication(store: Store) -> None:
    item, first = add_one(store, new("one"), publish=True)
    store.writer.set_current([(item, first)], 1)
    store.writer.unpublish([item])
    assert store.catalog.poll().current_revision(item, 1) is None
    _, second = add_one(store, new("two"), publish=True)
    catalog = store.catalog.poll()
    assert [catalog.current_revision(item, g) for g in (0, 1, 2)] == [None, None, None]
    assert catalog.next_generation_moves(2) == ((item, second),)


def test_archiving_hides_at_once_and_publishing_brings_back(store: Store) -> None:
    item, revision = add_one(store, new(), publish=True)
    store.writer.set_current([(item, revision)], 1)
    assert store.writer.archive_item(item).status == "archived"
    catalog = store.catalog.poll()
    assert catalog.current_revision(item, 1) is None
    assert not catalog.readable_pin(item, revision)
    assert store.writer.unpublish([item])[0].status == "archived"
    assert store.writer.publish([item])[0].status == "published"
    assert store.catalog.poll().readable_pin(item, revision)


def test_an_archived_base_hides_what_it_holds_and_an_activated_one_shows_it(store: Store) -> None:
    item, revision = add_one(store, new(), publish=True)
    store.writer.set_current([(item, revision)], 1)
    store.writer.archive_base(KB)
    catalog = store.catalog.poll()
    assert (catalog.current_revision(item, 1), catalog.readable_pin(item, revision)) == (
        None,
        False,
    )
    with pytest.raises(ConflictError, match="archived"):
        store.writer.publish([item])
    store.writer.activate_base(KB)
    catalog = store.catalog.poll()
    assert (catalog.current_revision(item, 1), catalog.readable_pin(item, revision)) == (
        revision,
        True,
    )


def test_withdrawing_hides_one_revision_for_ever(store: Store) -> None:
    item, first = add_one(store, new("one"), publish=True)
    store.writer.set_current([(item, first)], 1)
    _, second = add_one(store, new("two"), publish=True)
    store.writer.withdraw(item, first)
    store.writer.withdraw(item, first)
    catalog = store.catalog.poll()
    assert catalog.withdrawn(item, first)
    assert catalog.current_revision(item, 1) is None
    assert not catalog.readable_pin(item, first)
    assert catalog.readable_pin(item, second)
    with pytest.raises(ConflictError, match="withdrawn"):
        store.writer.publish([item], first)
    assert store.writer.set_current([(item, first)], 2) == 0
    assert (
        len([row for row in raw_rows(store.tables.publications) if row["kind"] == "withdrawn"]) == 1
    )


def test_a_withdrawn_desired_revision_is_not_pending(store: Store) -> None:
    item, revision = add_one(store, new(), publish=True)
    store.writer.withdraw(item, revision)
    assert store.catalog.poll().pending(1) == ()


def test_a_draft_is_not_readable_by_pinning_it_even_beside_a_published_one(store: Store) -> None:
    item, public = add_one(store, new("one"), publish=True)
    _, draft = add_one(store, new("two"))
    catalog = store.catalog.poll()
    assert catalog.readable_pin(item, public)
    assert not catalog.readable_pin(item, draft)


def test_a_publication_keeps_its_first_time(store: Store) -> None:
    clock = [datetime(2026, 3, 1, 9, 30, tzinfo=UTC)]
    writer = StoreWriter(store.storage, lambda: clock[0])
    item, revision = add_one(store, new())
    writer.publish([item])
    clock[0] += timedelta(days=1)
    writer.unpublish([item])
    state = writer.publish([item])[0]
    assert state.published_at == "2026-03-01T09:30:00Z"
    assert list(store.catalog.poll().publications()) == [
        Publication(item, revision, "2026-03-01T09:30:00Z")
    ]


def test_an_earlier_revision_can_be_published_by_name(store: Store) -> None:
    item, first = add_one(store, new("one"))
    add_one(store, new("two"))
    assert store.writer.publish([item], first)[0].desired_revision == first


def test_publishing_several_items_is_one_commit_or_none(store: Store) -> None:
    items = [add_one(store, new(ref=f"r{n}"))[0] for n in range(3)]
    with pytest.raises(NotFoundError):
        store.writer.publish([*items, ItemId("nope")])
    assert {state.status for state in store.catalog.poll().items()} == {"draft"}
    states = store.writer.publish([items[2], items[0], items[2]])
    assert [state.item_id for state in states] == [items[2], items[0], items[2]]
    assert len(store.catalog.poll().pending(1)) == 2


def test_set_current_leaves_out_what_was_unpublished_meanwhile(store: Store) -> None:
    item, revision = add_one(store, new(), publish=True)
    store.writer.unpublish([item])
    assert store.writer.set_current([(item, revision)], 1) == 0
    assert store.writer.set_current([(item, None)], 1) == 0


def test_set_current_does_not_bring_back_a_text_that_gave_way_to_another(store: Store) -> None:
    item, first = add_one(store, new("one"), publish=True)
    moves = store.catalog.poll().next_generation_moves(1)
    store.writer.unpublish([item])
    _, second = add_one(store, new("two"), publish=True)
    assert store.writer.set_current(moves, 1) == 0
    assert store.catalog.poll().current_revision(item, 1) is None
    assert moves == ((item, first),)
    assert store.catalog.poll().next_generation_moves(1) == ((item, second),)


def test_a_base_state_has_the_shape_that_authorization_reads(store: Store) -> None:
    base = store.catalog.poll().base(KB)
    assert isinstance(base, BaseState)
    assert (base.base_id, base.owner, base.team, base.scope, base.active) == (
        KB,
        "alice",
        None,
        "public",
        True,
    )
