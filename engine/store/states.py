"""The states a store holds: of bases, items and publications, as rows and as values.

Rows are append-only: of the rows of one base or item, the one of the highest version counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from engine.ids import BaseId, ItemId, RevisionId
from engine.store.columns import table_of

BaseStatus = Literal["active", "archived"]
ItemStatus = Literal["draft", "published", "archived"]
PublicationKind = Literal["published", "withdrawn"]


@dataclass(frozen=True, slots=True)
class BaseState:
    """One state of a base.

    Attributes:
        base_id: its id.
        version: from 1, every change increments it.
        title: 1..500 characters.
        owner: subject of the owner; empty matches nobody.
        team: its team, or None.
        scope: one of `engine.authorization.SCOPES`.
        status: `active` or `archived`.
        changed_at: RFC 3339, UTC, seconds.
    """

    base_id: BaseId
    version: int
    title: str
    owner: str
    team: str | None
    scope: str
    status: BaseStatus
    changed_at: str

    @property
    def active(self) -> bool:
        """Say whether the base is not archived."""
        return self.status == "active"


@dataclass(frozen=True, slots=True)
class ItemState:
    """One state of an item.

    Attributes:
        item_id: its id.
        base_id: the base it belongs to for ever.
        version: from 1, every change increments it.
        status: `draft`, `published` or `archived`.
        head_revision: the revision added last.
        desired_revision: the revision published last, or None; current once it is indexed.
        current_revision: the revision current from generation `current_from` on, or None.
        current_from: a generation number; 0 with None says: at no generation.
        source_type: of the head revision.
        source_ref: of the head revision.
        published_at: when the desired revision was first published, or None.
        changed_at: RFC 3339, UTC, seconds.
    """

    item_id: ItemId
    base_id: BaseId
    version: int
    status: ItemStatus
    head_revision: RevisionId
    desired_revision: RevisionId | None
    current_revision: RevisionId | None
    current_from: int
    source_type: str
    source_ref: str
    published_at: str | None
    changed_at: str


@dataclass(frozen=True, slots=True)
class Publication:
    """That a revision became public, and when first (RFC 3339, UTC, seconds)."""

    item_id: ItemId
    revision_id: RevisionId
    published_at: str


@dataclass(frozen=True, slots=True)
class PublicationRow:
    """A row of the `publications` table: a first publication or a withdrawal, at a time."""

    item_id: ItemId
    revision_id: RevisionId
    kind: PublicationKind
    at: str


def _required(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


BASES_SCHEMA = pa.schema(
    [
        _required("base_id", pa.string()),
        _required("version", pa.int64()),
        _required("title", pa.string()),
        _required("owner", pa.string()),
        pa.field("team", pa.string()),
        _required("scope", pa.string()),
        _required("status", pa.string()),
        _required("changed_at", pa.string()),
    ]
)

ITEMS_SCHEMA = pa.schema(
    [
        _required("item_id", pa.string()),
        _required("base_id", pa.string()),
        _required("version", pa.int64()),
        _required("status", pa.string()),
        _required("head_revision", pa.string()),
        pa.field("desired_revision", pa.string()),
        pa.field("current_revision", pa.string()),
        _required("current_from", pa.int64()),
        _required("source_type", pa.string()),
        _required("source_ref", pa.string()),
        pa.field("published_at", pa.string()),
        _required("changed_at", pa.string()),
    ]
)

PUBLICATIONS_SCHEMA = pa.schema(
    [
        _required("item_id", pa.string()),
        _required("revision_id", pa.string()),
        _required("kind", pa.string()),
        _required("at", pa.string()),
    ]
)


def rows_of(states: list[Any], schema: pa.Schema) -> pa.Table:
    """Return states (dataclasses of one kind) as a table of their schema, in their order."""
    return table_of([asdict(state) for state in states], schema)


def base_of(row: Mapping[str, Any]) -> BaseState:
    """Return the state that a row of `bases` holds."""
    return BaseState(**row)


def item_of(row: Mapping[str, Any]) -> ItemState:
    """Return the state that a row of `items` holds."""
    return ItemState(**row)


def publication_row_of(row: Mapping[str, Any]) -> PublicationRow:
    """Return what a row of `publications` holds."""
    return PublicationRow(**row)
