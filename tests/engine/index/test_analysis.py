"""Texts become terms by their language's analyzer, whatever the text is."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.index.analysis import analyze, java_text, passage_terms
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
    assert all(
        term.split() == [term] for term in [*analyze(field, text), *passage_terms(field, text)]
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FIELD_NAMES), st.text(max_size=60))
def test_analysis_never_raises_and_repeats_itself(field: str, text: str) -> None:
    assert passage_terms(field, text) == passage_terms(field, text)
    assert set(analyze(field, text)) <= set(passage_terms(field, text))


def test_terms_come_in_order_of_first_occurrence_with_their_counts() -> None:
    assert list(analyze("text_other", "b a b c a b").items()) == [("b", 3), ("a", 2), ("c", 1)]


def test_a_caller_may_change_what_it_got() -> None:
    analyze("text_other", "one two").clear()
    assert analyze("text_other", "one two") == {"one": 1, "two": 1}


@pytest.mark.parametrize(
    ("field", "one", "other"),
    [
        ("text_en", "running searches", "run search"),
        ("text_fr", "l'égalité des libertés", "égalité libertés"),
        ("text_zh", "Ｌｕｃｅｎｅ", "lucene"),
        ("text_other", "ÜBER", "über"),
        ("text_de", "u\u0308ber Ko\u0308ln", "über Köln"),
        ("text_en", "WHAT IS THE TIME NOW", "what is the time now"),
    ],
)
def test_inflected_forms_meet(field: str, one: str, other: str) -> None:
    assert analyze(field, one) == analyze(field, other)


def test_chinese_becomes_words_and_pairs_and_a_passage_single_characters_too() -> None:
    words = {"搜索", "索引", "引擎", "搜索引擎"}
    assert set(analyze("text_zh", "搜索引擎")) == words
    assert set(passage_terms("text_zh", "搜索引擎")) == words | set("搜索引擎")


def test_a_chinese_word_counts_once_in_a_passage_however_it_is_found() -> None:
    assert Counter(passage_terms("text_zh", "搜索引擎"))["搜索"] == 1


def test_a_chinese_sentence_is_asked_by_characters_too_and_a_keyword_is_not() -> None:
    assert "服" not in analyze("text_zh", "产品和服务")
    assert "服" in analyze("text_zh", "你们提供什么产品和服务")


def test_a_compound_keeps_its_whole_and_gives_its_parts() -> None:
    terms = analyze("text_de", "Donaudampfschifffahrt")
    assert {"donaudampfschifffahrt", "donau", "dampf", "schiff", "fahrt"} <= set(terms)


@pytest.mark.parametrize("field", FIELD_NAMES)
def test_an_identifier_is_one_exact_term_and_its_parts_in_every_field(field: str) -> None:
    for text, parts, wholes in (
        ("ERR_CONN_RESET", "ERR CONN RESET", {"err_conn_reset"}),
        ("/etc/nginx/nginx.conf", "etc nginx conf", {"etc/nginx/nginx.conf", "nginx.conf"}),
    ):
        assert set(analyze(field, text)) == set(analyze(field, parts)) | wholes


@pytest.mark.parametrize(("field", "word"), [("text_en", "IT"), ("text_de", "MAN")])
def test_capitals_that_spell_a_stop_word_are_a_term(field: str, word: str) -> None:
    assert analyze(field, word.lower()) == {}
    assert analyze(field, word) == {word.lower(): 1}


@pytest.mark.parametrize(("field", "bare"), [("text_en", "resum"), ("text_fr", "resum")])
def test_an_accent_is_a_term_of_a_passage_and_of_a_short_query_only(field: str, bare: str) -> None:
    assert analyze(field, "résumé") == {bare: 1, "résumé": 1}
    assert analyze(field, "resume") == {bare: 1}
    assert "résumé" not in analyze(field, "Paris Rome Berlin Madrid résumé")
    assert "résumé" in passage_terms(field, "Paris Rome Berlin Madrid résumé")


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
