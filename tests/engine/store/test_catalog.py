"""Views of the state: their versions, what changed between them, and who confirmed them when."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.ids import ItemId, RevisionId
from engine.store.catalog import Catalog, CatalogReader
from engine.store.opening import Store
from tests.engine.store.samples import KB, add_one, new


def test_an_idle_poll_gives_the_same_object(store: Store) -> None:
    add_one(store, new())
    first = store.catalog.poll()
    for _ in range(200):
        assert store.catalog.poll() is first


def test_readers_that_followed_differently_agree_on_version_and_state(store: Store) -> None:
    following = CatalogReader(store.storage)
    for number in range(5):
        add_one(store, new(ref=f"r{number}"), publish=True)
        following.poll()
    late = CatalogReader(store.storage).poll()
    assert following.poll().version == late.version
    assert sorted(following.poll().items(), key=str) == sorted(late.items(), key=str)
    assert following.poll().bases() == late.bases()


def test_changes_name_the_items_that_may_differ(store: Store) -> None:
    one, revision = add_one(store, new(ref="1"), publish=True)
    two, _ = add_one(store, new(ref="2"), publish=True)
    first = store.catalog.poll()
    store.writer.set_current([(one, revision)], 1)
    second = store.catalog.poll()
    store.writer.unpublish([two])
    third = store.catalog.poll()
    store.writer.withdraw(one, revision)
    fourth = store.catalog.poll()
    assert first.changes_since(first) == frozenset()
    assert second.changes_since(first) == frozenset({one})
    assert third.changes_since(first) == frozenset({one, two})
    assert fourth.changes_since(third) == frozenset({one})
    assert first.changes_since(fourth) is None


def test_a_changed_base_means_recompute_all(store: Store) -> None:
    before = store.catalog.poll()
    store.writer.set_base(KB, scope="private")
    changed = store.catalog.poll()
    assert changed.changes_since(before) is None
    item, _ = add_one(store, new())
    after = store.catalog.poll()
    assert after.changes_since(before) is None
    assert after.changes_since(changed) == frozenset({item})


def test_changes_since_a_view_that_is_long_gone_are_unknown(store: Store) -> None:
    item, revision = add_one(store, new(), publish=True)
    first = store.catalog.poll()
    for generation in range(1, 70):
        store.writer.set_current([(item, None if generation % 2 else revision)], generation)
        store.catalog.poll()
    assert store.catalog.poll().changes_since(first) is None


def test_a_view_never_changes(store: Store) -> None:
    item, _ = add_one(store, new(), publish=True)
    old = store.catalog.poll()
    store.writer.archive_item(item)
    store.catalog.poll()
    state = old.item(item)
    assert state is not None
    assert state.status == "published"


def test_unknown_ids_are_none(store: Store) -> None:
    catalog = store.catalog.poll()
    key = (ItemId("i"), RevisionId("r"))
    assert catalog.item(key[0]) is None
    assert catalog.current_revision(key[0], 1) is None
    assert catalog.publication(*key) is None
    assert not catalog.withdrawn(*key)
    assert not catalog.readable_pin(*key)


def test_staleness_counts_from_the_last_poll_that_succeeded(store: Store, tmp_path: Path) -> None:
    reader = CatalogReader(store.storage)
    assert reader.confirmed_at == -math.inf
    assert reader.staleness == math.inf
    before = time.monotonic()
    catalog = reader.poll()
    confirmed = reader.confirmed_at
    assert before <= confirmed <= time.monotonic()
    assert reader.staleness >= 0
    log = tmp_path / "root" / "store" / "items" / "_delta_log"
    (log / "00000000000000000001.json").write_bytes(b"torn")
    with pytest.raises(StoreError, match="damaged"):
        reader.poll()
    assert reader.confirmed_at == confirmed
    (log / "00000000000000000001.json").unlink()
    assert reader.poll().bases() == catalog.bases()
    assert reader.confirmed_at > confirmed


def test_a_poll_that_failed_in_one_table_loses_nothing_of_the_others(
    store: Store, tmp_path: Path
) -> None:
    reader = CatalogReader(store.storage)
    reader.poll()
    store.writer.set_base(KB, title="Renamed")
    item, _ = add_one(store, new(), publish=True)
    log = tmp_path / "root" / "store" / "publications" / "_delta_log"
    good = (log / "00000000000000000001.json").read_bytes()
    (log / "00000000000000000001.json").write_bytes(b"torn")
    with pytest.raises(StoreError):
        reader.poll()
    (log / "00000000000000000001.json").write_bytes(good)
    catalog = reader.poll()
    base = catalog.base(KB)
    assert base is not None
    assert base.title == "Renamed"
    assert catalog.item(item) is not None


def test_threads_that_poll_while_others_write_see_versions_only_grow(store: Store) -> None:
    reader = CatalogReader(store.storage)
    seen: dict[int, list[Catalog]] = {number: [] for number in range(4)}
    done = threading.Event()

    def follow(number: int) -> None:
        while not done.is_set():
            seen[number].append(reader.poll())

    threads = [threading.Thread(target=follow, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    for number in range(10):
        add_one(store, new(ref=f"r{number}"))
    done.set()
    for thread in threads:
        thread.join()
    for views in seen.values():
        counts = [view.item_count for view in views]
        assert counts == sorted(counts)
    assert reader.poll().item_count == 10


def test_vanished_tables_are_an_error_not_a_quiet_time(store: Store, tmp_path: Path) -> None:
    add_one(store, new())
    store.catalog.poll()
    confirmed = store.catalog.confirmed_at
    tables = Path(store.storage.local_path("store"))
    tables.rename(tmp_path / "unmounted")
    with pytest.raises(StoreError, match="vanished"):
        store.catalog.poll()
    assert store.catalog.confirmed_at == confirmed
    (tmp_path / "unmounted").rename(tables)
    store.catalog.poll()
    assert store.catalog.confirmed_at > confirmed
