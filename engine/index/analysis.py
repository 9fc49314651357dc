"""Turns texts into terms by the analyzer of a language field, and Java's failures into ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from engine.errors import JavaError, StorageFullError
from engine.index.jvm import jnius
from engine.index.languages import FIELDS
from engine.index.lucene import lucene

_CACHED_QUERIES = 1024

_lock = threading.Lock()
_analyzers: dict[str, Any] = {}


@contextmanager
def java_failures(what: str) -> Iterator[None]:
    """Turn a Java exception into a named error.

    Args:
        what: what was being done, as "building the lexical index".

    Raises:
        StorageFullError: no space was left.
        JavaError: anything else; the message holds Java's class and no text of a passage.
    """
    bridge = jnius()
    try:
        yield
    except bridge.JavaException as error:
        said = str(error.innermessage or "")
        if "No space left on device" in said:
            raise StorageFullError(f"no space left while {what}: free some, then rerun") from error
        if "OutOfMemoryError" in str(error.classname):
            raise JavaError(f"the Java heap was full while {what}: raise jvm.heap_mb") from error
        raise JavaError(f"{error.classname} while {what}") from error


def java_text(text: str) -> str:
    """Return a text that Java can take: lone surrogates and NUL become U+FFFD."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


def analyzer(field: str) -> Any:
    """Return the Lucene analyzer of a field, made once. Safe to use from several threads.

    Raises:
        KeyError: there is no such field.
        JavaError: the JVM is not running.
    """
    with _lock:
        if field not in _analyzers:
            spec = next((spec for spec in FIELDS if spec.name == field), None)
            if spec is None:
                raise KeyError(field)
            java_class = jnius().autoclass(spec.analyzer)
            _analyzers[field] = (
                getattr(java_class, spec.factory)() if spec.factory else java_class()
            )
        return _analyzers[field]


@lru_cache(maxsize=_CACHED_QUERIES)
def _tokens(field: str, text: str) -> tuple[str, ...]:
    java, chosen, clean = lucene(), analyzer(field), java_text(text)
    with java_failures("analysing a text"):
        tokens = java.AnalyzerUtils.analyze(chosen, clean)
        return tuple(tokens)


def analyze(field: str, text: str) -> dict[str, int]:
    """Count the terms of a text: term to frequency, in order of first occurrence.

    Args:
        field: a name of `languages.FIELDS`.
        text: any text; nothing in it is syntax, nothing in it is an error.

    Returns:
        A new dictionary, empty when the analyzer leaves nothing (stop words, punctuation).

    Raises:
        KeyError: there is no such field.
        JavaError: the JVM is not running.
    """
    counts: dict[str, int] = {}
    for token in _tokens(field, text):
        counts[token] = counts.get(token, 0) + 1
    return counts
