"""JSON objects from strangers, read strictly: what two readers could read differently is refused.

RFC 8259 leaves it open what a key given twice means, and Python takes NaN for JSON.
"""

from __future__ import annotations

import json
from typing import Any


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def parse_object(data: bytes) -> dict[str, Any]:
    """Read one JSON object in UTF-8.

    Raises:
        ValueError: it is not UTF-8, not JSON, not an object, names a key twice at any depth, holds
            NaN or an infinity, or is nested too deep.
    """
    try:
        tree = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(tree, dict):
        raise ValueError("not an object")
    return tree
