"""JSON objects from strangers, read strictly: what two readers could read differently is refused.

RFC 8259 leaves it open what a key given twice means, and Python takes NaN for JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:  # Python bounds the digits, as converting them takes quadratic time
        raise ValueError("a number is too long") from None


def _real(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def parse_object(data: bytes) -> dict[str, Any]:
    """Read one JSON object in UTF-8 (RFC 8259).

    Raises:
        ValueError: it is not UTF-8, not JSON, not an object, names a key twice at any depth, holds
            NaN or an infinity, or is nested too deep. The message holds nothing of it.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    try:
        tree = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_real,
        )
    except json.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(tree, dict):
        raise ValueError("it is not an object")
    return tree
