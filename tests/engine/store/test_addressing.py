"""An addressed read decodes one row group of one file, however the table has grown."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from engine.ids import ItemId, RevisionId
from engine.store.additions import prepare, revision_rows
from engine.store.compaction import compact
from engine.store.opening import Store
from engine.store.parquet import ROW_GROUP_BYTES
from engine.store.revisions import NewRevision, Revisions
from engine.store.tables import bucket_of
from tests.engine.store.samples import new, raw_rows

APPENDS = 500
NOW = "2026-03-01T09:30:00Z"
# Letters that do not compress well, so that bytes read say something.
LETTERS = "".join(chr(0x4E00 + n * 7919 % 20000) for n in range(60_000))


def append(store: Store, rows: list[NewRevision]) -> None:
    store.tables.revisions.append(revision_rows(prepare(rows).candidates, NOW))


def files_of(store: Store, bucket: str) -> list[Path]:
    """The bucket's live files, by Delta Lake's own account."""
    handle = store.tables.revisions.snapshot().handle
    return [Path(uri) for uri in handle.file_uris() if f"bucket={bucket}/" in uri]


def assert_reads_one_row_group(store: Store, item: str, content: str) -> None:
    """Read twice with a new reader; count what was read of texts and of ids."""
    revisions = Revisions(store.tables.revisions)
    held = revisions.read(ItemId(item), RevisionId("r"))
    assert held is not None
    assert held.content == content
    files = files_of(store, bucket_of(item))
    assert revisions.counters.row_groups == 1
    assert revisions.counters.files_opened == 1
    assert revisions.counters.bytes <= largest_row_group(files)
    assert revisions.id_counters.files_opened == len(files)
    assert revisions.id_counters.bytes <= sum(id_and_footer_bytes(file) for file in files)

    ids_before = revisions.id_counters.bytes
    assert revisions.read(ItemId(item), RevisionId("r")) == held
    assert revisions.counters.row_groups == 2
    assert revisions.id_counters.bytes == ids_before


def largest_row_group(files: list[Path]) -> int:
    groups = [
        meta.row_group(group)
        for meta in map(pq.read_metadata, files)
        for group in range(meta.num_row_groups)
    ]
    return max(
        sum(group.column(n).total_compressed_size for n in range(group.num_columns))
        for group in groups
    )


def id_and_footer_bytes(file: Path) -> int:
    meta = pq.read_metadata(file)
    ids = sum(
        meta.row_group(group).column(column).total_compressed_size
        for group in range(meta.num_row_groups)
        for column in (0, 1)
    )
    # Parquet readers guess the footer's length: Arrow takes the last 64 KiB at once.
    return ids + min(file.stat().st_size, (64 << 10) + meta.serialized_size + 8)


@pytest.mark.slow
def test_one_row_group_is_read_after_500_appends_and_after_compaction(store: Store) -> None:
    big = [new(f"{n} {LETTERS}", item=f"big{n}", revision="r") for n in range(96)]
    append(store, big)
    for number in range(APPENDS):
        append(store, [new(f"small {number}", item=f"s{number}", revision="r")])
    contents = {str(row.item_id): row.content for row in big} | {
        f"s{number}": f"small {number}" for number in range(APPENDS)
    }
    bucket = bucket_of("big0")
    assert len(files_of(store, bucket)) > APPENDS / 16 / 2
    chosen = ("big0", "big95", "s0", "s499")
    for item in chosen:
        assert_reads_one_row_group(store, item, contents[item])

    followed = Revisions(store.tables.revisions)
    assert followed.read(ItemId("s7"), RevisionId("r")) is not None
    done = compact(store.tables.revisions)
    assert (done.added, done.removed) == (16, APPENDS + 16)
    assert len(files_of(store, bucket)) == 1
    for item in chosen:
        assert_reads_one_row_group(store, item, contents[item])
    rows = raw_rows(store.tables.revisions)
    assert {row["item_id"]: row["content"] for row in rows} == contents
    assert len(rows) == len(contents)

    # A reader that followed the table before finds its address after files were really deleted.
    store.tables.revisions.snapshot().handle.vacuum(
        0, dry_run=False, enforce_retention_duration=False, full=True
    )
    for item, content in contents.items():
        held = followed.read(ItemId(item), RevisionId("r"))
        assert held is not None
        assert held.content == content


def test_row_groups_hold_about_a_megabyte_of_text_and_files_are_sorted(store: Store) -> None:
    append(store, [new(f"{n} {LETTERS}", item="one", revision=f"r{n:02}") for n in range(30)])
    (file,) = files_of(store, bucket_of("one"))
    parquet = pq.ParquetFile(file)
    assert parquet.num_row_groups >= 5
    keys = []
    for group in range(parquet.num_row_groups):
        rows = parquet.read_row_group(group, columns=["revision_id", "content"]).to_pylist()
        keys += [row["revision_id"] for row in rows]
        assert sum(len(row["content"].encode()) for row in rows) <= ROW_GROUP_BYTES
    assert keys == [f"r{n:02}" for n in range(30)]
    parquet.close()


def test_a_missing_revision_is_none_and_decodes_no_text(store: Store) -> None:
    append(store, [new("text", item="i", revision="r")])
    assert store.revisions.read(ItemId("i"), RevisionId("s")) is None
    assert store.revisions.read(ItemId("j"), RevisionId("r")) is None
    assert store.revisions.counters.row_groups == 0


def test_a_reader_finds_what_was_added_after_it_first_read(store: Store) -> None:
    assert store.revisions.read(ItemId("i"), RevisionId("r")) is None
    append(store, [new("text", item="i", revision="r")])
    held = store.revisions.read(ItemId("i"), RevisionId("r"))
    assert held is not None
    assert held.content == "text"


def test_a_scan_yields_each_wanted_revision_once_and_only_the_columns_asked_for(
    store: Store,
) -> None:
    append(store, [new(f"{n} {LETTERS}", item=f"i{n}", revision="r") for n in range(40)])
    append(store, [new(f"small {n}", item=f"i{n}", revision="s") for n in range(40)])
    wanted = [(ItemId(f"i{n}"), RevisionId(r)) for n in range(0, 40, 3) for r in ("r", "s", "none")]
    batches = list(store.revisions.scan([*wanted, *wanted], ["content"]))
    assert {tuple(batch.schema.names) for batch in batches} == {
        ("item_id", "revision_id", "content")
    }
    rows = [row for batch in batches for row in batch.to_pylist()]
    found = sorted((row["item_id"], row["revision_id"]) for row in rows)
    assert found == sorted(key for key in wanted if key[1] != "none")
    for row in rows:
        number = row["item_id"][1:]
        small = row["revision_id"] == "s"
        assert row["content"] == (f"small {number}" if small else f"{number} {LETTERS}")
