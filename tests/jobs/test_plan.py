"""What a reindex has to do, decided from a real store's catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import Config
from engine.ids import BaseId, ItemId, RevisionId
from engine.index.generation import GenerationRecord, Reference
from engine.store.opening import Store, create_store
from engine.store.revisions import NewRevision
from jobs.plan import Plan, make_plan
from jobs.staging import Key

KB, ITEM = BaseId("kb"), ItemId("item")
CONFIG = Config()
FIRST, SECOND = (ITEM, RevisionId("first")), (ITEM, RevisionId("second"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store whose one item is current at generation 1 and has a later publication."""
    made = create_store(tmp_path / "root")
    made.writer.create_base(KB, "Knowledge", "alice", None, "public")
    _publish(made, FIRST)
    made.writer.set_current([FIRST], 1)
    _publish(made, SECOND)
    return made


def _publish(store: Store, key: Key) -> None:
    row = NewRevision(KB, "Title", f"text {key[1]}", "en", "file", "a.md", *key)
    assert not store.writer.add_revisions([row], publish=True).refused


def _plan(store: Store, *indexed: Key, shards: int = 1, rebuild: bool = False) -> Plan:
    previous = GenerationRecord(
        number=1,
        shards=1,
        encoder="e",
        dimension=8,
        passages_config=CONFIG.passages.model_dump_json(),
        reference=Reference("reference/r.npy", ""),
        created_at="2026-01-01T00:00:00Z",
        segments=(),
    )
    catalog = store.catalog.poll()
    return make_plan(CONFIG, catalog, previous, indexed, shards=shards, rebuild=rebuild)


def test_only_what_is_missing_is_added(store: Store) -> None:
    plan = _plan(store, FIRST)
    assert (plan.kind, plan.generation, plan.added, plan.kept) == ("add", 2, (SECOND,), ())
    store.writer.set_current([SECOND], 1)
    assert _plan(store, FIRST, SECOND).kind == "nothing"


def test_a_generation_built_anew_holds_what_stays_current_if_the_next_text_does_not_come(
    store: Store,
) -> None:
    resharded = _plan(store, FIRST, shards=2)
    assert (resharded.kind, resharded.added, resharded.kept) == ("reshard", (SECOND,), (FIRST,))
    assert _plan(store, FIRST, rebuild=True).added == (FIRST, SECOND)
    store.writer.withdraw(*SECOND)
    resharded = _plan(store, FIRST, shards=2)
    assert (resharded.kind, resharded.added, resharded.kept) == ("reshard", (), (FIRST,))
    assert _plan(store, FIRST, rebuild=True).added == (FIRST,)
    assert store.catalog.poll().current_revision(ITEM, 2) == FIRST[1]


def test_what_a_killed_job_made_current_is_held_though_another_text_is_wanted(
    store: Store,
) -> None:
    store.writer.set_current([SECOND], 2)  # and then the job was killed
    third = (ITEM, RevisionId("third"))
    _publish(store, third)
    assert store.catalog.poll().current_at(ITEM, 2) == SECOND[1]
    assert _plan(store, FIRST).added == (SECOND, third)


def test_a_generation_built_anew_leaves_out_what_is_superseded_or_not_public(
    store: Store,
) -> None:
    store.writer.set_current([SECOND], 2)
    assert _plan(store, FIRST, SECOND, rebuild=True).added == (SECOND,)
    store.writer.unpublish([ITEM])
    assert _plan(store, FIRST, SECOND, rebuild=True).added == ()
