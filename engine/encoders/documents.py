"""JSON documents of a model folder. One that cannot be read is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.errors import EncoderError


def read_document(path: Path) -> Any:
    """Return a JSON file's value, or None where there is no such file.

    Raises:
        EncoderError: it cannot be read, or is not JSON.
    """
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EncoderError(f"{path} cannot be read: {error}") from None


def read_mapping(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; empty where there is no such file, or it holds something else.

    Raises:
        EncoderError: it cannot be read, or is not JSON.
    """
    document = read_document(path)
    return document if isinstance(document, dict) else {}
