"""Parquet files of tables: written sorted, in row groups of bounded text; read by row group."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.errors import StoreError
from engine.store.columns import Int64s, numbers
from engine.store.storage import fsync_file, fsync_folder, make_folder, write_fault

ROW_GROUP_BYTES = 1 << 20
"""Text bytes after which a row group ends: about what one addressed read decodes."""
MAX_ROW_GROUP_ROWS = 65_536


@dataclass(slots=True)
class ReadCounters:
    """What was read from Parquet files since the counters were made. For tests and metrics."""

    files_opened: int = 0
    row_groups: int = 0
    bytes: int = 0


def row_group_starts(text_bytes: Int64s) -> list[int]:
    """Return where row groups start, first row 0, so that each has about `ROW_GROUP_BYTES`.

    Args:
        text_bytes: int64 of shape (rows,), the text bytes of each row.

    Returns:
        Increasing row numbers. A row larger than the bound makes a group of its own.
    """
    starts: list[int] = []
    held = rows = 0
    for row, size in enumerate(text_bytes.tolist()):
        if not starts or held + size > ROW_GROUP_BYTES or rows >= MAX_ROW_GROUP_ROWS:
            starts.append(row)
            held = rows = 0
        held += size
        rows += 1
    return starts


def write_parquet(path: Path, rows: pa.Table, text: str | None, coded: Sequence[str]) -> int:
    """Write a table to a new file, durably, and return its size in bytes.

    Args:
        path: a name that does not exist yet.
        rows: at least one row, in the order to keep.
        text: the column whose bytes bound a row group, or None.
        coded: columns of few values, to be dictionary-coded.

    Raises:
        StorageFullError: no space is left; the torn file is removed.
        StoreError: it cannot be written.
    """
    sizes = np.zeros(rows.num_rows, np.int64)
    if text is not None:
        sizes = numbers(pc.binary_length(rows[text]).cast(pa.int64()))
    starts = row_group_starts(sizes)
    try:
        make_folder(path.parent)
        with pq.ParquetWriter(
            path,
            rows.schema,
            compression="zstd",
            use_dictionary=list(coded),  # type: ignore[arg-type]  # the stub forgets lists
            store_schema=False,
        ) as writer:
            for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
                writer.write_table(rows.slice(start, end - start), row_group_size=end - start)
        fsync_file(path)
        fsync_folder(path.parent)
        return path.stat().st_size
    except OSError as error:
        path.unlink(missing_ok=True)
        raise write_fault(error, f"a file of {path.parent}") from error


class _Counted(io.FileIO):
    """A file that counts the bytes read from it."""

    def __init__(self, path: Path, counters: ReadCounters) -> None:
        super().__init__(path, "rb")
        self._counters = counters

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # type: ignore[override]  # the stub wants typing_extensions.Buffer
        count = super().readinto(buffer)
        self._counters.bytes += count
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(-1 if size is None else size)
        self._counters.bytes += len(data)
        return data


def open_parquet(
    path: Path, counters: ReadCounters, metadata: pq.FileMetaData | None = None
) -> pq.ParquetFile:
    """Open a file; close it with `close(force=True)` or use `read_groups`.

    Args:
        path: the file.
        counters: what to count bytes in.
        metadata: its footer, when known: it is then not read again.

    Raises:
        FileNotFoundError: it was removed meanwhile (by a vacuum).
        StoreError: it is not Parquet, or damaged.
    """
    stream = _Counted(path, counters)
    counters.files_opened += 1
    try:
        return pq.ParquetFile(pa.PythonFile(stream, "r"), metadata=metadata, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        stream.close()
        raise StoreError(f"{path} is damaged: {error}") from error


def read_groups(
    path: Path,
    counters: ReadCounters,
    groups: Sequence[int] | None,
    columns: Sequence[str],
    metadata: pq.FileMetaData | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield (row group number, its rows) for some row groups (None: all), in the given order.

    Raises:
        FileNotFoundError: the file was removed meanwhile.
        StoreError: it is damaged.
    """
    file = open_parquet(path, counters, metadata)
    try:
        for group in range(file.num_row_groups) if groups is None else groups:
            counters.row_groups += 1
            yield group, file.read_row_group(group, columns=list(columns))
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    finally:
        file.close(force=True)
