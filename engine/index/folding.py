"""Letters that readers take for equal: compatibility forms, accents, capitals."""

from __future__ import annotations

import functools
import re
import unicodedata

_LATIN = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff"
_ACCENTED = re.compile("[\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]")
_LATIN_WORD = re.compile(rf"[{_LATIN}]++")
_CAPITALS = re.compile(r"(?<![^\W_])[A-Z]{2,}+(?![^\W_])")
_UNDECOMPOSED = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l",
    "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH", "ı": "i",
}  # fmt: skip
_LIGATURES = str.maketrans({letter: _UNDECOMPOSED[letter] for letter in "æÆœŒ"})
_SHOUTED_WORDS = 4
_LONG_RUN = re.compile(r"[^\W\u1100-\U0010ffff]{200}")
"""Letters and digits of scripts that part words by spaces; no word is so long."""


def normalize(text: str) -> str:
    """Return a text in the form that is analysed: NFKC, ligatures parted, shouting calmed.

    NFKC joins letters and their combining marks (whole corpora come decomposed, and a tokenizer
    then cuts words at every umlaut) and makes full-width and half-width forms ordinary. A text
    in capitals throughout, of more than three words, tells nothing by them: it is read as lower
    case, so that its stop words are none the less stop words. Endless words are cut.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_LIGATURES)
    if text.isupper() and len(text.split(maxsplit=_SHOUTED_WORDS)) >= _SHOUTED_WORDS:
        text = text.lower()
    # Kuromoji and Nori weigh every stretch of an unknown word: 100,000 letters take them minutes.
    return _LONG_RUN.sub(r"\g<0> ", text) if len(text) > 200 else text


@functools.lru_cache(maxsize=4096)
def _folded(letter: str) -> str:
    known = _UNDECOMPOSED.get(letter)
    if known is not None:
        return known
    base = unicodedata.normalize("NFD", letter)[0]
    return base if base.isascii() else letter


def fold(text: str, keep: str = "") -> str:
    """Return a text with Latin letters bare of accents; other scripts stay as they are.

    Args:
        text: composed (NFC).
        keep: accented letters, in lower case, that stay in either case.
    """
    if text.isascii():
        return text
    return _ACCENTED.sub(lambda m: m[0] if m[0].lower() in keep else _folded(m[0]), text)


def accented_words(text: str) -> list[str]:
    """Return the words with an accented Latin letter in lower case, in order, with repeats."""
    if text.isascii():
        return []
    return [word.lower() for word in _LATIN_WORD.findall(text) if _ACCENTED.search(word)]


def capital_words(text: str) -> list[str]:
    """Return the words of two and more capitals, ASCII only, in order, with repeats."""
    return _CAPITALS.findall(text)


def latin_words(text: str) -> list[str]:
    """Return the runs of Latin letters, in order, with repeats."""
    return _LATIN_WORD.findall(text)
