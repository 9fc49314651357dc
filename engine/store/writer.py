"""Every mutation of a store. Each is a compare-and-swap: it lands whole, or says why not.

The order of writes makes a crash harmless: revisions first, then items, then publications. What a
crash left out is put in by running the same call again, or by the next reindex.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypedDict, Unpack

import pyarrow as pa

from engine.errors import ConflictError, InvalidValueError, NotFoundError
from engine.ids import BaseId, ItemId, RevisionId
from engine.store import additions, decisions, limits, transitions
from engine.store.additions import AddReport, Batch
from engine.store.catalog import Catalog, CatalogFolder
from engine.store.compaction import tidy
from engine.store.layout import tables_of
from engine.store.revisions import NewRevision, RevisionKey, Revisions
from engine.store.states import (
    BASES_SCHEMA,
    PUBLICATIONS_SCHEMA,
    BaseState,
    BaseStatus,
    ItemState,
    PublicationRow,
    rows_of,
)
from engine.store.storage import Storage
from engine.store.swap import OnStep, Swapper, ignore_step
from engine.store.tables import MAX_TRIES, contention, pause

__all__ = ["AddReport", "BaseChanges", "StoreWriter", "utc_now"]


class BaseChanges(TypedDict, total=False):
    """What `StoreWriter.set_base` may change."""

    title: str
    owner: str
    team: str | None
    scope: str


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(UTC)


class StoreWriter:
    """Writes one store. Thread-safe, and safe beside writers of other processes."""

    def __init__(
        self,
        storage: Storage,
        clock: Callable[[], datetime] = utc_now,
        on_step: OnStep = ignore_step,
    ) -> None:
        """Take a store that exists; nothing is read before the first call.

        Args:
            storage: where it lies.
            clock: tells the time that is written into rows, in UTC.
            on_step: told of each step that a mutation has made, for progress.
        """
        self._tables = tables_of(storage)
        self._revisions = Revisions(self._tables.revisions)
        self._swapper = Swapper(self._tables, CatalogFolder(storage), on_step)
        self._clock = clock

    def catalog(self) -> Catalog:
        """Return the newest catalog, as the writer sees it."""
        return self._swapper.catalog()

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    # ------------------------------------------------------------------------------------ bases

    def create_base(
        self, base_id: BaseId, title: str, owner: str, team: str | None, scope: str
    ) -> BaseState:
        """Make a base, active. The same again changes nothing.

        Raises:
            InvalidValueError: a value breaks its limit.
            ConflictError: a base of that id exists and differs.
        """
        limits.check_base_id(base_id)
        limits.check_base_values(title, owner, team, scope)
        made = BaseState(base_id, 1, title, owner, team, scope, "active", self._now())

        def decide(held: BaseState | None) -> BaseState:
            if held is None:
                return made
            if replace(held, version=1, changed_at=made.changed_at) != made:
                raise ConflictError(f"base {base_id} exists already and differs")
            return held

        return self._swap_base(base_id, decide)

    def set_base(
        self, base_id: BaseId, expected_version: int | None = None, **changes: Unpack[BaseChanges]
    ) -> BaseState:
        """Change a base's title, owner, team or scope; takes effect at once.

        Raises:
            NotFoundError: there is no such base.
            InvalidValueError: a value breaks its limit.
            StaleVersionError: the base has another version than expected.
        """
        unknown = sorted(set(changes) - set(BaseChanges.__annotations__))
        if unknown:
            raise InvalidValueError(f"a base has no {unknown[0]} to be set")

        def decide(held: BaseState | None) -> BaseState:
            state = decisions.expected(held, f"base {base_id}", expected_version)
            after = replace(state, **changes)
            limits.check_base_values(after.title, after.owner, after.team, after.scope)
            return self._next_base(state, after)

        return self._swap_base(base_id, decide)

    def archive_base(self, base_id: BaseId, expected_version: int | None = None) -> BaseState:
        """Hide a base and all it holds, at once. Raises as `set_base`."""
        return self._set_base_status(base_id, "archived", expected_version)

    def activate_base(self, base_id: BaseId, expected_version: int | None = None) -> BaseState:
        """Bring an archived base back. Raises as `set_base`."""
        return self._set_base_status(base_id, "active", expected_version)

    def _set_base_status(
        self, base_id: BaseId, status: BaseStatus, expected_version: int | None
    ) -> BaseState:
        def decide(held: BaseState | None) -> BaseState:
            state = decisions.expected(held, f"base {base_id}", expected_version)
            return self._next_base(state, replace(state, status=status))

        return self._swap_base(base_id, decide)

    def _next_base(self, before: BaseState, after: BaseState) -> BaseState:
        if after == before:
            return before
        return replace(after, version=before.version + 1, changed_at=self._now())

    def _swap_base(
        self, base_id: BaseId, decide: Callable[[BaseState | None], BaseState]
    ) -> BaseState:
        def rows(catalog: Catalog) -> tuple[pa.Table | None, BaseState]:
            held = catalog.base(base_id)
            after = decide(held)
            return (None if after is held else rows_of([after], BASES_SCHEMA)), after

        state = self._swapper.swap(self._tables.bases, rows)
        tidy(self._tables.bases)
        return state

    # ------------------------------------------------------------------------------------ items

    def add_revisions(self, rows: Sequence[NewRevision], publish: bool = False) -> AddReport:
        """Add revisions; each becomes the head of its item, in row order.

        Args:
            rows: the revisions; ids that are None are derived.
            publish: publish each as well.

        Returns:
            What became of each row. A row is refused when it breaks a limit, when its revision
            id exists with another content, title, language or source, when its item belongs to
            another base, or, with `publish`, when the item is archived or the revision withdrawn.

        Raises:
            NotFoundError: a row names a base that does not exist. Nothing was written.
            ConflictError: a row names an archived base. Nothing was written.
            ContentionError, StorageFullError, StoreError, CommitUnknownError: run it again:
                what has landed is then unchanged.
        """
        report = AddReport(0, 0, ())
        with self._swapper.lock:
            self._check_bases(rows, self._swapper.catalog())
            for start, end in decisions.batches(rows):
                report = report.joined(self._add_batch(rows[start:end], publish), start)
        return report

    def _check_bases(self, rows: Sequence[NewRevision], catalog: Catalog) -> None:
        for base_id in sorted({row.base_id for row in rows}):
            decisions.require_active(catalog, base_id)

    def _add_batch(self, rows: Sequence[NewRevision], publish: bool) -> AddReport:
        batch = additions.prepare(rows)
        if batch.candidates:
            self._store_revisions(batch, publish)
        if batch.candidates:
            published = self._swapper.swap(
                self._tables.items, lambda catalog: self._advance_items(catalog, batch, publish)
            )
            self._add_publications(published)
            for table in self._tables.all()[1:]:
                tidy(table)
        return batch.report()

    def _store_revisions(self, batch: Batch, publish: bool) -> None:
        """Commit the rows that are new, deciding on the very snapshot that is committed with."""
        table = self._tables.revisions
        for attempt in range(MAX_TRIES):
            snapshot = table.snapshot()
            catalog = self._swapper.catalog()
            if publish:
                decisions.refuse_unpublishable(batch, catalog)
            self._revisions.refresh(snapshot.version)
            new = self._new_candidates(batch, catalog)
            if not new:
                table.release(snapshot)
                return
            staged = table.stage(additions.revision_rows(new, self._now()))
            if self._swapper.try_commit(table, snapshot, staged):
                batch.outcomes |= {candidate.index: "added" for candidate in new}
                return
            pause(attempt)
        raise contention(table.spec.name)

    def _new_candidates(self, batch: Batch, catalog: Catalog) -> list[additions.Candidate]:
        items = {candidate.item for candidate in batch.candidates}
        states = {item: catalog.item(item) for item in items}
        bases = {item: state.base_id for item, state in states.items() if state is not None}
        # An item whose first row a crash, or a writer that is not yet done, has left out.
        bases |= self._revisions.bases_of(sorted(items - bases.keys()))
        existing = self._revisions.identities([candidate.key for candidate in batch.candidates])
        for candidate in tuple(batch.candidates):
            # Only what is stored can be withdrawn: withdrawn and missing means erased.
            if catalog.withdrawn(*candidate.key) and candidate.key not in existing:
                batch.refuse(candidate, additions.WITHDRAWN)
        return additions.refuse_contradictions(batch, bases, existing)

    def _advance_items(
        self, catalog: Catalog, batch: Batch, publish: bool
    ) -> tuple[pa.Table | None, dict[RevisionKey, str]]:
        """Return the next states of the items of a batch, and what it publishes, with times."""
        if publish:
            decisions.refuse_unpublishable(batch, catalog)
        now = self._now()
        states: dict[ItemId, ItemState | None] = {}
        published: dict[RevisionKey, str] = {}
        batch.outcomes = {row: name for row, name in batch.outcomes.items() if name == "added"}
        for candidate in batch.candidates:
            item, revision = candidate.key
            before = states[item] if item in states else catalog.item(item)
            after = transitions.added(before, candidate, now)
            if publish:
                at = decisions.published_at(catalog, after, revision, now)
                after = transitions.published(after, revision, at, now)
                published[candidate.key] = at
            states[item] = after
            if after is not before and batch.outcomes.get(candidate.index) != "added":
                batch.outcomes[candidate.index] = "updated"
        return decisions.changed(catalog, states), published

    def publish(
        self,
        item_ids: Sequence[ItemId],
        revision_id: RevisionId | None = None,
        expected_version: int | None = None,
    ) -> tuple[ItemState, ...]:
        """Want a revision of each item to be current: it is, with the next generation.

        Args:
            item_ids: the items; one, when a revision or version is given.
            revision_id: the revision, or None: each item's head.
            expected_version: refuse unless the item has this version.

        Returns:
            The items' states, in the order given.

        Raises:
            NotFoundError: an item or the revision does not exist. Nothing was written.
            ConflictError: the revision was withdrawn, or a base is archived.
            StaleVersionError: the item has another version than expected.
        """
        if revision_id is not None and not self._exists(item_ids, revision_id):
            raise NotFoundError(f"item {item_ids[0]} has no revision {revision_id}")
        now = self._now()
        published: dict[RevisionKey, str] = {}

        def decide(catalog: Catalog, state: ItemState) -> ItemState:
            revision = revision_id or state.head_revision
            decisions.require_active(catalog, state.base_id)
            if catalog.withdrawn(state.item_id, revision):
                raise ConflictError(f"item {state.item_id}: {additions.WITHDRAWN}")
            at = decisions.published_at(catalog, state, revision, now)
            published[state.item_id, revision] = at
            return transitions.published(state, revision, at, now)

        states = self._swap_items(item_ids, expected_version, decide)
        self._add_publications(
            {key: at for key, at in published.items() if key in decisions.desired(states)}
        )
        return states

    def unpublish(
        self, item_ids: Sequence[ItemId], expected_version: int | None = None
    ) -> tuple[ItemState, ...]:
        """Take published items back to draft, at once. Raises as `publish`."""
        now = self._now()
        return self._swap_items(
            item_ids, expected_version, lambda _, state: transitions.unpublished(state, now)
        )

    def archive_item(self, item_id: ItemId, expected_version: int | None = None) -> ItemState:
        """Archive an item, at once. Raises as `publish`."""
        now = self._now()
        return self._swap_items(
            [item_id], expected_version, lambda _, state: transitions.archived(state, now)
        )[0]

    def withdraw(self, item_id: ItemId, revision_id: RevisionId) -> None:
        """Make a revision unreadable for ever, at once. The same again changes nothing.

        Raises:
            NotFoundError: the item has no such revision.
        """
        if not self._exists([item_id], revision_id):
            raise NotFoundError(f"item {item_id} has no revision {revision_id}")
        row = PublicationRow(item_id, revision_id, "withdrawn", self._now())

        def decide(catalog: Catalog) -> tuple[pa.Table | None, None]:
            known = catalog.withdrawn(item_id, revision_id)
            return (None if known else rows_of([row], PUBLICATIONS_SCHEMA)), None

        self._swapper.swap(self._tables.publications, decide)

    def set_current(
        self, moves: Sequence[tuple[ItemId, RevisionId | None]], generation: int
    ) -> int:
        """Say which revisions are current from a generation on, before it is committed.

        Items that were unpublished meanwhile, and revisions that were withdrawn or are not desired
        any more, are left out. A desired revision whose publication a crash left out gets it.

        Args:
            moves: item and revision (None: the item has no current revision any more).
            generation: its number, at least 1.

        Returns:
            How many items changed.

        Raises:
            NotFoundError: an item does not exist. Nothing was written.
        """
        if generation < 1:
            raise ValueError(f"generation must be at least 1, got {generation}")
        now = self._now()
        self._add_publications(decisions.unrecorded(self._swapper.catalog(), moves, now))

        def decide(catalog: Catalog) -> tuple[pa.Table | None, int]:
            states: dict[ItemId, ItemState | None] = {}
            for item, revision in moves:
                state = states.get(item) or decisions.expected(
                    catalog.item(item), f"item {item}", None
                )
                if revision is None or not catalog.withdrawn(item, revision):
                    states[item] = transitions.current(state, revision, generation, now)
            rows = decisions.changed(catalog, states)
            return rows, rows.num_rows

        count = self._swapper.swap(self._tables.items, decide)
        tidy(self._tables.items)
        return count

    def _exists(self, item_ids: Sequence[ItemId], revision_id: RevisionId) -> bool:
        if len(item_ids) != 1:
            raise ValueError("a revision is named for one item only")
        self._revisions.refresh()
        return self._revisions.exists(item_ids[0], revision_id)

    def _swap_items(
        self,
        item_ids: Sequence[ItemId],
        expected_version: int | None,
        decide: Callable[[Catalog, ItemState], ItemState],
    ) -> tuple[ItemState, ...]:
        if expected_version is not None and len(item_ids) != 1:
            raise ValueError("a version is expected of one item only")

        def rows(catalog: Catalog) -> tuple[pa.Table, tuple[ItemState, ...]]:
            states: dict[ItemId, ItemState] = {}
            for item in dict.fromkeys(item_ids):
                held = catalog.item(item)
                state = decisions.expected(held, f"item {item}", expected_version)
                states[item] = decide(catalog, state)
            return decisions.changed(catalog, states), tuple(states[item] for item in item_ids)

        states = self._swapper.swap(self._tables.items, rows)
        tidy(self._tables.items)
        return states

    def _add_publications(self, published: Mapping[RevisionKey, str]) -> None:
        """Record first publications; those that have one keep it."""
        if not published:
            return

        def decide(catalog: Catalog) -> tuple[pa.Table | None, None]:
            new = [
                PublicationRow(item, revision, "published", at)
                for (item, revision), at in published.items()
                if catalog.publication(item, revision) is None
            ]
            return (rows_of(new, PUBLICATIONS_SCHEMA) if new else None), None

        self._swapper.swap(self._tables.publications, decide)
