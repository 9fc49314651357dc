"""What adding revisions does, row by row."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ConflictError, NotFoundError
from engine.ids import BaseId, ItemId, RevisionId, derive_item_id, derive_revision_id
from engine.store import decisions
from engine.store.additions import ARCHIVED, OTHER_BASE, SAME_ID, WITHDRAWN, AddReport
from engine.store.opening import Store
from engine.store.revisions import NewRevision, Revision
from engine.store.writer import StoreWriter
from tests.engine.store.samples import KB, add_one, new, raw_rows

TRICKY = (
    "line\r\nline\n\rline\u2028",
    "e\u0301 \u00e9 n\u0303",
    "\U0001f469\u200d\U0001f52c \U0001f1e9\U0001f1ea",
    "\U00020000 中文",
    "\ufeffbom \u0001 \u007f",
    " ",
)


@pytest.mark.parametrize("content", TRICKY)
def test_a_text_reads_back_exactly_as_it_was_given(store: Store, content: str) -> None:
    item, revision = add_one(store, new(content, title=content))
    held = store.revisions.read(item, revision)
    assert held is not None
    assert (held.content, held.title) == (content, content)
    assert held.content_sha256 == hashlib.sha256(content.encode()).hexdigest()


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(texts, min_size=1, max_size=8))
def test_any_valid_texts_read_back_exactly(store: Store, contents: list[str]) -> None:
    rows = [new(text, ref=f"r{n}") for n, text in enumerate(contents)]
    report = store.writer.add_revisions(rows)
    assert report.refused == ()
    for text, key in zip(contents, report.keys, strict=True):
        assert key is not None
        held = store.revisions.read(*key)
        assert held is not None
        assert held.content == text


def test_a_revision_holds_every_field_and_derived_ids(store: Store) -> None:
    clock = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    writer = StoreWriter(store.storage, lambda: clock)
    writer.add_revisions([new("text")])
    sha256 = hashlib.sha256(b"text").hexdigest()
    item = derive_item_id(KB, "docs/a.md")
    revision = derive_revision_id(item, "Title", "en", "file", "docs/a.md", sha256)
    assert store.revisions.read(item, revision) == Revision(
        item_id=item,
        revision_id=revision,
        base_id=KB,
        title="Title",
        content="text",
        language="en",
        source_type="file",
        source_ref="docs/a.md",
        content_sha256=sha256,
        created_at="2026-03-01T09:30:00Z",
    )


def test_the_same_again_changes_nothing_and_writes_nothing(store: Store) -> None:
    rows = [new("one", ref="1"), new("two", ref="2")]
    first = store.writer.add_revisions(rows, publish=True)
    version = store.catalog.poll().version
    again = store.writer.add_revisions(rows, publish=True)
    assert first == AddReport(2, 0, (), 0, first.keys)
    assert again == AddReport(0, 2, (), 0, first.keys)
    assert store.catalog.poll().version == version
    assert len(raw_rows(store.tables.revisions)) == 2


def test_a_changed_source_is_a_new_revision_of_the_same_item(store: Store) -> None:
    first = add_one(store, new("old"))
    second = add_one(store, new("new"))
    assert first[0] == second[0]
    assert first[1] != second[1]
    state = store.catalog.poll().item(first[0])
    assert state is not None
    assert (state.head_revision, state.version) == (second[1], 2)


def test_an_earlier_text_becomes_head_and_desired_again(store: Store) -> None:
    item, earlier = add_one(store, new("old"), publish=True)
    add_one(store, new("new"), publish=True)
    report = store.writer.add_revisions([new("old")], publish=True)
    assert (report.added, report.updated, report.unchanged) == (0, 1, 0)
    state = store.catalog.poll().item(item)
    assert state is not None
    assert (state.head_revision, state.desired_revision) == (earlier, earlier)
    assert len(raw_rows(store.tables.revisions)) == 2


@pytest.mark.parametrize(
    "other",
    [
        new("other", item="i", revision="r"),
        new("text", item="i", revision="r", title="Other"),
        new("text", item="i", revision="r", ref="elsewhere"),
    ],
)
def test_another_revision_under_an_existing_id_is_refused_alone(
    store: Store, other: NewRevision
) -> None:
    add_one(store, new("text", item="i", revision="r"))
    report = store.writer.add_revisions([new("fine", item="j"), other])
    assert report.refused == ((1, SAME_ID),)
    assert report.added == 1
    held = store.revisions.read(ItemId("i"), RevisionId("r"))
    assert held is not None
    assert (held.content, held.title, held.source_ref) == ("text", "Title", "docs/a.md")


def test_contradictions_inside_a_batch_are_refused(store: Store) -> None:
    store.writer.create_base(BaseId("b2"), "Second", "bob", None, "private")
    report = store.writer.add_revisions(
        [
            new("one", item="i", revision="r"),
            new("one", item="i", revision="r"),
            new("two", item="i", revision="r"),
            new("one", item="i", revision="s", base="b2"),
        ]
    )
    assert report.refused == ((2, SAME_ID), (3, OTHER_BASE))
    assert (report.added, report.unchanged) == (1, 1)


def test_an_item_of_another_base_is_refused(store: Store) -> None:
    store.writer.create_base(BaseId("b2"), "Second", "bob", None, "private")
    add_one(store, new("text", item="i"))
    report = store.writer.add_revisions([new("text", item="i", base="b2")])
    assert report.refused == ((0, OTHER_BASE),)
    assert [row["base_id"] for row in raw_rows(store.tables.revisions)] == ["kb"]


def test_the_same_text_in_two_bases_is_two_items(store: Store) -> None:
    store.writer.create_base(BaseId("b2"), "Second", "bob", None, "private")
    assert add_one(store, new("text"))[0] != add_one(store, new("text", base="b2"))[0]


def test_an_unknown_or_archived_base_is_an_error_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(NotFoundError, match="there is no base nope"):
        store.writer.add_revisions([new("a"), new("b", base="nope")])
    store.writer.archive_base(KB)
    with pytest.raises(ConflictError, match="archived"):
        store.writer.add_revisions([new("a")])
    assert raw_rows(store.tables.revisions) == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (new(""), "content must have 1..5000000 characters, has 0"),
        (new("x" * 5_000_001), "content must have 1..5000000 characters, has 5000001"),
        (new(title=""), "title must have 1..500 characters, has 0"),
        (new(title="😀" * 501), "title must have 1..500 characters, has 501"),
        (new("a\0b"), "content must not contain NUL"),
        (new(title="a\0b"), "title must not contain NUL"),
        (new(ref="a\0b"), "source ref must not contain NUL"),
        (new("a\ud800b"), "content must be valid Unicode, has a lone surrogate"),
        (new(item="x" * 257), "item id must have at most 256 characters"),
        (new(item=".."), "item id must not be . or .."),
        (new(revision="a\tb"), "revision id must be valid Unicode without control characters"),
        (new(base=""), "base id must not be empty"),
        (new(ref=""), "give an item id or a source ref to derive it from"),
    ],
)
def test_a_row_over_a_limit_is_refused_with_the_reason(
    store: Store, row: NewRevision, reason: str
) -> None:
    report = store.writer.add_revisions([row]) if row.base_id else None
    if report is None:
        with pytest.raises(NotFoundError):
            store.writer.add_revisions([row])
        return
    assert report.refused == ((0, reason),)
    assert raw_rows(store.tables.revisions) == []


def test_rows_at_the_limits_are_taken(store: Store) -> None:
    largest = new("😀" * 5_000_000, title="é" * 500, item="x" * 256, revision="y" * 256)
    item, revision = add_one(store, largest)
    held = store.revisions.read(item, revision)
    assert held is not None
    assert held.content == largest.content


def test_large_additions_are_committed_in_parts_and_reported_as_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "BATCH_TEXT_CHARS", 10)
    rows = [new("12345678", ref=f"r{n}") for n in range(4)]
    rows.insert(2, new(""))
    report = store.writer.add_revisions(rows)
    assert report.added == 4
    assert report.refused == ((2, "content must have 1..5000000 characters, has 0"),)
    assert [key is None for key in report.keys] == [False, False, True, False, False]


def test_an_archived_item_is_not_brought_back_by_adding_to_it(store: Store) -> None:
    item, _ = add_one(store, new("old"), publish=True)
    store.writer.archive_item(item)
    report = store.writer.add_revisions([new("new")], publish=True)
    assert report.refused == ((0, ARCHIVED),)
    assert len(raw_rows(store.tables.revisions)) == 1


def test_a_withdrawn_revision_is_not_published_again_by_adding_it(store: Store) -> None:
    item, revision = add_one(store, new("secret"), publish=True)
    store.writer.withdraw(item, revision)
    report = store.writer.add_revisions([new("secret")], publish=True)
    assert report.refused == ((0, WITHDRAWN),)


def test_nothing_to_add_is_nothing_done(store: Store) -> None:
    assert store.writer.add_revisions([], publish=True) == AddReport(0, 0, ())
