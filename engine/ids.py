"""Identifiers: their types, their rules, how they are derived, and which shard owns an item.

An id is opaque text of 1..256 code points, valid Unicode, without control characters, not `.` or
`..`; it is compared exactly and never trimmed.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import NewType
from urllib.parse import quote

from engine.errors import InvalidValueError

BaseId = NewType("BaseId", str)
ItemId = NewType("ItemId", str)
RevisionId = NewType("RevisionId", str)
ShardId = NewType("ShardId", int)

MAX_ID_CHARS = 256


def id_fault(value: str) -> str | None:
    """Say what is wrong with an id, or return None when nothing is.

    Args:
        value: the id, any text.

    Returns:
        A short reason that does not repeat the value.
    """
    if not value:
        return "must not be empty"
    if len(value) > MAX_ID_CHARS:
        return f"must have at most {MAX_ID_CHARS} characters"
    if value in {".", ".."}:
        return "must not be . or .."
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in value):
        return "must be valid Unicode without control characters"
    return None


def check_id(value: str, name: str) -> str:
    """Return `value` unchanged when it is a legal id.

    Raises:
        InvalidValueError: it is not; the message names `name` and the rule, not the value.
    """
    fault = id_fault(value)
    if fault is not None:
        raise InvalidValueError(f"{name} {fault}")
    return value


def _digest(*fields: str) -> str:
    state = hashlib.sha256()
    for field in fields:
        data = field.encode("utf-8")
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.hexdigest()


def content_sha256(content: str) -> str:
    """Return the lower-case hexadecimal SHA-256 of the UTF-8 bytes of a content."""
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def derive_item_id(base: BaseId, source_ref: str) -> ItemId:
    """Return the id of the item that a source path has in a base: 32 hexadecimal characters.

    The same base and source give the same id on every machine. SHA-256 over length-prefixed
    fields, cut to 128 bits.
    """
    return ItemId(_digest("item", base, source_ref)[:32])


def derive_revision_id(
    item: ItemId, title: str, language: str, source_type: str, source_ref: str, sha256: str
) -> RevisionId:
    """Return the id of a revision: 32 hexadecimal characters.

    It is a function of what the revision says, so going back to an earlier text gives the earlier
    revision again. SHA-256 over length-prefixed fields, cut to 128 bits.
    """
    fields = ("revision", item, title, language, source_type, source_ref, sha256)
    return RevisionId(_digest(*fields)[:32])


def shard_of(item: ItemId, shards: int) -> ShardId:
    """Return the shard that owns an item: a stable hash range, 0..shards - 1.

    Args:
        item: the item's id.
        shards: how many shards there are, at least 1.
    """
    if shards < 1:
        raise ValueError(f"shards must be at least 1, got {shards}")
    head = hashlib.sha256(item.encode("utf-8")).digest()[:8]
    return ShardId(int.from_bytes(head, "big") * shards >> 64)


def reference_uri(
    base: BaseId, item: ItemId, revision: RevisionId, char_start: int, char_end: int
) -> str:
    """Return the address of a character range: `knowledge:///BASE/ITEM@REVISION#char=S,E`.

    Ids are percent-encoded (RFC 3986), the fragment has the syntax of RFC 5147 and counts code
    points of the stored text.
    """
    path = f"{quote(base, safe='')}/{quote(item, safe='')}@{quote(revision, safe='')}"
    return f"knowledge:///{path}#char={char_start},{char_end}"
