"""Which Lucene field and analysis each language has. A table: it grows by a line at the end."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal
from unicodedata import unidata_version

_LUCENE = "org.apache.lucene.analysis."
_ENGLISH = "io.anserini.analysis.DefaultEnglishAnalyzer"

_STOP = "stop:words=org/apache/lucene/analysis/snowball/{}_stop.txt,format=snowball"
# Lucene's light stemmers keep `casa` from `casas` and from `case`; Snowball's join them.
_SPANISH = f"standard+lowercase+{_STOP.format('spanish')}+snowballPorter:language=Spanish"
_ELIDED = "l|un|c|m|t|s|v|d|gl|dell|all|nell|sull|dall|coll|quell|quest|bell|sant"
_ITALIAN = (
    f"standard+lowercase+patternReplace:pattern=^({_ELIDED})['\u2019],replacement=,replace=first"
    f"+{_STOP.format('italian')}+snowballPorter:language=Italian"
)
# Snowball's Dutch leaves the z of `huizen` and the v of `brieven`, which end as s and f.
_DUTCH = (
    f"standard+lowercase+{_STOP.format('dutch')}+snowballPorter:language=Dutch"
    "+patternReplace:pattern=z$,replacement=s+patternReplace:pattern=v$,replacement=f"
)

Words = Literal["compounds", "han"]


@dataclass(frozen=True, slots=True)
class LanguageField:
    """A Lucene field, and how a text of it becomes terms (`analysis.py` has the steps).

    Attributes:
        name: the field's name.
        language: ISO 639-1 code, or None: every language without a field of its own.
        analyzer: the Java class, made by its constructor or factory without arguments; or the
            names of a tokenizer and its filters, joined by `+`, for Lucene's `CustomAnalyzer`, each
            with its options behind a colon.
        version: grows when the same analysis starts to make other terms; recorded in segments.
        factory: a static method that makes the analyzer instead of a constructor.
        words: what finds words that the analyzer does not: `compounds` parts compounds, `han`
            segments Chinese.
        packages: distributions whose word lists decide the terms; a segment records their versions.
        letters: accented letters of the language's own spelling: its stemmer must see them, so they
            lose their accents after it; all others do before.
    """

    name: str
    language: str | None
    analyzer: str
    version: int = 1
    factory: str | None = None
    words: Words | None = None
    packages: tuple[str, ...] = ()
    letters: str = ""

    @property
    def signature(self) -> str:
        """Return what a segment records of the analysis; other text, other terms.

        Python's version of Unicode is part of it: it decides normalization, case and accents.
        """
        lists = "".join(f" {package}/{version(package)}" for package in self.packages)
        return f"{self.analyzer}/{self.version}{lists} unicode/{unidata_version}"


FIELDS: tuple[LanguageField, ...] = (
    LanguageField("text_other", None, f"{_LUCENE}standard.StandardAnalyzer", version=2),
    LanguageField("text_en", "en", _ENGLISH, version=2, factory="newDefaultInstance"),
    LanguageField(
        "text_de",
        "de",
        f"{_LUCENE}de.GermanAnalyzer",
        version=2,
        words="compounds",
        packages=("wordfreq",),
        letters="äöüß",
    ),
    LanguageField(
        "text_fr", "fr", f"{_LUCENE}fr.FrenchAnalyzer", version=2, letters="àâçéèêëîïôùûüÿ"
    ),
    LanguageField(
        "text_zh",
        "zh",
        _ENGLISH,
        version=3,
        factory="newDefaultInstance",
        words="han",
        packages=("rjieba",),
    ),
    LanguageField("text_es", "es", _SPANISH, letters="áéíóúüñ"),
    LanguageField("text_it", "it", _ITALIAN, letters="àèéìíîòóùú"),
    LanguageField("text_pt", "pt", f"{_LUCENE}pt.PortugueseAnalyzer", letters="áâãàçéêíóôõúü"),
    LanguageField(
        "text_nl", "nl", _DUTCH, words="compounds", packages=("wordfreq",), letters="áàéèëïíóöúü"
    ),
    LanguageField("text_ja", "ja", f"{_LUCENE}ja.JapaneseAnalyzer"),
    LanguageField("text_ko", "ko", f"{_LUCENE}ko.KoreanAnalyzer"),
    LanguageField("text_ru", "ru", f"{_LUCENE}ru.RussianAnalyzer"),
    LanguageField("text_pl", "pl", "standard+lowercase+morfologik+lowercase", letters="ąćęłńóśźż"),
    LanguageField("text_uk", "uk", f"{_LUCENE}uk.UkrainianMorfologikAnalyzer"),
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
