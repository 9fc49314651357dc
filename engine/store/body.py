"""The rows of folded items, held compactly: Arrow texts, coded columns, numbers as numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from engine.store.columns import Int64s, integers, numbers
from engine.store.states import ITEMS_SCHEMA, ItemState

ITEM_CODED = ("base_id", "status", "source_type", "published_at", "changed_at")
"""Columns of `items` with few values."""
_CHUNK_ROWS = 8192


class _Texts:
    """A column of texts, each as it is."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def value(self, row: int) -> Any:
        return self._column[row].as_py()

    def values(self, rows: Int64s) -> list[Any]:
        taken: list[Any] = self._column.take(integers(rows)).to_pylist()
        return taken

    def arrow(self) -> Any:
        return self._column


class _Coded:
    """A column of few different texts, None among them: a number a row."""

    def __init__(self, column: Any) -> None:
        coded = column.dictionary_encode("encode")  # None gets a number as well
        self._texts: list[Any] = coded.dictionary.to_pylist()
        self._codes = numbers(coded.indices.cast(pa.int64())).astype(np.int32)
        self._encoded = coded

    def value(self, row: int) -> Any:
        return self._texts[self._codes[row]]

    def values(self, rows: Int64s) -> list[Any]:
        return [self._texts[code] for code in self._codes[rows].tolist()]

    def arrow(self) -> Any:
        return self._encoded.dictionary_decode()


class _Numbers:
    """A column of int64."""

    def __init__(self, column: Any) -> None:
        self._numbers = numbers(column)

    def value(self, row: int) -> Any:
        return int(self._numbers[row])

    def values(self, rows: Int64s) -> list[Any]:
        taken: list[Any] = self._numbers[rows].tolist()
        return taken

    def arrow(self) -> Any:
        return integers(self._numbers)


class ItemRows:
    """Rows of `items` by position. Immutable."""

    def __init__(self, rows: pa.Table) -> None:
        """Hold rows of the schema of `items`, in their order."""
        self._columns: dict[str, _Texts | _Coded | _Numbers] = {}
        for field in ITEMS_SCHEMA:
            kind = _Coded if field.name in ITEM_CODED else _Texts
            column = rows[field.name].combine_chunks()
            held = _Numbers(column) if field.type == pa.int64() else kind(column)
            self._columns[field.name] = held

    def value(self, name: str, row: int) -> Any:
        """Return one value."""
        return self._columns[name].value(row)

    def state(self, row: int) -> ItemState:
        """Return the state that a row holds."""
        return ItemState(*(column.value(row) for column in self._columns.values()))

    def states(self, rows: Int64s) -> Iterator[ItemState]:
        """Yield the states of some rows (int64 of shape (n,)), in their order."""
        for start in range(0, len(rows), _CHUNK_ROWS):
            chunk = rows[start : start + _CHUNK_ROWS]
            columns: Sequence[list[Any]] = [c.values(chunk) for c in self._columns.values()]
            for values in zip(*columns, strict=True):
                yield ItemState(*values)

    def table(self) -> pa.Table:
        """Return the rows in the schema of `items`."""
        columns = [column.arrow() for column in self._columns.values()]
        return pa.Table.from_arrays(columns, schema=ITEMS_SCHEMA)
