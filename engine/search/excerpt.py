"""Excerpts: a verbatim slice of a passage, around the words of the query. Offsets are code points.

Words are matched as they are written, case-folded: an excerpt shows, it does not rank.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from engine.contract import MAX_EXCERPT_CHARS

_WORD = re.compile(r"\w+")
_LEAST_PREFIX = 4
"""Shortest query word that may match the beginning of a longer word."""

_MARKS = frozenset({"Mn", "Mc", "Me"})
_JOINER = "\u200d"
_LOOK_BACK = 64


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of a text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Match:
    start: int
    end: int
    term: str


# ------------------------------------------------------------------------ grapheme clusters


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _extends(character: str) -> bool:
    return (
        character in {_JOINER, "\u200c"}
        or "\U0001f3fb" <= character <= "\U0001f3ff"
        or "\U000e0020" <= character <= "\U000e007f"
        or unicodedata.category(character) in _MARKS
    )


def _is_hangul_joint(before: str, after: str) -> bool:
    leading = "\u1100" <= before <= "\u115f"
    vowel = "\u1160" <= before <= "\u11a7" or (
        "\uac00" <= before <= "\ud7a3" and (ord(before) - 0xAC00) % 28 == 0
    )
    if leading:
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    if vowel and "\u1160" <= after <= "\u11a7":
        return True
    trailing = "\u11a8" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3"
    return (vowel or trailing) and "\u11a8" <= after <= "\u11ff"


def is_cluster_boundary(text: str, at: int) -> bool:
    """Say whether a text may be cut before character `at` without splitting what a reader sees.

    The rules of Unicode Annex 29 for CRLF, marks, joiners, emoji modifiers, tags, flags and
    Hangul; the rest of the annex (prepended marks, conjuncts) is left out.
    """
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before == "\r" and after == "\n":
        return False
    if unicodedata.category(before) == "Cc":
        return True
    if _extends(after) or before == _JOINER or _is_hangul_joint(before, after):
        return False
    if _is_regional(before) and _is_regional(after):
        run = at - 1
        while run > 0 and _is_regional(text[run - 1]):
            run -= 1
        return (at - run) % 2 == 0
    return True


# ------------------------------------------------------------------------------- matching


def _is_unspaced(character: str) -> bool:
    """Say whether a script is written without spaces: Han, Kana, Thai, Lao, Khmer, Myanmar."""
    return (
        "\u2e80" <= character <= "\u9fff"
        or "\u0e00" <= character <= "\u0eff"
        or "\u1000" <= character <= "\u109f"
        or "\u1780" <= character <= "\u17ff"
        or "\uf900" <= character <= "\ufaff"
        or "\U00020000" <= character <= "\U0003ffff"
    )


def _runs(word: str) -> list[str]:
    """Split a word where it changes between spaced and unspaced scripts."""
    runs: list[str] = []
    for character in word:
        if runs and _is_unspaced(runs[-1][-1]) == _is_unspaced(character):
            runs[-1] += character
        else:
            runs.append(character)
    return runs


def query_words(query: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the case-folded words of a query, and the character pairs of its unspaced runs."""
    words: set[str] = set()
    pairs: set[str] = set()
    for word in _WORD.findall(query.casefold()):
        for run in _runs(word):
            if not _is_unspaced(run[0]):
                words.add(run)
            elif len(run) == 1:
                pairs.add(run)
            else:
                pairs.update(run[at : at + 2] for at in range(len(run) - 1))
    return frozenset(words), frozenset(pairs)


def _folded(text: str) -> tuple[str, list[int]]:
    """Case-fold a text; the list maps each folded character to the one it came from."""
    if len(text.casefold()) == len(text) and all(len(c.casefold()) == 1 for c in set(text)):
        return text.casefold(), list(range(len(text) + 1))
    parts = [character.casefold() for character in text]
    origins = [at for at, part in enumerate(parts) for _ in part]
    return "".join(parts), [*origins, len(text)]


def _matches(text: str, query: str) -> list[_Match]:
    words, pairs = query_words(query)
    folded, origins = _folded(text)
    found: list[_Match] = []

    def add(start: int, end: int, term: str) -> None:
        found.append(_Match(origins[start], origins[end - 1] + 1, term))

    for match in _WORD.finditer(folded):
        at = match.start()
        for run in _runs(match[0]):
            if _is_unspaced(run[0]):
                for step in range(len(run)):
                    for term in (run[step : step + 2], run[step]):
                        if term in pairs:
                            add(at + step, at + step + len(term), term)
            else:
                word = _term_of(run, words)
                if word:
                    add(at, at + len(run), word)
            at += len(run)
    return sorted(found, key=lambda match: (match.start, match.end))


def _term_of(word: str, words: frozenset[str]) -> str | None:
    if word in words:
        return word
    starts = (word[:length] for length in range(len(word) - 1, _LEAST_PREFIX - 1, -1))
    return next((start for start in starts if start in words), None)


# -------------------------------------------------------------------------------- cutting


def _richest(matches: list[_Match], limit: int) -> Span | None:
    """Return the span of the earliest run of matches with the most distinct terms."""
    best: Span | None = None
    best_count = 0
    inside: Counter[str] = Counter()
    first = 0
    for last, match in enumerate(matches):
        inside[match.term] += 1
        while match.end - matches[first].start > limit and first < last:
            inside[matches[first].term] -= 1
            inside += Counter()  # drops terms that left
            first += 1
        if len(inside) > best_count and match.end - matches[first].start <= limit:
            best_count = len(inside)
            best = Span(matches[first].start, match.end)
    return best


def _forward(text: str, start: int, most: int) -> int:
    """Move a start to the next word, else the next cluster, not beyond `most`."""
    if start == 0:
        return 0
    for at in range(start, most + 1):
        if not text[at - 1].isspace() or (at < len(text) and text[at].isspace()):
            continue
        if is_cluster_boundary(text, at):
            return at
    for at in range(start, most + 1):
        if is_cluster_boundary(text, at):
            return at
    return start


def _backward(text: str, end: int, least: int) -> int:
    """Move an end back behind a word, else behind a cluster, not before `least`."""
    if end >= len(text):
        return len(text)
    for at in range(end, max(least, end - _LOOK_BACK) - 1, -1):
        if at > least and text[at].isspace() and not text[at - 1].isspace():
            return at
    for at in range(end, least - 1, -1):
        if at > 0 and is_cluster_boundary(text, at):
            return at
    return end


def choose_excerpt(text: str, query: str, limit: int = MAX_EXCERPT_CHARS) -> Span:
    """Choose what to show of a passage.

    Args:
        text: the passage, verbatim.
        query: the query; its words decide where the excerpt lies.
        limit: most characters, at least 1.

    Returns:
        The window of at most `limit` characters with the most distinct query words, the earliest
        of these; the passage's start when no word occurs. It begins and ends between words where
        it can, and inside a grapheme cluster only when one alone exceeds the limit. White space
        at its ends is left out. Not empty unless the text is blank.
    """
    start, end = 0, len(text)
    if end > limit:
        core = _richest(_matches(text, query), limit) or Span(0, 0)
        lead = (limit - (core.end - core.start)) // 3
        start = min(max(0, core.start - lead), len(text) - limit)
        start = _forward(text, start, max(start, min(core.start, start + _LOOK_BACK)))
        end = _backward(text, min(len(text), start + limit), max(core.end, start + 1))
    while start < end and text[start].isspace() and is_cluster_boundary(text, start + 1):
        start += 1
    while end > start and text[end - 1].isspace() and is_cluster_boundary(text, end - 1):
        end -= 1
    return Span(start, end)
