"""Letters that readers take for equal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.index.folding import accented_words, capital_words, fold, normalize


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("résumé", "resume"),
        ("Łódź", "Lodz"),
        ("Straße", "Strasse"),
        ("smørrebrød", "smorrebrod"),
        ("йод ёлка", "йод ёлка"),
        ("が", "が"),
    ],
)
def test_only_latin_letters_lose_their_accents(text: str, bare: str) -> None:
    assert fold(text) == bare


@given(st.text(max_size=60))
def test_composed_and_decomposed_texts_are_normalized_alike(text: str) -> None:
    decomposed = unicodedata.normalize("NFD", text)
    assert normalize(decomposed) == normalize(unicodedata.normalize("NFC", text))


@given(st.text(max_size=60))
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_ligatures_and_widths_are_ordinary_letters() -> None:
    assert normalize("ﬁle ｆｕｌｌ cœur") == "file full coeur"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("WHO", "WHO"),
        ("IT SECURITY TEAM", "IT SECURITY TEAM"),
        ("HOW IS IT DONE", "how is it done"),
        ("How is IT done", "How is IT done"),
    ],
)
def test_only_whole_sentences_in_capitals_are_calmed(text: str, read: str) -> None:
    assert normalize(text) == read


def test_words_are_listed_in_order_with_repeats() -> None:
    assert accented_words("L'été à Noël, été") == ["été", "à", "noël", "été"]
    assert capital_words("IT or It, the WHO's IT; A1B") == ["IT", "WHO", "IT"]
