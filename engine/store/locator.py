"""Where in an immutable file a revision lies, from the file's id columns alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from engine.ids import ItemId, RevisionId
from engine.store.columns import Int64s
from engine.store.log import DataFile
from engine.store.parquet import ReadCounters, open_parquet

_ID_COLUMNS = ["item_id", "revision_id"]


@dataclass(frozen=True, slots=True)
class Place:
    """A row: its file, its row group, and its position in that row group."""

    file: DataFile
    group: int
    row: int


class FileIndex:
    """The ids of one file, as sorted 64-bit hashes of this process: 32 bytes a revision.

    Two keys may share a hash, so `find` returns candidates: whoever reads one compares its ids.
    """

    def __init__(
        self, file: DataFile, metadata: pq.FileMetaData, keys: list[tuple[ItemId, RevisionId]]
    ) -> None:
        """Index the keys of a file, in row order."""
        self.file = file
        self.metadata = metadata
        rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._group_ends: Int64s = np.cumsum(np.asarray(rows, np.int64))
        self._keys, self._key_rows = _sorted_hashes(keys)
        self._items, self._item_rows = _sorted_hashes(item for item, _ in keys)

    @classmethod
    def read(cls, file: DataFile, path: Path, counters: ReadCounters) -> FileIndex:
        """Read a file's id columns.

        Raises:
            FileNotFoundError: it was removed by a vacuum.
            StoreError: it is damaged.
        """
        opened = open_parquet(path, counters)
        try:
            counters.row_groups += opened.num_row_groups
            ids: Any = opened.read(columns=_ID_COLUMNS)
            keys = list(zip(*(ids[name].to_pylist() for name in _ID_COLUMNS), strict=True))
            return cls(file, opened.metadata, keys)
        finally:
            opened.close(force=True)

    def find(
        self, keys: Sequence[tuple[ItemId, RevisionId]]
    ) -> list[tuple[tuple[ItemId, RevisionId], Place]]:
        """Return, for some keys, each row of this file that may be of one of them."""
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        lows = np.searchsorted(self._keys, hashes, "left")
        highs = np.searchsorted(self._keys, hashes, "right")
        return [
            (keys[hit], self._place(int(self._key_rows[place])))
            for hit in np.flatnonzero(lows < highs).tolist()
            for place in range(int(lows[hit]), int(highs[hit]))
        ]

    def groups_of(self, item: ItemId) -> list[int]:
        """Return the row groups that may hold revisions of an item, ascending."""
        low = np.searchsorted(self._items, hash(item), "left")
        high = np.searchsorted(self._items, hash(item), "right")
        return sorted({self._place(int(row)).group for row in self._item_rows[low:high]})

    def _place(self, row: int) -> Place:
        group = int(np.searchsorted(self._group_ends, row, "right"))
        start = int(self._group_ends[group - 1]) if group else 0
        return Place(self.file, group, row - start)


def _sorted_hashes(keys: Iterable[Hashable]) -> tuple[Int64s, Int64s]:
    hashes = np.fromiter(map(hash, keys), np.int64)
    order = np.argsort(hashes, kind="stable")
    return hashes[order], order
