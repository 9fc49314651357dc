"""What is taken apart, what stays, and how long it may take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.index.identifiers import LONGEST, identify


@pytest.mark.parametrize(
    ("text", "parts", "wholes"),
    [
        ("ERR_CONN_RESET", "ERR CONN RESET", ["err_conn_reset"]),
        ("v2.60.0", "v2 60 0", ["v2.60.0", "2.60.0"]),
        ("/etc/nginx/nginx.conf", "/ etc nginx nginx conf", ["etc/nginx/nginx.conf", "nginx.conf"]),
        ("user@example.com", "user example com", ["user@example.com", "example.com"]),
        ("CVE-2024-3094.", "CVE 2024 3094 .", ["cve-2024-3094"]),
        ("net.ipv4.ip_forward", "net ipv4 ip forward", ["net.ipv4.ip_forward"]),
        ("std::vector", "std vector", ["std::vector"]),
        ("C++ and C#", "C++ and C#", ["c++", "c#"]),
        ("使用foo_bar查询", "使用 foo bar 查询", ["foo_bar"]),
        ("camelCaseName", "camelCaseName camel Case Name", []),
        ("parseHTTPResponse", "parseHTTPResponse parse HTTP Response", []),
    ],
)
def test_an_identifier_gives_its_parts_and_its_whole(
    text: str, parts: str, wholes: list[str]
) -> None:
    found = identify(text)
    assert (found.text.split(), list(found.wholes)) == (parts.split(), wholes)


@pytest.mark.parametrize(
    "text",
    ["well-known", "and/or", "3.5 litres", "the U.S. army", "IL-6", "mRNA", "e.g. this", "l'eau"],
)
def test_ordinary_words_stay_as_they_are(text: str) -> None:
    assert identify(text).text == text
    assert identify(text).wholes == ()


@pytest.mark.parametrize("text", ["zurückgewiesen.2", "the end.Then"])
def test_a_missing_space_after_a_sentence_joins_nothing(text: str) -> None:
    assert identify(text).wholes == ()
    assert "." not in identify(text).text


def test_a_very_long_identifier_is_found_by_its_parts_only() -> None:
    long = "_".join(["part"] * LONGEST)
    assert identify(long).wholes == ()
    assert identify(long).text.split() == ["part"] * LONGEST


@pytest.mark.parametrize("unit", ["x", "x.", "a_", "aB", "-", "x++", "://", "A"])
def test_a_long_run_of_anything_ends(unit: str) -> None:
    # Quadratic backtracking over 200,000 characters would take hours, not the blink this takes.
    assert identify(unit * 100_000).text


@given(st.text(max_size=80))
def test_nothing_is_an_error_and_no_letter_or_digit_is_lost(text: str) -> None:
    found = identify(text)
    kept = [character for character in text if character.isalnum()]
    assert [character for character in found.text if character.isalnum()][: len(kept)] == kept
