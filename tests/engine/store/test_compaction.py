"""Compaction and vacuum change no state, and do not disturb who reads or writes meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pytest

from engine.errors import StaleVersionError
from engine.ids import ItemId
from engine.store import compaction
from engine.store.catalog import Catalog, CatalogReader
from engine.store.compaction import Compaction, compact, tidy, vacuum
from engine.store.opening import Store
from engine.store.states import ITEMS_SCHEMA, rows_of
from tests.engine.store.samples import add_one, new, raw_rows


def state_of(catalog: Catalog) -> object:
    items = sorted(catalog.items(), key=lambda state: state.item_id)
    current = [[catalog.current_revision(i.item_id, g) for g in range(4)] for i in items]
    publications = sorted((p.item_id, p.revision_id) for p in catalog.publications())
    return catalog.bases(), items, current, publications


def one_row(store: Store) -> pa.Table:
    return rows_of([next(store.catalog.poll().items())], ITEMS_SCHEMA)


def filled(store: Store) -> list[ItemId]:
    items = []
    for number in range(4):
        item, revision = add_one(store, new(f"{number}", ref=f"r{number}"), publish=True)
        store.writer.set_current([(item, revision)], 1)
        items.append(item)
    _, second = add_one(store, new("again", ref="r0"), publish=True)
    store.writer.set_current([(items[0], second)], 2)
    store.writer.unpublish([items[1]])
    return items


def test_compaction_keeps_the_state_for_old_and_new_readers(store: Store) -> None:
    filled(store)
    before = store.catalog.poll()
    for table in store.tables.all():
        compact(table)
    after = store.catalog.poll()
    assert state_of(after) == state_of(before) == state_of(CatalogReader(store.storage).poll())
    assert after.changes_since(before) == frozenset()
    assert compact(store.tables.items) == Compaction(0, 0)


def test_compaction_drops_item_rows_that_decide_nothing_and_no_others(store: Store) -> None:
    items = filled(store)
    compact(store.tables.items)
    versions: dict[str, list[int]] = {}
    for row in raw_rows(store.tables.items):
        versions.setdefault(row["item_id"], []).append(row["version"])
    # r0: published at 1 (v2), moved at 1 (v3), again (v4, v5), moved at 2 (v6).
    assert {item: len(held) for item, held in versions.items()} == {
        items[0]: 3,
        items[1]: 1,
        items[2]: 2,
        items[3]: 2,
    }


def test_a_compaction_makes_a_concurrent_decision_stale_not_lost(store: Store) -> None:
    items = filled(store)
    snapshot = store.tables.items.snapshot()
    compact(store.tables.items)
    staged = store.tables.items.stage(one_row(store))
    with pytest.raises(StaleVersionError):
        store.tables.items.commit(snapshot, staged)
    assert store.writer.publish([items[1]])[0].status == "published"


def test_a_catalog_reader_survives_a_vacuum_of_files_it_was_about_to_read(store: Store) -> None:
    reader = CatalogReader(store.storage)
    reader.poll()
    filled(store)
    for table in store.tables.all():
        compact(table)
        table.snapshot().handle.vacuum(
            0, dry_run=False, enforce_retention_duration=False, full=True
        )
    assert state_of(reader.poll()) == state_of(store.catalog.poll())


def test_a_vacuum_keeps_what_was_replaced_or_staged_within_its_retention(store: Store) -> None:
    filled(store)
    staged = store.tables.items.stage(one_row(store))
    compact(store.tables.items)
    assert vacuum(store.tables.items) == ()
    assert all(store.tables.items.local_path(file.path).exists() for file in staged.files)
    with pytest.raises(ValueError, match="at least 1 h"):
        vacuum(store.tables.items, 0)


def test_a_writer_compacts_by_itself_when_files_pile_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "TIDY_FILES", 4)
    for number in range(12):
        add_one(store, new("text", ref=f"r{number}"), publish=True)
        for table in store.tables.all():
            tidy(table)
    assert len(store.tables.items.snapshot().handle.file_uris()) <= 4
    assert store.catalog.poll().item_count == 12
