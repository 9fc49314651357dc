"""The limits of stored values and the one place that checks them. Messages never hold a value."""

from __future__ import annotations

import re

from engine.authorization import SCOPES
from engine.errors import InvalidValueError
from engine.ids import id_fault

MAX_TITLE_CHARS = 500
MAX_CONTENT_CHARS = 5_000_000
MAX_SOURCE_REF_CHARS = 4096
MAX_NAME_CHARS = 256
"""Of an owner, a team, a source type."""

_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")


def text_fault(value: str, low: int, high: int) -> str | None:
    """Say what is wrong with a text, or return None.

    Args:
        value: any text.
        low: the fewest characters (code points) it may have.
        high: the most.
    """
    if not low <= len(value) <= high:
        return f"must have {low}..{high} characters, has {len(value)}"
    if "\0" in value:
        return "must not contain NUL"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return "must be valid Unicode, has a lone surrogate"
    return None


def language_fault(value: str) -> str | None:
    """Say what is wrong with a language: an ISO 639 code or BCP 47 tag, `und` for unknown."""
    if len(value) > 35 or not _LANGUAGE.fullmatch(value):
        return "must be a language code such as en, zh or und"
    return None


def check_base_id(value: str) -> None:
    """Check the id of a base.

    Raises:
        InvalidValueError: it breaks a rule of `engine.ids`.
    """
    _raise("base id", id_fault(value))


def check_base_values(title: str, owner: str, team: str | None, scope: str) -> None:
    """Check what a base consists of.

    Raises:
        InvalidValueError: a value breaks its limit, or scope and team do not fit together.
    """
    _raise("title", _blank_fault(title) or text_fault(title, 1, MAX_TITLE_CHARS))
    _raise("owner", _blank_fault(owner) or text_fault(owner, 1, MAX_NAME_CHARS))
    if team is not None:
        _raise("team", _blank_fault(team) or text_fault(team, 1, MAX_NAME_CHARS))
    if scope not in SCOPES:
        raise InvalidValueError(f"scope must be one of {', '.join(SCOPES)}")
    if scope == "team" and team is None:
        raise InvalidValueError("scope team needs a team: give one")


def _blank_fault(value: str) -> str | None:
    return None if value.strip() else "must not be blank"


def _raise(name: str, fault: str | None) -> None:
    if fault is not None:
        raise InvalidValueError(f"{name} {fault}")
