r"""Identifiers in a text: what is one word to its reader and several to a tokenizer.

`ERR_CONN_RESET`, `v2.60.0`, `/etc/nginx/nginx.conf`, `user@example.com`, `CVE-2024-3094`, `C++`
and `camelCaseName` are found as wholes, which match exactly, and as the parts a reader would
name. The rules know no language: they look at Latin letters, digits and what joins them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORD = "0-9A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
# Possessive and anchored at the start of a word: linear also over 100,000 letters.
_JOINED = re.compile(rf"(?<![{_WORD}])[{_WORD}]++(?:(?:://|::|__|[_./@:\\+#-])[{_WORD}]++)+")
_TOP = re.compile(r"://|::|[/@:\\]")
_JOINER = re.compile(r"[^0-9A-Za-z\u00c0-\u024f]+")
_VERSION = re.compile(r"[vV](\d+(?:\.\w+)+)")
_SIGNED = re.compile(rf"(?<![{_WORD}])(?:[A-Za-z]#|[A-Za-z]\w{{0,30}}\+\+)(?![{_WORD}#+])")
_DECIMAL = re.compile(r"\d+\.\d+")
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")
_HYPHENED = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_PAIR = re.compile(r"[^\W_]+[/-][^\W_]+")
_RUN_ON = re.compile(r"[^\W\d_]{2,}\.(?:\d+|[A-Z\u00c0-\u00de][^\W\d_]*)")
_CAMEL = re.compile(r"(?<![0-9A-Za-z])[A-Za-z][0-9A-Za-z]{0,80}(?![0-9A-Za-z])")
_HUMP = re.compile(r"[a-z][A-Z]")
_HUMPS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

LONGEST = 100
"""Characters that a whole may have; a longer one is found by its parts only."""


@dataclass(frozen=True, slots=True)
class Identified:
    """A text taken apart.

    Attributes:
        text: the text with every identifier replaced by its parts, for a language's analyzer.
        wholes: the identifiers in lower case, in order of occurrence, each as often as it occurs;
            parts that are identifiers themselves (`nginx.conf` in a path) too.
    """

    text: str
    wholes: tuple[str, ...]


def _ordinary(chunk: str) -> bool:
    """Tell what only looks like an identifier: 3.5, U.S., up-to-date, and/or, IL-6."""
    return bool(
        _HYPHENED.fullmatch(chunk)
        or _DECIMAL.fullmatch(chunk)
        or _INITIALS.fullmatch(chunk)
        or _PAIR.fullmatch(chunk)
    )


def _wholes(chunk: str) -> list[str]:
    inner = [part for part in _TOP.split(chunk) if part != chunk and _JOINER.search(part)]
    found = [chunk, *(part for part in inner if not _ordinary(part))]
    bare = [match[1] for part in found if (match := _VERSION.fullmatch(part))]
    return [whole.lower() for whole in (*found, *bare) if len(whole) <= LONGEST]


def _humps(text: str) -> list[str]:
    """Return the parts of every camelCase word that has two parts of two letters and more."""
    if not _HUMP.search(text):
        return []
    parts: list[str] = []
    for word in _CAMEL.findall(text):
        if _HUMP.search(word):
            humps = _HUMPS.findall(word)
            if sum(len(hump) > 1 and not hump.isupper() and hump.isalpha() for hump in humps) > 1:
                parts.extend(humps)
    return parts


def identify(text: str) -> Identified:
    """Find the identifiers of a text. Deterministic; linear in its length.

    A joined identifier leaves its parts in the text, separated by spaces. A word in camelCase
    stays, as it may inflect (`GitHub's`), and its parts follow at the end of the text.
    """
    wholes: list[str] = []

    def apart(match: re.Match[str]) -> str:
        chunk = match[0]
        if _ordinary(chunk):
            return chunk
        if not _RUN_ON.fullmatch(chunk):
            wholes.extend(_wholes(chunk))
        return f" {_JOINER.sub(' ', chunk)} "

    def signed(match: re.Match[str]) -> str:
        wholes.append(match[0].lower())
        return match[0]

    if "+" in text or "#" in text:
        text = _SIGNED.sub(signed, text)
    text = _JOINED.sub(apart, text)
    humps = _humps(text)
    if humps:
        text = f"{text}\n{' '.join(humps)}"
    return Identified(text, tuple(wholes))
