"""Turning rows of JSONL and Parquet into texts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.reading import Reading, Refusal, list_sources, read_source

ENGLISH = "The ferry crosses the river every morning."


def read(path: Path, language: str | None = None) -> list[Reading | Refusal]:
    (source,) = list_sources(path)
    return list(read_source(source, language))


def jsonl(folder: Path, *lines: str | bytes | dict[str, Any], name: str = "rows.jsonl") -> Path:
    encoded = [
        line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line))
        for line in lines
    ]
    data = b"".join(
        (line if isinstance(line, bytes) else line.encode()) + b"\n" for line in encoded
    )
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def reasons(found: list[Reading | Refusal]) -> list[tuple[str, str]]:
    return [(each.place, each.reason) for each in found if isinstance(each, Refusal)]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.ndjson"])
def test_documented_columns_are_read(tmp_path: Path, name: str) -> None:
    full = {
        "id": "item-1",
        "revision_id": "r1",
        "title": "Ferries",
        "content": ENGLISH,
        "language": "fr",
        "source_type": "wiki",
        "source_ref": "wiki/ferries",
        "other": [1],
    }
    least = {"text": ENGLISH}
    first, second = read(jsonl(tmp_path, full, least, name=name))
    assert first == Reading(
        f"{name}:1", "Ferries", ENGLISH, "fr", "wiki", "wiki/ferries", "item-1", "r1"
    )
    assert second == Reading(f"{name}:2", ENGLISH, ENGLISH, "en", "record", f"{name}#2")


def test_a_row_with_an_id_has_a_source_ref_that_does_not_depend_on_its_line(
    tmp_path: Path,
) -> None:
    found = read(jsonl(tmp_path, {"text": "a"}, {"id": 7, "text": ENGLISH}))
    assert isinstance(found[1], Reading)
    assert (found[1].item_id, found[1].source_ref) == ("7", "rows.jsonl#7")


def test_a_beir_row_is_named_by_its_id(tmp_path: Path) -> None:
    row = {"_id": "x0-1", "title": "", "text": ENGLISH, "lang": "de"}
    (found,) = read(jsonl(tmp_path, row, name="corpus.jsonl"))
    assert found == Reading("corpus.jsonl:1", ENGLISH, ENGLISH, "de", "record", "x0-1")


def test_the_language_of_a_row_wins_over_the_one_given_and_that_over_detection(
    tmp_path: Path,
) -> None:
    path = jsonl(tmp_path, {"text": ENGLISH, "lang": "de"}, {"text": ENGLISH, "lang": None})
    languages = [found.language for found in read(path, "nl") if isinstance(found, Reading)]
    assert languages == ["de", "nl"]


def test_each_bad_line_is_refused_by_number_and_the_others_are_read(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        b"\xef\xbb\xbf" + json.dumps({"text": ENGLISH}).encode(),
        "{not json",
        "",
        "[1, 2]",
        b'{"text": "\xff"}',
        '{"text": "lone \\ud800 surrogate"}',
        '{"text": "nul \\u0000"}',
        {"title": "no content"},
        {"text": 12},
        {"text": ENGLISH, "title": ["x"]},
        {"text": ENGLISH, "id": True},
        {"text": "  "},
        {"text": ENGLISH, "title": "x" * 501},
        {"text": ENGLISH, "id": "bad\u0007id"},
        {"text": ENGLISH, "language": "not a language"},
        {"text": ENGLISH},
    )
    found = read(path)
    assert [each.place for each in found if isinstance(each, Reading)] == [
        "rows.jsonl:1",
        "rows.jsonl:16",
    ]
    assert reasons(found) == [
        ("rows.jsonl:2", "line is not JSON"),
        ("rows.jsonl:4", "line is not a JSON object"),
        ("rows.jsonl:5", "line is not UTF-8"),
        ("rows.jsonl:6", "line has a lone surrogate"),
        ("rows.jsonl:7", "content must not contain NUL"),
        ("rows.jsonl:8", "there is no column content or text"),
        ("rows.jsonl:9", "column text is not text"),
        ("rows.jsonl:10", "column title is not text"),
        ("rows.jsonl:11", "column id is not text"),
        ("rows.jsonl:12", "content is empty"),
        ("rows.jsonl:13", "title must have 1..500 characters, has 501"),
        ("rows.jsonl:14", "id must be valid Unicode without control characters"),
        ("rows.jsonl:15", "language must be a language code such as en, zh or und"),
    ]


def test_a_truncated_gzip_gives_its_whole_lines_and_one_refusal(tmp_path: Path) -> None:
    rows = [{"id": str(n), "text": f"{ENGLISH} {n * 7919} {hash(n)}"} for n in range(20_000)]
    path = jsonl(tmp_path, *rows, name="rows.jsonl.gz")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    found = read(path, "en")
    texts = [each.content for each in found if isinstance(each, Reading)]
    assert texts == [row["text"] for row in rows[: len(texts)]]
    assert len(texts) > 1_000
    place = f"rows.jsonl.gz:{len(texts) + 1}"
    assert reasons(found) == [(place, "compressed data is damaged or ends early")]


def test_what_is_no_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b'{"text": "plain"}\n')
    assert reasons(read(path)) == [("rows.jsonl.gz:1", "compressed data is damaged or ends early")]


def test_a_line_without_an_end_is_read_only_if_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"text": "whole"}\n{"text": "cut of')
    found = read(path, "en")
    assert isinstance(found[0], Reading)
    assert reasons(found) == [("rows.jsonl:2", "line is not JSON")]


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    path = jsonl(tmp_path, *[{"text": ENGLISH} for _ in range(1_000)])
    (source,) = list_sources(path)
    rows = read_source(source, "en")
    assert next(rows).place == "rows.jsonl:1"
    rows.close()  # type: ignore[attr-defined] # a generator: it holds the file


# ----------------------------------------------------------------------------------- Parquet


def parquet(folder: Path, columns: dict[str, Any]) -> Path:
    path = folder / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=50)
    return path


def test_parquet_has_the_same_columns(tmp_path: Path) -> None:
    path = parquet(
        tmp_path,
        {
            "id": pa.array([1, 2, None]),
            "title": ["Ferries", None, "  "],
            "content": pa.array([ENGLISH, None, ENGLISH], pa.large_string()),
            "lang": pa.array(["fr", "fr", None]).dictionary_encode(),
            "other": [[1], [2], [3]],
        },
    )
    assert read(path) == [
        Reading("rows.parquet:1", "Ferries", ENGLISH, "fr", "record", "rows.parquet#1", "1"),
        Refusal("rows.parquet:2", "there is no column content or text"),
        Reading("rows.parquet:3", ENGLISH, ENGLISH, "en", "record", "rows.parquet#3"),
    ]


@pytest.mark.parametrize(
    ("columns", "place", "reason"),
    [
        ({"title": ["x"]}, "rows.parquet", "there is no column content or text"),
        ({"text": [1.5]}, "rows.parquet:1", "column text is not text"),
        ({"text": [b"bytes"]}, "rows.parquet:1", "column text is not text"),
    ],
)
def test_parquet_of_wrong_columns_is_refused(
    tmp_path: Path, columns: dict[str, Any], place: str, reason: str
) -> None:
    assert reasons(read(parquet(tmp_path, columns))) == [(place, reason)]


def test_a_parquet_row_that_is_not_utf8_is_refused_alone(tmp_path: Path) -> None:
    buffers = pa.array([ENGLISH.encode(), b"\xff\xfe", ENGLISH.encode()], pa.binary()).view(
        pa.string()
    )
    found = read(parquet(tmp_path, {"text": buffers}))
    assert [type(each) for each in found] == [Reading, Refusal, Reading]
    assert reasons(found) == [("rows.parquet:2", "row is not UTF-8")]


def test_damaged_parquet_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"text": [f"{ENGLISH} {n}" for n in range(500)]})
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert reasons(read(path)) == [("rows.parquet", "is not Parquet, or is damaged")]
    path.write_bytes(b"PAR1 nothing PAR1")
    assert reasons(read(path)) == [("rows.parquet", "is not Parquet, or is damaged")]


def test_damage_inside_parquet_ends_the_file_with_one_refusal(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"text": [f"{ENGLISH} {n}" for n in range(500)]})
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(4).column(0).data_page_offset
    data[start : start + 40] = b"\xff" * 40
    path.write_bytes(bytes(data))
    found = read(path, "en")
    assert 0 < sum(isinstance(each, Reading) for each in found) <= 200
    (only,) = reasons(found)
    assert only[1] == "is not Parquet, or is damaged"
