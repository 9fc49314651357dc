"""Which Lucene field and analyzer each language has. A table: it grows by a line at the end.

No analyzer here makes two tokens of one position, so the length Lucene stores is the number of
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LanguageField:
    """A Lucene field.

    Attributes:
        name: the field's name.
        language: ISO 639-1 code, or None: every language without a field of its own.
        analyzer: the Java class, made by its constructor or factory without arguments.
        version: grows when the same class starts to make other tokens; recorded in segments.
        factory: a static method that makes the analyzer instead of a constructor.
    """

    name: str
    language: str | None
    analyzer: str
    version: int = 1
    factory: str | None = None

    @property
    def signature(self) -> str:
        """Return what a segment records of the analyzer; other text, other tokens."""
        return f"{self.analyzer}/{self.version}"


FIELDS: tuple[LanguageField, ...] = (
    LanguageField("text_other", None, "org.apache.lucene.analysis.standard.StandardAnalyzer"),
    LanguageField(
        "text_en", "en", "io.anserini.analysis.DefaultEnglishAnalyzer", factory="newDefaultInstance"
    ),
    LanguageField("text_de", "de", "org.apache.lucene.analysis.de.GermanAnalyzer"),
    LanguageField("text_fr", "fr", "org.apache.lucene.analysis.fr.FrenchAnalyzer"),
    LanguageField("text_zh", "zh", "org.apache.lucene.analysis.cjk.CJKAnalyzer"),
)
"""The position of a field is its code in stored segments: append, never reorder."""

FIELD_NAMES: tuple[str, ...] = tuple(field.name for field in FIELDS)
FIELD_CODES: dict[str, int] = {name: code for code, name in enumerate(FIELD_NAMES)}
_BY_LANGUAGE = {field.language: code for code, field in enumerate(FIELDS)}


def field_code(language: str) -> int:
    """Return the code of the field that holds texts of a language (ISO 639-1, or `und`)."""
    return _BY_LANGUAGE.get(language, _BY_LANGUAGE[None])


def field_name(language: str) -> str:
    """Return the name of the field that holds texts of a language."""
    return FIELD_NAMES[field_code(language)]
