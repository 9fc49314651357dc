"""Texts become terms by their language's analyzer, whatever the text is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.index.analysis import analyze, java_text
from engine.index.languages import FIELD_CODES, FIELD_NAMES, FIELDS, field_code, field_name

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("jvm")]

ZOO = (
    "",
    " \r\n\t",
    '"unbalanced AND (OR ~ * ? \\ / [ { ^2 NOT -x +y field:value',
    "a\0b",
    "\ud800 lone \udfff surrogates",
    "emoji 😀👩‍👩‍👧 ça e\u0301",
    "x" * 100_000,
    "\ufffe\uffff\u202e",
    "\U0010ffff",
)


@pytest.mark.parametrize("field", FIELD_NAMES)
@pytest.mark.parametrize("text", ZOO)
def test_no_text_is_an_error(field: str, text: str) -> None:
    counts = analyze(field, text)
    assert all(term and count >= 1 for term, count in counts.items())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FIELD_NAMES), st.text(max_size=60))
def test_analysis_never_raises_and_repeats_itself(field: str, text: str) -> None:
    assert list(analyze(field, text).items()) == list(analyze(field, text).items())


def test_terms_come_in_order_of_first_occurrence_with_their_counts() -> None:
    assert list(analyze("text_other", "b a b c a b").items()) == [("b", 3), ("a", 2), ("c", 1)]


def test_a_caller_may_change_what_it_got() -> None:
    analyze("text_other", "one two").clear()
    assert analyze("text_other", "one two") == {"one": 1, "two": 1}


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        ("text_en", "running searches", "run search"),
        ("text_de", "Häuser", "Haus"),
        ("text_fr", "l'égalité des libertés", "égalité liberté"),
        ("text_zh", "Ｌｕｃｅｎｅ", "lucene"),
        ("text_other", "ÜBER", "über"),
    ],
)
def test_inflected_forms_meet(field: str, one: str, other: str) -> None:
    assert analyze(field, one) == analyze(field, other)


def test_chinese_becomes_bigrams() -> None:
    assert list(analyze("text_zh", "搜索引擎")) == ["搜索", "索引", "引擎"]


@pytest.mark.parametrize("field", ["text_en", "text_de", "text_fr"])
def test_stop_words_alone_leave_nothing(field: str) -> None:
    words = {"text_en": "to be or not to the", "text_de": "und der die", "text_fr": "le la les"}
    assert analyze(field, words[field]) == {}


def test_an_unknown_field_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        analyze("text_tlh", "qapla")


def test_every_language_has_a_field_and_codes_are_positions() -> None:
    assert field_name("de") == "text_de"
    assert field_name("und") == field_name("sw") == "text_other"
    assert [FIELD_CODES[field.name] for field in FIELDS] == list(range(len(FIELDS)))
    assert field_code("en") == FIELD_CODES["text_en"]


def test_stored_field_codes_are_never_renumbered() -> None:
    assert FIELD_NAMES[:5] == ("text_other", "text_en", "text_de", "text_fr", "text_zh")


@given(st.text(alphabet=st.characters(), max_size=40))
def test_java_gets_valid_text_without_nul(text: str) -> None:
    clean = java_text(text)
    clean.encode("utf-8")
    assert "\0" not in clean
    if "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text):
        assert clean == text
