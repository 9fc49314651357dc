"""Every passage of a generation as columns, read from the files that its segments consist of.

The files are read here once more, by other code than the product searches with, and checked
against Lucene's own counts: a reference that inherits a fault could not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.errors import SegmentRefusedError
from engine.ids import BaseId, ItemId, RevisionId
from engine.index.languages import FIELD_NAMES
from engine.index.postings import RawPostings

Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
Float64 = NDArray[np.float64]

Current = Callable[[ItemId], RevisionId | None]
"""Which revision of an item is live, if any."""


def length_of_byte(byte: int) -> int:
    """Return the passage length that Lucene's length byte stands for.

    0 to 23 stand for themselves. Above, with v = byte - 24: values below 8 add themselves to 24;
    else the three low bits of v follow a leading 1, shifted left by v // 8 - 1 places, and 24 is
    added (Lucene, `SmallFloat.byte4ToInt`).
    """
    if byte < 24:
        return byte
    exponent, fraction = divmod(byte - 24, 8)
    return 24 + (fraction if exponent == 0 else (8 + fraction) << (exponent - 1))


_LENGTHS = np.array([length_of_byte(byte) for byte in range(256)], np.int64)


@dataclass(frozen=True, slots=True)
class Passages:
    """The passages of a generation, dead ones too. Columns have shape (n,); a row is one passage.

    Attributes:
        segments, ordinals: where it lies: index of the folder, and ordinal in the segment.
        items: index into `item_ids`; a smaller one is a smaller id.
        entries: index into `revisions`.
        starts, ends: its range in the stored content, in code points.
        fields: its language field, an index into `FIELD_NAMES`.
        tokens: how many it has.
        lengths: its length as the byte that Lucene stores has it.
        bases: index into `base_ids`.
        live: whether it belongs to the live revision of a published item.
        item_ids, base_ids: distinct, ascending.
        codes: of each item id, its index in `item_ids`.
        revisions: of each entry.
        texts: of each segment, by ordinal.
    """

    segments: NDArray[np.int32]
    ordinals: NDArray[np.int32]
    items: NDArray[np.int64]
    entries: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    fields: NDArray[np.int64]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]
    bases: NDArray[np.int64]
    live: Mask
    item_ids: tuple[ItemId, ...]
    base_ids: tuple[BaseId, ...]
    codes: Mapping[str, int]
    revisions: tuple[RevisionId, ...]
    texts: tuple[pa.ChunkedArray[Any], ...]

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self.items)

    def text(self, row: int) -> str:
        """Return the text of a passage."""
        return str(self.texts[self.segments[row]][int(self.ordinals[row])].as_py())

    def item_code(self, item: str) -> int | None:
        """Return the index of an item id, or None when no passage belongs to it."""
        return self.codes.get(item)

    def readable(self, bases: frozenset[BaseId]) -> Mask:
        """Return the live passages of some bases, bool of shape (n,)."""
        allowed = np.array([base in bases for base in self.base_ids], np.bool_)
        found: Mask = self.live & allowed[self.bases] if len(allowed) else self.live
        return found


def _table(path: Path) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except (pa.ArrowException, OSError) as error:
        raise SegmentRefusedError(path.parent.name, f"{path.name} cannot be read") from error


def _integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table[name].to_numpy()).astype(np.int64)


def _lengths(folder: Path, postings: RawPostings, passages: pa.Table) -> NDArray[np.int64]:
    """Return the stored length of each passage, having compared what Lucene and Arrow count."""
    fields, tokens = _integers(passages, "field"), _integers(passages, "length")
    lengths = np.zeros(len(fields), np.int64)
    for code, name in enumerate(FIELD_NAMES):
        counted = (fields == code) & (tokens > 0)
        told = (int(np.count_nonzero(counted)), int(tokens[counted].sum()))
        if postings.totals(name) != told:
            reason = f"Lucene counts {postings.totals(name)} passages and tokens in {name}"
            raise SegmentRefusedError(folder.name, f"{reason}, passages.arrow {told}")
        ordinals, kept = postings.length_bytes(name)
        if not (fields[ordinals] == code).all():
            raise SegmentRefusedError(folder.name, f"a passage of another field is in {name}")
        lengths[ordinals] = _LENGTHS[kept]
    return lengths


def read_passages(
    folders: Sequence[Path], postings: Sequence[RawPostings], current: Current
) -> Passages:
    """Read the passages of some segments.

    Args:
        folders: one a segment, in any fixed order.
        postings: the Lucene index of each.
        current: says which revision of an item is live.

    Raises:
        SegmentRefusedError: a file cannot be read, or Lucene and Arrow disagree.
    """
    passages = [_table(folder / "passages.arrow") for folder in folders]
    entries = [_table(folder / "entries.arrow") for folder in folders]
    firsts = np.cumsum([0, *(table.num_rows for table in entries)])
    held = {
        name: [str(value) for table in entries for value in table[name].to_pylist()]
        for name in ("item_id", "revision_id", "base_id")
    }
    item_ids, items = _coded(held["item_id"])
    base_ids, bases = _coded(held["base_id"])
    keys = zip(held["item_id"], held["revision_id"], strict=True)
    live = np.array([current(ItemId(item)) == revision for item, revision in keys], np.bool_)

    def column(name: str) -> NDArray[np.int64]:
        return _joined([_integers(table, name) for table in passages])

    counts = [table.num_rows for table in passages]
    entry = column("entry") + np.repeat(firsts[:-1], counts)
    return Passages(
        segments=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        ordinals=_joined([np.arange(count) for count in counts]).astype(np.int32),
        items=items[entry],
        entries=entry,
        starts=column("char_start"),
        ends=column("char_end"),
        fields=column("field"),
        tokens=column("length"),
        lengths=_joined(list(map(_lengths, folders, postings, passages))),
        bases=bases[entry],
        live=live[entry],
        item_ids=tuple(ItemId(item) for item in item_ids),
        base_ids=tuple(BaseId(base) for base in base_ids),
        codes={item: code for code, item in enumerate(item_ids)},
        revisions=tuple(RevisionId(revision) for revision in held["revision_id"]),
        texts=tuple(table["text"] for table in passages),
    )


def _joined(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _coded(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct names, ascending by code point, and each name's index among them."""
    distinct = sorted(set(names))
    codes = {name: code for code, name in enumerate(distinct)}
    return distinct, np.array([codes[name] for name in names], np.int64)
