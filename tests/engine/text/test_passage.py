"""The encoder's input of a passage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.encoders.hashing import HashingEncoder
from engine.text.passage import MAX_TITLE_TOKENS, fit_title, passage_input

COUNT = HashingEncoder().count_tokens


def test_the_title_stands_before_the_text() -> None:
    assert passage_input(" Title ", "text") == "Title\ntext"


@pytest.mark.parametrize("title", ["", " \n"])
def test_a_blank_title_adds_nothing(title: str) -> None:
    assert passage_input(title, "text") == "text"
    assert fit_title(title, COUNT, 128) == ""


def test_a_title_that_fits_is_kept_whole() -> None:
    assert fit_title("  A short title ", COUNT, 128) == "A short title"


@given(st.text(max_size=600), st.integers(2, 300))
def test_a_fitted_title_is_a_head_of_the_title_within_its_budget(title: str, window: int) -> None:
    head = fit_title(title, COUNT, window)
    assert title.strip().startswith(head)
    assert COUNT([head])[0] <= min(MAX_TITLE_TOKENS, window // 2)
    assert fit_title(head, COUNT, window) == head


def test_a_title_is_cut_between_words_if_it_has_any() -> None:
    assert fit_title("alpha beta gamma delta epsilon", COUNT, 6) == "alpha beta gamma"
    assert fit_title("題" * 100, COUNT, 20) == "題" * 10


def test_a_longer_window_than_twice_the_most_changes_nothing() -> None:
    title = "word " * 200
    assert fit_title(title, COUNT, 2 * MAX_TITLE_TOKENS) == fit_title(title, COUNT, 8192)
