"""What a writer decides on a view of the catalog, as functions without effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from engine.errors import ConflictError, NotFoundError, StaleVersionError
from engine.ids import BaseId, ItemId, RevisionId
from engine.store import additions
from engine.store.additions import Batch
from engine.store.catalog import Catalog
from engine.store.revisions import NewRevision, RevisionKey
from engine.store.states import ITEMS_SCHEMA, BaseState, ItemState, rows_of

BATCH_TEXT_CHARS = 32_000_000
"""Content characters after which an addition is committed in a further batch."""


def batches(rows: Sequence[NewRevision]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of runs of rows that have about `BATCH_TEXT_CHARS` characters."""
    start = held = 0
    for end, row in enumerate(rows):
        if held and held + len(row.content) > BATCH_TEXT_CHARS:
            yield start, end
            start, held = end, 0
        held += len(row.content)
    if start < len(rows):
        yield start, len(rows)


def expected[S: (BaseState, ItemState)](held: S | None, what: str, expected: int | None) -> S:
    """Return a state that must exist and, when one is given, have the expected version."""
    if held is None:
        raise NotFoundError(f"there is no {what}")
    if expected is not None and held.version != expected:
        raise StaleVersionError(what, expected, held.version)
    return held


def require_active(catalog: Catalog, base_id: BaseId) -> None:
    """Check that a base exists and is active."""
    base = catalog.base(base_id)
    if base is None:
        raise NotFoundError(f"there is no base {base_id}: make it with `octavo base create`")
    if not base.active:
        raise ConflictError(f"base {base_id} is archived: activate it first")


def refuse_unpublishable(batch: Batch, catalog: Catalog) -> None:
    """Refuse the rows of archived items and of withdrawn revisions."""
    for candidate in tuple(batch.candidates):
        state = catalog.item(candidate.item)
        if state is not None and state.status == "archived":
            batch.refuse(candidate, additions.ARCHIVED)
        elif catalog.withdrawn(*candidate.key):
            batch.refuse(candidate, additions.WITHDRAWN)


def published_at(catalog: Catalog, state: ItemState, revision: RevisionId, now: str) -> str:
    """Return when a revision was first published: by its publication, by its item, else now."""
    publication = catalog.publication(state.item_id, revision)
    if publication is not None:
        return publication.published_at
    if state.desired_revision == revision and state.published_at is not None:
        return state.published_at
    return now


def desired(states: Sequence[ItemState]) -> set[RevisionKey]:
    """Return the desired revisions of some items."""
    return {(s.item_id, s.desired_revision) for s in states if s.desired_revision is not None}


def changed(catalog: Catalog, states: Mapping[ItemId, ItemState | None]) -> pa.Table:
    """Return, as rows of `items`, the states that differ from those of the catalog."""
    rows = [state for item, state in states.items() if state != catalog.item(item)]
    return rows_of(rows, ITEMS_SCHEMA)


def unrecorded(
    catalog: Catalog, moves: Sequence[tuple[ItemId, RevisionId | None]], now: str
) -> dict[RevisionKey, str]:
    """Return the moves to a desired revision that has no publication, with its time."""
    missing: dict[RevisionKey, str] = {}
    for item, revision in moves:
        state = catalog.item(item)
        if state is None or revision is None or state.desired_revision != revision:
            continue
        if catalog.publication(item, revision) is None:
            missing[item, revision] = state.published_at or now
    return missing
