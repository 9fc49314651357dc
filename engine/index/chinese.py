"""Chinese words: a dictionary's, two characters each, and single ones to be found by."""

from __future__ import annotations

import re

import rjieba

_HAN = "\u2e80-\u2fdf\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_RUN = re.compile(rf"[{_HAN}]+")
_STOP = frozenset("的了着过和与及或是在也都就而吗呢吧啊之其")
"""Characters that alone are grammar; inside a word they count."""


def _pairs(run: str) -> list[str]:
    return [run[place : place + 2] for place in range(len(run) - 1)]


def query_words(run: str) -> list[str]:
    """Return the words of a run of Han characters and every pair of neighbours, with repeats."""
    return [word for word in rjieba.cut_for_search(run) if word not in _STOP] + _pairs(run)


def passage_words(run: str) -> list[str]:
    """Return the longer words, every pair and every character, so that 猫 finds 小猫."""
    words = [word for word in rjieba.cut_for_search(run) if len(word) > 1]
    return words + _pairs(run) + [character for character in run if character not in _STOP]


def runs(text: str) -> tuple[str, list[str]]:
    """Part a text into what is not written in Han characters, and the runs that are."""
    return _RUN.sub(" ", text), _RUN.findall(text)
