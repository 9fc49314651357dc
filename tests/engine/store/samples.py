"""Revisions to add, and an independent look at what a table holds."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from engine.ids import BaseId, ItemId, RevisionId
from engine.store.opening import Store
from engine.store.revisions import NewRevision
from engine.store.tables import Table

KB = BaseId("kb")


def new(
    content: str = "text",
    *,
    item: str | None = None,
    revision: str | None = None,
    base: str = "kb",
    title: str = "Title",
    ref: str = "docs/a.md",
) -> NewRevision:
    return NewRevision(
        base_id=BaseId(base),
        title=title,
        content=content,
        language="en",
        source_type="file",
        source_ref=ref,
        item_id=None if item is None else ItemId(item),
        revision_id=None if revision is None else RevisionId(revision),
    )


def raw_rows(table: Table) -> list[dict[str, Any]]:
    """Return a table's rows as Delta Lake's own reader gives them."""
    handle = DeltaTable(table.storage.delta_uri(table.spec.name))
    return pa.table(handle.scan().read_all()).to_pylist()


def add_one(store: Store, row: NewRevision, *, publish: bool = False) -> tuple[ItemId, RevisionId]:
    report = store.writer.add_revisions([row], publish=publish)
    assert report.refused == ()
    key = report.keys[0]
    assert key is not None
    return key
