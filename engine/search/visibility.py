"""What of a segment a query may see: live entries, readable bases, and the counts of both.

Nothing here is stored: it follows from the pinned generation, the catalog and the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.ids import BaseId, ItemId, RevisionId
from engine.index.languages import FIELD_NAMES
from engine.index.lexical import LexicalFilter
from engine.index.segment import Segment, strings
from engine.search.cache import BoundedCache
from engine.search.request import Readable
from engine.store.catalog import Catalog

Mask = NDArray[np.bool_]

_KEPT_STATES = 4
_KEPT_FILTERS = 32


@dataclass(frozen=True, slots=True)
class View:
    """What a query is pinned to, and what its caller may read."""

    generation: int
    catalog: Catalog
    readable: Readable


@dataclass(frozen=True, slots=True)
class Visible:
    """The passages of one segment that a query may see.

    Attributes:
        allowed: bool of shape (passages,), or None: all.
        lexical: the same for Lucene.
        passages: how many have a token, by language field.
        tokens: their tokens, by language field.
    """

    allowed: Mask | None
    lexical: LexicalFilter
    passages: Mapping[str, int]
    tokens: Mapping[str, int]

    @property
    def count(self) -> int:
        """Return how many passages may be seen."""
        return self.lexical.count


class VisibleSegment:
    """A segment and what queries may see of it. Thread-safe; remembers a bounded number."""

    def __init__(self, segment: Segment) -> None:
        """Take an open segment; it is closed by whoever opened it."""
        self.segment = segment
        self.items = [ItemId(item) for item in strings(segment.entries["item_id"])]
        self._revisions = [RevisionId(name) for name in strings(segment.entries["revision_id"])]
        self._entries: dict[ItemId, list[int]] = {}
        for entry, item in enumerate(self.items):
            self._entries.setdefault(item, []).append(entry)
        self._live: BoundedCache[tuple[int, str], Mask] = BoundedCache(_KEPT_STATES)
        self._newest: dict[int, tuple[Catalog, Mask]] = {}
        self._visible: BoundedCache[tuple[int, str, Readable, BaseId | None], Visible] = (
            BoundedCache(_KEPT_FILTERS)
        )
        self._lock = threading.Lock()

    def visible(self, view: View, base: BaseId | None = None) -> Visible:
        """Return what a query may see.

        Args:
            view: the pinned state and the readable bases.
            base: narrows to one base.
        """
        key = (view.generation, view.catalog.version, view.readable, base)
        known = self._visible.get(key)
        if known is not None:
            return known
        found = self._compute(view, base)
        self._visible.put(key, found)
        return found

    def _compute(self, view: View, base: BaseId | None) -> Visible:
        segment = self.segment
        entries = self._live_entries(view.generation, view.catalog)
        if view.readable is not None or base is not None:
            allowed_bases = np.array(
                [
                    (view.readable is None or name in view.readable) and base in (None, name)
                    for name in segment.bases
                ],
                np.bool_,
            )
            entries = entries & allowed_bases[segment.entry_base]
        allowed: Mask | None = None if entries.all() else entries[segment.entry]
        lexical = segment.lexical.filter(allowed)
        counted = segment.length > 0
        if allowed is not None:
            counted = counted & allowed
        fields, kinds = segment.field[counted], len(FIELD_NAMES)
        passages = np.bincount(fields, minlength=kinds)
        tokens = np.bincount(fields, weights=segment.length[counted], minlength=kinds)
        return Visible(
            allowed,
            lexical,
            {name: int(passages[code]) for code, name in enumerate(FIELD_NAMES) if passages[code]},
            {name: int(tokens[code]) for code, name in enumerate(FIELD_NAMES) if passages[code]},
        )

    def _live_entries(self, generation: int, catalog: Catalog) -> Mask:
        key = (generation, catalog.version)
        with self._lock:
            known = self._live.get(key)
            if known is not None:
                return known
            live = self._advanced(generation, catalog)
            self._live.put(key, live)
            self._newest[generation] = (catalog, live)
            for old in sorted(self._newest)[:-_KEPT_STATES]:
                del self._newest[old]
            return live

    def _advanced(self, generation: int, catalog: Catalog) -> Mask:
        """Return which entries are live, from the view computed last where that is possible."""
        before = self._newest.get(generation)
        changed = None if before is None else catalog.changes_since(before[0])
        if before is None or changed is None:
            everything = range(len(self.items))
            return np.array([self._is_live(e, generation, catalog) for e in everything], np.bool_)
        touched = [entry for item in changed for entry in self._entries.get(item, ())]
        if not touched:
            return before[1]
        live = before[1].copy()
        live[touched] = [self._is_live(entry, generation, catalog) for entry in touched]
        return live

    def _is_live(self, entry: int, generation: int, catalog: Catalog) -> bool:
        return catalog.current_revision(self.items[entry], generation) == self._revisions[entry]
