"""The queries that a ranking is verified with: a file, one query a line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.contract import SearchRequest, parse_request
from engine.errors import ConfigurationError, EngineError

_KEYS = {
    "mode": "mode",
    "alpha": "alpha",
    "max_results": "max_results",
    "base": "knowledge_base_id",
}


@dataclass(frozen=True, slots=True)
class QueryLine:
    """A query of the file: its line number, from 1, and what is asked with it."""

    number: int
    requests: tuple[SearchRequest, ...]

    @property
    def text(self) -> str:
        """Return the query, trimmed."""
        return self.requests[0].query


def read_queries(
    path: Path, modes: Sequence[str], defaults: Mapping[str, Any], sample: int | None = None
) -> tuple[QueryLine, ...]:
    """Read a file of queries.

    Args:
        path: one query a line, as text; or, when its name ends with `.jsonl`, one object a line
            with `text` and, if wanted, `mode`, `alpha`, `max_results` and `base` (BEIR's
            `queries.jsonl` is of that form; other keys are ignored). Blank lines are left out.
        modes: asked of every line that names none itself.
        defaults: `max_results` and `base` of the lines that name none, as the contract's arguments.
        sample: at most so many lines, evenly spaced; None: all.

    Raises:
        ConfigurationError: the file cannot be read, holds no query, or a line is not one.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered:
        raise ConfigurationError(f"{path}: holds no query")
    if sample is not None and sample < len(numbered):
        numbered = [numbered[at * len(numbered) // sample] for at in range(sample)]
    structured = path.suffix == ".jsonl"
    found = []
    for number, line in numbered:
        try:
            arguments: dict[str, Any] = _arguments(line) if structured else {"query": line}
            requests = [_request({**defaults, **arguments}, mode) for mode in modes]
        except (ValueError, EngineError) as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None
        distinct = tuple(dict.fromkeys(requests))  # a line that names its mode is asked once
        found.append(QueryLine(number, distinct))
    return tuple(found)


def _arguments(line: str) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("text"), str):
        raise ValueError("not an object with a text")
    given = {name: row[key] for key, name in _KEYS.items() if row.get(key) is not None}
    return {"query": row["text"], **given}


def _request(arguments: Mapping[str, Any], mode: str) -> SearchRequest:
    request = parse_request({"mode": mode, **arguments})
    if not isinstance(request, SearchRequest):
        raise ValueError("not a query")
    return request
