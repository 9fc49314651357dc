"""What reading gives: a text that can become a revision, or a refusal that says why it cannot."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.ids import id_fault
from engine.store.limits import (
    MAX_CONTENT_CHARS,
    MAX_NAME_CHARS,
    MAX_SOURCE_REF_CHARS,
    MAX_TITLE_CHARS,
    language_fault,
    text_fault,
)
from engine.text.language import detect

FILE = "file"
"""Source type of a text that is a file of its own."""

RECORD = "record"
"""Source type of a row of a JSONL or Parquet file, unless it names another."""

_DERIVED_TITLE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Reading:
    """A text that keeps every limit of the store.

    Attributes:
        place: the file, and the line or row in it, for a report.
        title: 1..500 characters.
        content: 1..5,000,000 characters, not blank, exactly as stored in the source.
        language: as given, else detected; `und` where nothing could be told.
        source_type: `file`, `record`, or as given.
        source_ref: the path below the directory, a record's `_id`, or as given.
        item_id: as given, or None: derived from base and source ref.
        revision_id: as given, or None: derived.
    """

    place: str
    title: str
    content: str
    language: str
    source_type: str
    source_ref: str
    item_id: str | None = None
    revision_id: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file, line or row that gives no text. Nothing of it was read into the store."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A text before it is checked; empty title and language None are filled in."""

    place: str
    title: str
    content: str
    language: str | None
    source_type: str
    source_ref: str
    item_id: str | None = None
    revision_id: str | None = None


def check(draft: Draft) -> Reading | Refusal:
    """Fill in what a draft leaves open, and check every limit.

    A blank title becomes the content's first line, cut to 200 characters. The reason of a refusal
    never repeats text of the source.
    """
    content = draft.content
    if not content.strip():
        return Refusal(draft.place, "content is empty")
    title = draft.title if draft.title.strip() else first_line(content) or draft.source_ref
    faults = {
        "content": text_fault(content, 1, MAX_CONTENT_CHARS),
        "title": text_fault(title, 1, MAX_TITLE_CHARS),
        "source type": text_fault(draft.source_type, 1, MAX_NAME_CHARS),
        "source ref": text_fault(draft.source_ref, 1, MAX_SOURCE_REF_CHARS),
        "language": language_fault(draft.language) if draft.language else None,
        "id": None if draft.item_id is None else id_fault(draft.item_id),
        "revision id": None if draft.revision_id is None else id_fault(draft.revision_id),
    }
    for name, fault in faults.items():
        if fault is not None:
            return Refusal(draft.place, f"{name} {fault}")
    return Reading(
        place=draft.place,
        title=title,
        content=content,
        language=draft.language or detect(content, title),
        source_type=draft.source_type,
        source_ref=draft.source_ref,
        item_id=draft.item_id,
        revision_id=draft.revision_id,
    )


def first_line(content: str) -> str:
    """Return the first line that says something, as a title; empty when none does."""
    for line in content[:10_000].splitlines():
        if any(character.isalnum() for character in line):
            return shortened(line)
    return ""


def shortened(title: str) -> str:
    """Return a found title on one line, without control characters, of at most 200 characters."""
    clean = "".join(" " if unicodedata.category(c) == "Cc" else c for c in title)
    return " ".join(clean.split())[:_DERIVED_TITLE_CHARS].strip()


# ---------------------------------------------------------------------------- rows of record files

CONTENT_COLUMNS = ("content", "text")
COLUMNS = (
    *("_id", "id", "title", "content", "text", "language", "lang"),
    *("source_type", "source_ref", "revision_id"),
)


def read_record(
    record: Mapping[str, Any], file_ref: str, number: int, language: str | None
) -> Reading | Refusal:
    """Read a row of JSONL or Parquet.

    Columns: `content` or `text` (required); `title`, `language` or `lang`, `source_type`,
    `source_ref`, `id` (the item), `revision_id` (optional). A row with `_id` is one of a BEIR
    corpus: its `_id` is the source ref. Without either, the source ref is the file's and, after
    `#`, the row's `id` or number. Other columns are ignored.

    Args:
        record: column to value; None is the same as absent.
        file_ref: the file, below the directory that is read.
        number: of the line or row, from 1.
        language: for a row that names none; None: detect.
    """
    place = f"{file_ref}:{number}"
    wrong = [name for name in COLUMNS if not _is_text(name, record.get(name))]
    if wrong:
        return Refusal(place, f"column {wrong[0]} is not text")
    values = {name: str(record[name]) for name in COLUMNS if record.get(name) is not None}
    content = values.get("content", values.get("text"))
    if content is None:
        return Refusal(place, "there is no column content or text")
    item = values.get("id")
    fallback = f"{file_ref}#{number if item is None else item}"
    return check(
        Draft(
            place=place,
            title=values.get("title", ""),
            content=content,
            language=values.get("language") or values.get("lang") or language,
            source_type=values.get("source_type") or RECORD,
            source_ref=values.get("source_ref") or values.get("_id") or fallback,
            item_id=item,
            revision_id=values.get("revision_id"),
        )
    )


def _is_text(name: str, value: Any) -> bool:
    if value is None or isinstance(value, str):
        return True
    return name in {"_id", "id"} and isinstance(value, int) and not isinstance(value, bool)
