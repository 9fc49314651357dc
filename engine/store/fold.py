"""Folds append-only rows into the state that counts. A fold is immutable and compact.

Each fold is a body (Arrow columns found through sorted hashes: some 200 bytes an item) and an
overlay of what changed since the body was built; the overlay is merged before it grows large.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.ids import BaseId, ItemId, RevisionId
from engine.store.body import ItemRows
from engine.store.columns import Int64s, integers, numbers, strings, table_of
from engine.store.states import (
    ITEMS_SCHEMA,
    PUBLICATIONS_SCHEMA,
    ItemState,
    ItemStatus,
    Publication,
    item_of,
    rows_of,
)

_MIN_OVERLAY = 4096


class HashIndex:
    """Finds rows by key: sorted 64-bit hashes of this process; the caller compares the key."""

    def __init__(self, keys: Iterable[Hashable]) -> None:
        """Index keys by their position."""
        hashes = np.fromiter(map(hash, keys), np.int64)
        self._rows = np.argsort(hashes, kind="stable")
        self._hashes: Int64s = hashes[self._rows]

    def rows(self, key: Hashable) -> Iterator[int]:
        """Yield the positions whose key has the same hash: nearly always one or none."""
        code = np.int64(hash(key))
        place = int(np.searchsorted(self._hashes, code))
        while place < len(self._hashes) and self._hashes[place] == code:
            yield int(self._rows[place])
            place += 1


def kept_rows(codes: Int64s, current_from: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say which rows of items still decide something.

    A reader pinned to generation g takes the highest-version row with `current_from` <= g. So a
    row counts only while no later row of its item starts at the same generation or earlier.

    Args:
        codes: int64 of shape (rows,), ascending: which item a row is of; rows of an item ascend
            by version.
        current_from: int64 of shape (rows,), at least 0.

    Returns:
        bool of shape (rows,). The newest row of every item is kept.
    """
    if not len(codes):
        return np.zeros(0, np.bool_)
    # Items ascend, so an item's values lie below those of all later items: one running minimum
    # from the end restarts at every item by itself.
    spread = codes * (int(current_from.max()) + 1) + current_from
    later = np.minimum.accumulate(spread[::-1])[::-1]
    kept = np.ones(len(codes), np.bool_)
    kept[:-1] = spread[:-1] < later[1:]
    return kept


def fold_items(rows: pa.Table) -> pa.Table:
    """Return the rows of `items` that still decide something, by item and version.

    A row that occurs twice is kept once.
    """
    rows = rows.sort_by([("item_id", "ascending"), ("version", "ascending")])
    if not rows.num_rows:
        return rows
    codes = item_codes(rows)
    starts = numbers(rows["current_from"])
    return rows.take(integers(np.flatnonzero(kept_rows(codes, starts))))


def item_codes(rows: pa.Table) -> Int64s:
    """Return int64 of shape (rows,): 0.. by distinct item, for rows sorted by item."""
    ids = rows["item_id"].combine_chunks()
    changed = np.ones(rows.num_rows, np.int64)
    changed[0] = 0
    if rows.num_rows > 1:
        differs = pc.not_equal(ids[1:], ids[:-1])
        changed[1:] = numbers(differs.cast(pa.int64()))
    return np.cumsum(changed)


@dataclass(frozen=True, slots=True)
class Standing:
    """What decides whether an item is live at a generation."""

    status: ItemStatus
    base_id: BaseId
    current_revision: RevisionId | None


