"""Reading files of many texts: JSONL (also compressed by gzip) and Parquet, a row at a time."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.reading_rows import COLUMNS, CONTENT_COLUMNS, Reading, Refusal, read_record

JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")

_MAX_LINE_BYTES = 64_000_000
_BATCH_ROWS = 64


def read_jsonl(path: Path, ref: str, language: str | None) -> Iterator[Reading | Refusal]:
    """Read a text a line; blank lines are passed over. Memory holds one line.

    Yields:
        In the order of the lines, one outcome each. Where compressed data is damaged, a refusal of
        that line, and no more.
    """
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(_lines(file), start=1):
                if line is None:
                    reason = f"line is longer than {_MAX_LINE_BYTES} bytes"
                    yield Refusal(f"{ref}:{number}", reason)
                    continue
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield _read_line(line, ref, number, language)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        yield Refusal(f"{ref}:{number + 1}", "compressed data is damaged or ends early")
    except OSError as error:
        yield Refusal(
            f"{ref}:{number + 1}", f"cannot be read: {error.strerror or type(error).__name__}"
        )


def _opened(path: Path) -> gzip.GzipFile | BinaryIO:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _lines(file: gzip.GzipFile | BinaryIO) -> Iterator[bytes | None]:
    """Yield lines; None for one that is too long."""
    while line := file.readline(_MAX_LINE_BYTES):
        if len(line) < _MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (rest := file.readline(_MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


def _read_line(line: bytes, ref: str, number: int, language: str | None) -> Reading | Refusal:
    place = f"{ref}:{number}"
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Refusal(place, _json_fault(line, error))
    if not isinstance(record, dict):
        return Refusal(place, "line is not a JSON object")
    return read_record(record, ref, number, language)


def _json_fault(line: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "line is not UTF-8"
    if "surrogate" in error.msg:
        return "line has a lone surrogate"
    return "line is not JSON"


def read_parquet(path: Path, ref: str, language: str | None) -> Iterator[Reading | Refusal]:
    """Read a text a row, a few rows at a time.

    Yields:
        In the order of the rows, one outcome each. Where the file is damaged, a refusal of that
        row, and no more.
    """
    number = 1
    try:
        with pq.ParquetFile(path) as file:
            columns = [name for name in COLUMNS if name in file.schema_arrow.names]
            if not set(columns) & set(CONTENT_COLUMNS):
                yield Refusal(ref, "there is no column content or text")
                return
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                for row in range(batch.num_rows):
                    yield _read_row(batch.slice(row, 1), ref, number, language)
                    number += 1
    except (pa.ArrowException, OSError):
        place = ref if number == 1 else f"{ref}:{number}"
        yield Refusal(place, "is not Parquet, or is damaged")


def _read_row(
    batch: pa.RecordBatch, ref: str, number: int, language: str | None
) -> Reading | Refusal:
    try:
        record: dict[str, Any] = batch.to_pylist()[0]
    except UnicodeDecodeError:
        return Refusal(f"{ref}:{number}", "row is not UTF-8")
    return read_record(record, ref, number, language)
