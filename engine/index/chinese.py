"""Chinese words: a dictionary's, two characters each, and single ones to be found by."""

from __future__ import annotations

import re

import rjieba

_HAN = "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_RUN = re.compile(rf"[{_HAN}]+")
_STOP = frozenset("的了着过和与及或是在也都就而吗呢吧啊之其")
"""Characters that alone are grammar; inside a word they count."""


_KEYWORDS = 6
"""A longer run is a sentence, not a keyword."""


def _grams(run: str) -> list[str]:
    """Return the words of more than two characters, and every pair of neighbours.

    A word of two characters is a pair, and counts once, as every other.
    """
    words = [word for word in rjieba.cut_for_search(run) if len(word) > 2]
    return words + [run[place : place + 2] for place in range(len(run) - 1)]


def _characters(run: str) -> list[str]:
    return [character for character in run if character not in _STOP]


def query_words(run: str) -> list[str]:
    """Return the terms of a run of Han characters, with repeats.

    A keyword is found by words and pairs, and by a single character only where that is a word:
    服务 does not find 和服. In a sentence every character counts, since another wording often
    shares no more (on questions with 128-token passages nDCG@10 0.963, and 0.958 without).
    """
    if len(run) > _KEYWORDS:
        return _grams(run) + _characters(run)
    words = rjieba.cut_for_search(run)
    return _grams(run) + [word for word in words if len(word) == 1 and word not in _STOP]


def passage_words(run: str) -> list[str]:
    """Return the longer words, every pair and every character, so that 猫 finds 小猫."""
    return _grams(run) + _characters(run)


def runs(text: str) -> tuple[str, list[str]]:
    """Part a text into what is not written in Han characters, and the runs that are."""
    return _RUN.sub(" ", text), _RUN.findall(text)
