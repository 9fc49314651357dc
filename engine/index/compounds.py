"""The parts of German and Dutch compounds, by the word frequencies that wordfreq carries.

After Koehn and Knight, "Empirical methods for compound splitting" (EACL 2003), made for
retrieval: a compound is parted whenever known words cover it, however common it is itself,
because the whole stays a term beside its parts. The words come from a package of a fixed version,
never from the texts of a store: every segment on every machine parts alike.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from wordfreq import get_frequency_dict

SHORTEST_COMPOUND = 8
_SHORTEST_PART = 4
_RAREST_PART = 1e-6
"""Occurrences per word of text; the 40,000 most common words or so may be parts."""
_CACHED_WORDS = 1 << 17


_GERMAN_NEVER = """
aber alle allem allen aller auch auf barkeit chen dass dein denen denn deren dessen dich dies
diese diesem diesen dieser dieses doch durch eine einem einen einer eines enden ender ends eren
gegen habe haben haft hafte haften hast hatte heit heiten hier hinter ihnen ihre ihrem ihren ihrer
isch ische ischen ischer jede jeder kann keine keit keiten lein lich liche lichen licher liches
lichkeit ling linge lingen lings losigkeit mehr mein meine mich nach nicht nichts noch oder ohne
rege schaft schaften sehr sein seine seinem seinen seiner sich sind solche sten tion tionen ungen
unter viel voll vorm wann warum weil weit wenn werde werden wider wieder wird wurde wurden wäre
zwar zwischen über
"""


_DUTCH_NEVER = """
achter alle andere deze dezelfde door eens erheid haar hebben heden heeft heid hier hierin iets
inge ingen lijk lijke maar meer meest meeste naar niet nooit omdat onder onze over schap schappen
sche sten tegen toen tussen veel voor waar wanneer want waren werd werden wordt zich zijn zonder
"""


@dataclass(frozen=True, slots=True)
class _Grammar:
    """What the compounds of a language are made with.

    Attributes:
        links: what may stand between two parts; the empty text first.
        never: no parts: endings that are listed as words, and words that begin other words
            without being a part of their sense.
    """

    links: tuple[str, ...]
    never: frozenset[str]


_GRAMMARS: Mapping[str, _Grammar] = {
    "de": _Grammar(
        ("", "s"),
        frozenset(_GERMAN_NEVER.split()),
    ),
    "nl": _Grammar(
        ("", "s"),
        frozenset(_DUTCH_NEVER.split()),
    ),
}

LANGUAGES = frozenset(_GRAMMARS)


class Compounds:
    """Parts the compounds of one language. Pure; safe to share between threads."""

    def __init__(self, language: str) -> None:
        """Load the words of a language.

        Raises:
            KeyError: the language is not in `LANGUAGES`.
        """
        grammar = _GRAMMARS[language]
        self._links = grammar.links
        self._costs = {
            word: -math.log(frequency)
            for word, frequency in get_frequency_dict(language, "large").items()
            if frequency >= _RAREST_PART
            and len(word) >= _SHORTEST_PART
            and word.isalpha()
            and word not in grammar.never
        }
        get_frequency_dict.cache_clear()  # else it keeps all its words: 100 MB
        self._longest = max(map(len, self._costs))
        self.split = functools.lru_cache(_CACHED_WORDS)(self._split)

    def _split(self, word: str) -> tuple[str, ...]:
        """Return the parts of a word, then the parts of those; empty when it has none.

        Args:
            word: in lower case, `ss` for `ß`.
        """
        if len(word) < SHORTEST_COMPOUND:
            return ()
        parts: list[str] = []
        for part in self._cover(word):
            parts += [part, *self._split(part)]
        return tuple(parts)

    def _cover(self, word: str) -> tuple[str, ...]:
        """Return the fewest words that cover a word, the most common ones among equally few."""
        best: dict[int, tuple[int, float, tuple[str, ...]]] = {0: (0, 0.0, ())}
        for start in range(len(word) - _SHORTEST_PART + 1):
            if start not in best:
                continue
            count, cost, parts = best[start]
            for end in range(start + _SHORTEST_PART, min(len(word), start + self._longest) + 1):
                part = word[start:end]
                if part == word or part not in self._costs:
                    continue
                longer = (count + 1, cost + self._costs[part], (*parts, part))
                for link in self._links:
                    place = end + len(link)
                    fits = not link or (place < len(word) and word.startswith(link, end))
                    if fits and (place not in best or longer < best[place]):
                        best[place] = longer
        return best.get(len(word), (0, 0.0, ()))[2]


@functools.cache
def compounds(language: str) -> Compounds:
    """Return this process's splitter of a language, made at the first call (about a second)."""
    return Compounds(language)
