"""Cutting contents into passages."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.encoders.hashing import HashingEncoder
from engine.errors import EncoderError
from engine.text.chunking import Span, cut
from engine.text.passage import TokenCounter, fit_title, passage_input

COUNT = HashingEncoder().count_tokens

PIECES = st.sampled_from(
    [
        *(
            "a",
            "word",
            "Straße",
            "e\u0301",
            "n\u0303o",
            "\u0301",
            "漢",
            "漢字。",
            "日本語、",
            "한국어",
        ),
        *("👨\u200d👩\u200d👧\u200d👦", "👍🏽", "🇩🇪", "\U0010ffff", "\ufdfa", "\u200b", "\u2060"),
        *(" ", "  ", "\t", "\n", "\r\n", "\r\n\r\n", "\n\n\n", "\u00a0", "\u3000", "\x0b", "\x1c"),
        *(".", ". ", "!", "?)", "...", "«", "—", "http://x.y/z?q=1", "x" * 70, "漢" * 70, "_" * 40),
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=5), max_size=80).map("".join)
TITLES = st.sampled_from(["", "  ", "T", "Über 漢字 and more", "long title " * 30, "題" * 120])
WINDOWS = st.sampled_from([16, 17, 33, 128])


def check_spans(
    content: str, title: str, spans: list[Span], max_tokens: int, count: TokenCounter = COUNT
) -> None:
    """Assert every promise of `cut` but determinism."""
    covered = "".join("".join(content[span.start : span.end].split()) for span in spans)
    assert covered == "".join(content.split()), "every character that is not blank, once, in order"
    assert all(0 <= span.start < span.end <= len(content) for span in spans)
    for before, after in pairwise(spans):
        assert before.end <= after.start
    texts = [content[span.start : span.end] for span in spans]
    assert all(text == text.strip() for text in texts)
    head = fit_title(title, count, max_tokens)
    counts = count([passage_input(head, text) for text in texts])
    assert all(tokens <= max_tokens for tokens in counts)


@given(TEXTS, TITLES, WINDOWS)
@settings(max_examples=300, deadline=None)
def test_spans_cover_every_character_once_and_fit_the_window(
    content: str, title: str, max_tokens: int
) -> None:
    spans = cut(content, title, COUNT, max_tokens)
    check_spans(content, title, spans, max_tokens)
    assert spans == cut(content, title, COUNT, max_tokens)


@pytest.mark.parametrize(
    "content",
    [
        "x" * 100_000,
        "漢" * 100_000,
        "word " * 40_000,
        "." * 50_000,
        "👨\u200d👩\u200d👧\u200d👦" * 8_000,
        "e\u0301" * 20_000,
        "a\n" * 30_000,
        "".join("a" + "\n" * run for run in range(1, 700)),
        "".join("b" + " " * run for run in range(1, 700)),
        "key: value, (x) [y] 'z' \"q\" `c` *b* — … / \\ – & -" * 800,
        "\x1c\u3000\n" * 5_000 + "end",
    ],
    ids=lambda content: repr(content[:6]),
)
def test_pathological_contents_are_cut_without_deep_recursion(content: str) -> None:
    check_spans(content, "Title", cut(content, "Title", COUNT, 32), 32)


@pytest.mark.parametrize("content", ["", " ", "\r\n\t \u3000\x1c"])
def test_a_blank_content_has_no_passages(content: str) -> None:
    assert cut(content, "Title", COUNT, 64) == []


def test_a_content_that_fits_is_one_passage_without_its_outer_blanks() -> None:
    content = "\n  One line.\r\n\r\nAnother line.  \n"
    assert cut(content, "T", COUNT, 64) == [Span(3, len(content) - 3)]


def test_short_lines_are_packed_to_at_least_half_of_the_window() -> None:
    content = "\n".join(f"line {number} says little" for number in range(500))
    spans = cut(content, "", COUNT, 100)
    counts = COUNT([content[span.start : span.end] for span in spans])
    assert min(counts[:-1]) > 50
    assert len(spans) <= 1 + sum(counts) // 90


def test_short_paragraphs_of_varied_spacing_are_packed_too() -> None:
    content = "".join(f"Item {n}. Few words.\n" + "\n" * (n % 4) for n in range(400))
    counts = COUNT([content[span.start : span.end] for span in cut(content, "", COUNT, 100)])
    assert sum(counts) / len(counts) > 75


def test_cuts_prefer_the_end_of_a_sentence() -> None:
    content = "The quick brown fox jumps over it. " * 40
    for span in cut(content, "", COUNT, 30):
        assert content[span.start : span.end].endswith("it.")


def test_chinese_is_cut_after_its_own_punctuation_not_at_spaces_around_digits() -> None:
    content = "黑豹队的防守只丢了 308 分，在联赛中排名第六。" * 60
    for span in cut(content, "", COUNT, 60):
        assert content[span.end - 1] in "。，"


def test_a_cluster_that_fits_the_window_is_not_split() -> None:
    family = "👨\u200d👩\u200d👧\u200d👦"
    content = family * 500
    for span in cut(content, "", COUNT, 32):
        assert span.start % len(family) == 0
    accented = "o\u0308\u0301" * 3_000
    for span in cut(accented, "", COUNT, 32):
        assert accented[span.start] == "o"


def test_a_long_title_leaves_half_of_the_window_to_the_text() -> None:
    content = "some words in a row " * 100
    spans = cut(content, "title words " * 40, COUNT, 64)
    counts = COUNT([content[span.start : span.end] for span in spans])
    assert min(counts[:-1]) >= 24


def test_a_character_that_needs_the_room_takes_it_from_the_title() -> None:
    def greedy(texts: list[str] | tuple[str, ...]) -> list[int]:
        return [9 * text.count("Ω") + len(text.split()) for text in texts]

    spans = cut("ΩΩΩ", "one two three four five six", lambda texts: greedy(tuple(texts)), 10)
    assert spans == [Span(0, 1), Span(1, 2), Span(2, 3)]


def test_a_window_too_small_for_a_character_is_refused_by_place() -> None:
    with pytest.raises(EncoderError, match="character at 2"):
        cut("a Ω", "", lambda texts: [40 if "Ω" in text else len(text) for text in texts], 16)


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_an_estimate_that_is_too_low_is_corrected_by_measuring(content: str) -> None:
    def quadratic(texts: list[str] | tuple[str, ...]) -> list[int]:
        """Count far more than the sum over the words."""
        return [1 + len(text) * (1 + len(text) // 20) for text in texts]

    def count(texts: object) -> list[int]:
        assert isinstance(texts, list | tuple)
        return quadratic(texts)

    check_spans(content, "", cut(content, "", count, 40), 40, count)
