"""The language of a text, by lingua over a restricted set of languages."""

from __future__ import annotations

import functools
import re

from lingua import IsoCode639_1, LanguageDetectorBuilder

LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "uk", "zh")
"""ISO 639-1 codes that can be told apart. Others are taken for the nearest of them."""

UNDETERMINED = "und"
"""ISO 639-2 code of a text without letters, or of none of these languages."""

_PREFIX_CHARS = 1_000
_READ_CHARS = 8_000
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_ASCII_RUN = re.compile(r"(?<![!-~])[!-~]++")
_NO_WORD = re.compile(r"[/@_\d]")
"""What addresses, paths and names of programs hold, and words do not."""


def _prose(text: str) -> str:
    """Return a text without code, addresses, paths and names: they are in no language."""
    return _ASCII_RUN.sub(
        lambda run: " " if _NO_WORD.search(run[0]) else run[0], _CODE.sub(" ", text)
    )


class LanguageDetector:
    """Tells languages apart. Deterministic; safe to share between threads."""

    def __init__(self) -> None:
        """Prepare the models (they load as texts need them)."""
        codes = [getattr(IsoCode639_1, code.upper()) for code in LANGUAGES]
        self._detector = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()

    def detect(self, content: str, title: str = "") -> str:
        """Return the ISO 639-1 code of a text, lower case, or `und`.

        Args:
            content: any text; the first 1,000 characters of prose decide, and where there is no
                prose the first 1,000 characters. Of a mixture the language of most of it.
            title: stands before the content, if given.
        """
        prose = _prose(content[:_READ_CHARS])
        if not any(character.isalpha() for character in prose):
            prose = content
        text = f"{title}\n{prose[:_PREFIX_CHARS]}"
        if not any(character.isalpha() for character in text):
            return UNDETERMINED
        language = self._detector.detect_language_of(text)
        return UNDETERMINED if language is None else language.iso_code_639_1.name.lower()


@functools.cache
def language_detector() -> LanguageDetector:
    """Return this process's detector, made at the first call."""
    return LanguageDetector()


def detect(content: str, title: str = "") -> str:
    """Return the ISO 639-1 code of a text, or `und`, by this process's detector."""
    return language_detector().detect(content, title)
