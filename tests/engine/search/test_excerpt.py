"""Excerpts: verbatim, around the words of the query, cut where a reader would cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import MAX_EXCERPT_CHARS
from engine.search.excerpt import choose_excerpt, is_cluster_boundary

PIECES = st.sampled_from(
    [
        "word",
        "Straße",
        "服务器",
        "ひらがな",
        "e\u0301",
        "👩‍👩‍👧",
        "👍🏽",
        "🇩🇪🇫🇷",
        "\r\n",
        " ",
        ".",
        "\u0301",
        "한국어",
        "\u1112\u1161\u11ab",
        "𝔘𝔫𝔦",
        "ไทย",
        "İ",
        "ﬁn",
        "\t",
        "x" * 30,
    ]
)
passages = st.lists(PIECES, min_size=1, max_size=400).map("".join)
queries = st.lists(PIECES, max_size=5).map(" ".join)


@given(passages, queries, st.sampled_from([20, 50, MAX_EXCERPT_CHARS]))
def test_an_excerpt_is_a_slice_within_the_limit(text: str, query: str, limit: int) -> None:
    span = choose_excerpt(text, query, limit)
    assert 0 <= span.start <= span.end <= len(text)
    assert span.end - span.start <= limit
    if not text.isspace():
        assert text[span.start : span.end].strip()


@given(passages, queries)
def test_an_excerpt_never_splits_what_a_reader_sees(text: str, query: str) -> None:
    span = choose_excerpt(text, query)
    longest, run = 0, 0
    for at in range(1, len(text) + 1):
        run += 1
        if is_cluster_boundary(text, at):
            longest, run = max(longest, run), 0
    if longest < 50:
        assert is_cluster_boundary(text, span.start)
        assert is_cluster_boundary(text, span.end)


@given(passages, queries)
def test_a_short_passage_is_shown_whole(text: str, query: str) -> None:
    text = text[:MAX_EXCERPT_CHARS]
    span = choose_excerpt(text, query)
    assert text[: span.start].strip() == ""
    assert text[span.end :].strip() == ""


@pytest.mark.parametrize(
    ("word", "query"),
    [
        ("needle", "NEEDLE"),
        ("Straße", "STRASSE"),
        ("Needles", "needle"),
        ("数据库备份", "备份"),
        ("İstanbul", "i̇stanbul"),
        ("ERR_CONN_RESET", "err_conn_reset"),
    ],
)
def test_the_excerpt_lies_around_the_words_of_the_query(word: str, query: str) -> None:
    text = "hay " * 500 + word + " hay" * 500
    span = choose_excerpt(text, f"where is the {query}?")
    assert word in text[span.start : span.end]
    assert span.start > 0
    assert text[span.start - 1] == " "


def test_the_window_with_most_distinct_words_wins_and_then_the_earliest() -> None:
    filler = "hay " * 200
    text = f"alpha alpha alpha {filler} alpha beta {filler} beta alpha {filler}"
    span = choose_excerpt(text, "alpha beta")
    assert span.start <= text.index("alpha beta") < span.end
    assert text[span.start : span.end].count("beta") == 1


def test_without_a_word_of_the_query_the_passage_is_shown_from_its_start() -> None:
    text = "hay " * 500
    span = choose_excerpt(text, "needle")
    assert span.start == 0
    assert text[: span.end].endswith("hay")
    assert 390 < span.end <= 400


@pytest.mark.parametrize(
    ("text", "boundaries"),
    [
        ("a\r\nb", [0, 1, 3, 4]),
        ("e\u0301x", [0, 2, 3]),
        ("👩‍👩‍👧a", [0, 5, 6]),
        ("👍🏽👍", [0, 2, 3]),
        ("🇩🇪🇫🇷", [0, 2, 4]),
        ("\u1112\u1161\u11ab가", [0, 3, 4]),
        ("日本", [0, 1, 2]),
    ],
)
def test_clusters_are_those_of_unicode(text: str, boundaries: list[int]) -> None:
    assert [at for at in range(len(text) + 1) if is_cluster_boundary(text, at)] == boundaries
