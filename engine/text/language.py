"""The language of a text, by lingua over a restricted set of languages."""

from __future__ import annotations

import functools

from lingua import IsoCode639_1, LanguageDetectorBuilder

LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "uk", "zh")
"""ISO 639-1 codes that can be told apart. Others are taken for the nearest of them."""

UNDETERMINED = "und"
"""ISO 639-2 code of a text without letters, or of none of these languages."""

_PREFIX_CHARS = 1_000


class LanguageDetector:
    """Tells languages apart. Deterministic; safe to share between threads."""

    def __init__(self) -> None:
        """Prepare the models (they load as texts need them)."""
        codes = [getattr(IsoCode639_1, code.upper()) for code in LANGUAGES]
        self._detector = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()

    def detect(self, content: str, title: str = "") -> str:
        """Return the ISO 639-1 code of a text, lower case, or `und`.

        Args:
            content: any text; its first 1,000 characters decide.
            title: stands before the content, if given.
        """
        text = f"{title}\n{content[:_PREFIX_CHARS]}"
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
