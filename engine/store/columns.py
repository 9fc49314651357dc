"""Arrow columns from Python values and back to numbers, without `pa.array` and `to_numpy`.

Those import pandas when it is installed: half a second and 60 MB in each process, for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Int64s = np.ndarray[tuple[int], np.dtype[np.int64]]


def strings(values: Iterable[str | None]) -> pa.StringArray:
    """Return texts as an Arrow column.

    Raises:
        pa.ArrowCapacityError: they have 2 GiB or more together.
    """
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    column: pa.StringArray = builder.finish()
    return column


def integers(values: Int64s) -> Any:
    """Return int64 numbers of shape (rows,) as an Arrow column that shares their memory."""
    buffer = pa.py_buffer(np.ascontiguousarray(values, np.int64))
    column: Any = pa.Array.from_buffers(pa.int64(), len(values), [None, buffer])
    return column


def numbers(column: Any) -> Int64s:
    """Return an int64 Arrow column (an array or chunked array) without nulls as numpy, (rows,)."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = np.frombuffer(array.buffers()[1] or b"", np.int64)
    return values[array.offset : array.offset + len(array)]


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows as a table of a schema of string and int64 columns, in their order."""
    columns = [
        integers(np.fromiter((row[field.name] for row in rows), np.int64, len(rows)))
        if field.type == pa.int64()
        else strings(row[field.name] for row in rows)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
