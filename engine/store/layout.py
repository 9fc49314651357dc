"""Which tables a store has: their columns, their order inside files, their buckets."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from engine.store.states import BASES_SCHEMA, ITEMS_SCHEMA, PUBLICATIONS_SCHEMA
from engine.store.storage import Storage
from engine.store.tables import Table, TableSpec

BASES = TableSpec("bases", BASES_SCHEMA, sort_by=("base_id", "version"))
ITEMS = TableSpec("items", ITEMS_SCHEMA, sort_by=("item_id", "version"))
PUBLICATIONS = TableSpec(
    "publications", PUBLICATIONS_SCHEMA, sort_by=("item_id", "revision_id", "at")
)
REVISIONS = TableSpec(
    "revisions",
    pa.schema(
        [
            pa.field(name, pa.string(), nullable=False)
            for name in (
                "item_id",
                "revision_id",
                "base_id",
                "title",
                "content",
                "language",
                "source_type",
                "source_ref",
                "content_sha256",
                "derived_id",
                "created_at",
            )
        ]
    ),
    sort_by=("item_id", "revision_id"),
    bucket_by="item_id",
    text="content",
    coded=("base_id", "language", "source_type", "created_at"),
)
"""`derived_id` is what `engine.ids.derive_revision_id` gives for the row: two rows of one item say
the same exactly when theirs are equal, whatever ids were given explicitly."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The four tables of a store."""

    bases: Table
    items: Table
    publications: Table
    revisions: Table

    def all(self) -> tuple[Table, ...]:
        """Return them in the order in which a store is made."""
        return (self.bases, self.items, self.publications, self.revisions)


def tables_of(storage: Storage) -> Tables:
    """Name the tables under a storage. Nothing is read or made."""
    return Tables(*(Table(storage, spec) for spec in (BASES, ITEMS, PUBLICATIONS, REVISIONS)))