class ItemFold:
    """The folded `items`: for each item its newest state and the rows older generations need."""

    def __init__(self, rows: pa.Table) -> None:
        """Fold rows, in any order, as the body; the overlay is empty."""
        body = fold_items(rows.select(ITEMS_SCHEMA.names))
        codes = item_codes(body) if body.num_rows else np.zeros(0, np.int64)
        places = np.arange(codes[-1] + 1 if len(codes) else 0)
        self._ends: Int64s = np.searchsorted(codes, places, "right").astype(np.int64)
        self._body = ItemRows(body)
        newest = body["item_id"].combine_chunks().take(integers(self._ends - 1))
        self._index = HashIndex(newest.to_pylist())
        self._overlay: Mapping[ItemId, tuple[ItemState, ...]] = {}
        self._new = 0

    def __len__(self) -> int:
        return len(self._ends) + self._new

    def with_rows(self, rows: pa.Table) -> ItemFold:
        """Return the fold of these rows, in any order, on top of what is known."""
        if not rows.num_rows:
            return self
        if len(self._overlay) + rows.num_rows > max(_MIN_OVERLAY, len(self._ends) // 8):
            return ItemFold(pa.concat_tables([self.table(), rows.select(ITEMS_SCHEMA.names)]))
        overlay = dict(self._overlay)
        new = self._new
        ordered = rows.select(ITEMS_SCHEMA.names).sort_by("version").to_pylist()
        for state in map(item_of, ordered):
            held = overlay.get(state.item_id)
            if held is None:
                held = tuple(self._stack(state.item_id))
                new += not held
            overlay[state.item_id] = pushed(held, state)
        fold = object.__new__(ItemFold)
        fold._body, fold._ends, fold._index = self._body, self._ends, self._index
        fold._overlay, fold._new = overlay, new
        return fold

    def table(self) -> pa.Table:
        """Return every row that still decides something, in the schema of `items`."""
        body = self._body.table()
        if not self._overlay:
            return body
        renewed = strings(self._overlay)
        body = body.filter(pc.invert(pc.is_in(body["item_id"], renewed)))
        states = [state for stack in self._overlay.values() for state in stack]
        return pa.concat_tables([body, rows_of(states, ITEMS_SCHEMA)])

    def newest(self, item: ItemId) -> ItemState | None:
        """Return an item's newest state, or None when it is not known."""
        stack = self._overlay.get(item)
        if stack is not None:
            return stack[-1]
        rows = self._rows(item)
        return self._body.state(rows[-1]) if rows else None

    def standing(self, item: ItemId, generation: int) -> Standing | None:
        """Return what decides whether an item is live at a generation; None: it is not known.

        Its current revision there is that of the highest-version row with `current_from` <=
        generation; status and base are those of the newest row.
        """
        stack = self._overlay.get(item)
        if stack is not None:
            started = (s.current_revision for s in reversed(stack) if s.current_from <= generation)
            return Standing(stack[-1].status, stack[-1].base_id, next(started, None))
        rows, value = self._rows(item), self._body.value
        if not rows:
            return None
        revisions = (
            value("current_revision", row)
            for row in reversed(rows)
            if value("current_from", row) <= generation
        )
        status, base = value("status", rows[-1]), value("base_id", rows[-1])
        return Standing(status, base, next(revisions, None))

    def states(self) -> Iterator[ItemState]:
        """Yield every item's newest state, by item id within the body, then within the overlay."""
        for state in self._body.states(self._ends - 1):
            if state.item_id not in self._overlay:
                yield state
        for item in sorted(self._overlay):
            yield self._overlay[item][-1]

    def _rows(self, item: ItemId) -> range:
        """Return the positions of an item's rows in the body, ascending by version."""
        for place in self._index.rows(item):
            end = int(self._ends[place])
            if self._body.value("item_id", end - 1) == item:
                return range(int(self._ends[place - 1]) if place else 0, end)
        return range(0)

    def _stack(self, item: ItemId) -> Iterator[ItemState]:
        return map(self._body.state, self._rows(item))


def pushed(stack: tuple[ItemState, ...], state: ItemState) -> tuple[ItemState, ...]:
    """Return the rows that count once `state` has come after those of `stack`."""
    if stack and state.version <= stack[-1].version:
        return stack
    return (*(held for held in stack if held.current_from < state.current_from), state)


class PublicationFold:
    """The folded `publications`: first publications, and what was withdrawn."""

    def __init__(self, rows: pa.Table) -> None:
        """Fold rows, in any order, as the body; the overlay is empty."""
        rows = rows.select(PUBLICATIONS_SCHEMA.names)
        gone = rows.filter(pc.is_in(rows["kind"], strings(["withdrawn"])))
        self.withdrawn = frozenset(
            zip(gone["item_id"].to_pylist(), gone["revision_id"].to_pylist(), strict=True)
        )
        rows = rows.filter(pc.is_in(rows["kind"], strings(["published"])))
        # RFC 3339 in UTC sorts as text; the hash index is stable, so the first publication wins.
        rows = rows.sort_by([("at", "ascending")])
        self._items: Any = rows["item_id"].combine_chunks()
        self._revisions: Any = rows["revision_id"].combine_chunks()
        self._at: Any = rows["at"].combine_chunks().dictionary_encode()
        keys = zip(self._items.to_pylist(), self._revisions.to_pylist(), strict=True)
        self._index = HashIndex(keys)
        self._overlay: Mapping[tuple[ItemId, RevisionId], str] = {}

    def with_rows(self, rows: pa.Table) -> PublicationFold:
        """Return the fold of these rows on top of what is known."""
        if not rows.num_rows:
            return self
        if len(self._overlay) + rows.num_rows > max(_MIN_OVERLAY, len(self._items) // 8):
            return PublicationFold(pa.concat_tables([self._table(), rows]))
        overlay = dict(self._overlay)
        gone: set[tuple[ItemId, RevisionId]] = set()
        for row in rows.to_pylist():
            key = (ItemId(row["item_id"]), RevisionId(row["revision_id"]))
            if row["kind"] == "withdrawn":
                gone.add(key)
            else:
                known = self.published_at(*key) or row["at"]
                overlay[key] = min(known, row["at"], overlay.get(key, row["at"]))
        fold = object.__new__(PublicationFold)
        fold.withdrawn = self.withdrawn | gone
        fold._items, fold._revisions, fold._at = self._items, self._revisions, self._at
        fold._index, fold._overlay = self._index, overlay
        return fold

    def published_at(self, item: ItemId, revision: RevisionId) -> str | None:
        """Return when a revision was first published, or None."""
        at = self._overlay.get((item, revision))
        if at is not None:
            return at
        for row in self._index.rows((item, revision)):
            if self._key(row) == (item, revision):
                return str(self._at[row].as_py())
        return None

    def publications(self) -> Iterator[Publication]:
        """Yield every first publication, each once, in no particular order."""
        for (item, revision), at in self._overlay.items():
            yield Publication(item, revision, at)
        seen: set[tuple[ItemId, RevisionId]] = set()
        for row in range(len(self._items)):
            key = self._key(row)
            if key not in self._overlay and key not in seen:
                seen.add(key)
                yield Publication(*key, self._at[row].as_py())

    def _key(self, row: int) -> tuple[ItemId, RevisionId]:
        return ItemId(self._items[row].as_py()), RevisionId(self._revisions[row].as_py())

    def _table(self) -> pa.Table:
        published = [
            (p.item_id, p.revision_id, "published", p.published_at) for p in self.publications()
        ]
        # When a revision was withdrawn decides nothing: a fold keeps only that it was.
        withdrawn = [(item, revision, "withdrawn", "") for item, revision in sorted(self.withdrawn)]
        names = PUBLICATIONS_SCHEMA.names
        rows = [dict(zip(names, row, strict=True)) for row in (*published, *withdrawn)]
        return table_of(rows, PUBLICATIONS_SCHEMA)
