"""Turns texts into terms by the analysis of a language field, and Java's failures into ours.

The same steps make the terms of a passage and of a query; Lucene is handed terms, not texts, so
that what is counted here is what is indexed:

1. the text is normalized (`folding.normalize`): NFKC, ligatures, shouting;
2. identifiers are taken apart (`identifiers.identify`); each whole becomes a term as it is;
3. words that the analyzer cannot find are added: parts of compounds, Chinese words;
4. the field's Lucene analyzer tokenizes, drops stop words and stems; accents are dropped, those of
   the language's own spelling after it and others before, so that `resume` finds `résumé`;
5. the form as written is added where step 4 loses what tells it apart: capitals that spell a stop
   word (`IT`, `WHO`), and a word with an accent (`résumé` finds itself first). Accents count so in
   queries of a few words only: in a question they would weigh its accented words twice, which took
   French questions from nDCG@10 0.807 to 0.781.

Every term counts once, wherever it came from: a passage's length is the number of its terms, and
nothing stands at the position of something else, so Lucene's length, its total and ours agree.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from engine.errors import JavaError, StorageFullError
from engine.index import chinese
from engine.index.compounds import compounds
from engine.index.folding import accented_words, capital_words, fold, latin_words, normalize
from engine.index.identifiers import identify
from engine.index.jvm import jnius
from engine.index.languages import FIELDS, LanguageField
from engine.index.lucene import lucene

_CACHED_QUERIES = 1024
_KEYWORDS = 4
"""Words that a query may have whose accents are asked for as they are."""
_CACHED_WORDS = 65_536
_LONGEST = 127
"""Characters a term may have; Lucene's whitespace tokenizer takes 255 UTF-16 units."""

_SPECIFICATIONS = {field.name: field for field in FIELDS}
_lock = threading.Lock()
_analyzers: dict[str, Any] = {}


@contextmanager
def java_failures(what: str) -> Iterator[None]:
    """Turn a Java exception into a named error.

    Args:
        what: what was being done, as "building the lexical index".

    Raises:
        StorageFullError: no space was left.
        JavaError: anything else; the message holds Java's class and no text of a passage.
    """
    bridge = jnius()
    try:
        yield
    except bridge.JavaException as error:
        said = str(error.innermessage or "")
        if "No space left on device" in said:
            raise StorageFullError(f"no space left while {what}: free some, then rerun") from error
        if "OutOfMemoryError" in str(error.classname):
            raise JavaError(f"the Java heap was full while {what}: raise jvm.heap_mb") from error
        raise JavaError(f"{error.classname} while {what}") from error


def java_text(text: str) -> str:
    """Return a text that Java can take: lone surrogates and NUL become U+FFFD."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


def _step(written: str) -> tuple[str, Any]:
    """Read `name` or `name:option=value,option=value` of a composed analyzer."""
    name, _, said = written.partition(":")
    options = jnius().autoclass("java.util.HashMap")()
    for option in filter(None, said.split(",")):
        key, _, value = option.partition("=")
        options.put(key, value)
    return name, options


def _made(field: LanguageField) -> Any:
    bridge = jnius()
    if "+" not in field.analyzer:
        java_class = bridge.autoclass(field.analyzer)
        return getattr(java_class, field.factory)() if field.factory else java_class()
    tokenizer, *filters = (_step(step) for step in field.analyzer.split("+"))
    builder = bridge.autoclass("org.apache.lucene.analysis.custom.CustomAnalyzer").builder()
    name, options = tokenizer
    builder.withTokenizer(name, options)
    for name, options in filters:
        builder.addTokenFilter(name, options)
    return builder.build()


def analyzer(name: str) -> Any:
    """Return the Lucene analyzer of a field, made once. Safe to use from several threads.

    Raises:
        KeyError: there is no such field.
        JavaError: the JVM is not running, or the jar lacks the analyzer.
    """
    with _lock:
        if name not in _analyzers:
            field = _SPECIFICATIONS[name]
            with java_failures("making an analyzer"):
                _analyzers[name] = _made(field)
        return _analyzers[name]


def _lucene_terms(field: str, text: str) -> list[str]:
    java, chosen = lucene(), analyzer(field)
    with java_failures("analysing a text"):
        tokens = java.AnalyzerUtils.analyze(chosen, text)
        # One string: handing over a term at a time costs more than making it.
        joined = java.String.join("\n", tokens)
    return str(joined).split()


@lru_cache(maxsize=_CACHED_WORDS)
def _is_stop_word(field: str, word: str) -> bool:
    return not _lucene_terms(field, word)


def _added_words(field: LanguageField, text: str) -> list[str]:
    if field.words != "compounds" or field.language is None:
        return []
    parts_of = compounds(field.language).split
    words = (word.lower().replace("ß", "ss") for word in latin_words(text))
    return [part for word in words for part in parts_of(word)]


def _terms(name: str, text: str, *, passage: bool) -> list[str]:
    field = _SPECIFICATIONS[name]
    found = identify(normalize(java_text(text)))
    body, exact = found.text, list(found.wholes)
    exact += [word for word in map(str.lower, capital_words(body)) if _is_stop_word(name, word)]
    if passage or len(text.split(maxsplit=_KEYWORDS)) <= _KEYWORDS:
        exact += [word for word in accented_words(body) if not _is_stop_word(name, word)]
    if field.words == "han":
        body, runs = chinese.runs(body)
        make = chinese.passage_words if passage else chinese.query_words
        exact += [word for run in runs for word in make(run)]
    added = _added_words(field, body)
    if added:
        body = f"{body}\n{' '.join(added)}"
    terms = [fold(term) for term in _lucene_terms(name, fold(body, field.letters))]
    return [term[:_LONGEST] for term in [*terms, *exact]]


def passage_terms(field: str, text: str) -> list[str]:
    """Return the terms of a passage, with repeats; its length is their number.

    Args:
        field: a name of `languages.FIELDS`.
        text: title and passage text together; nothing in it is an error.

    Returns:
        Terms without white space, of at most 127 characters, in an order that means nothing.

    Raises:
        KeyError: there is no such field.
        JavaError: the JVM is not running.
    """
    return _terms(field, text, passage=True)


@lru_cache(maxsize=_CACHED_QUERIES)
def _query_terms(field: str, text: str) -> tuple[str, ...]:
    return tuple(_terms(field, text, passage=False))


def analyze(field: str, text: str) -> dict[str, int]:
    """Count the terms of a query: term to frequency, in order of first occurrence.

    Args:
        field: a name of `languages.FIELDS`.
        text: any text; nothing in it is syntax, nothing in it is an error.

    Returns:
        A new dictionary, empty when the analysis leaves nothing (stop words, punctuation).

    Raises:
        KeyError: there is no such field.
        JavaError: the JVM is not running.
    """
    return dict(Counter(_query_terms(field, text)))
