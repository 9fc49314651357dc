"""Untrusted text on a terminal: shown, not obeyed."""

from __future__ import annotations

import io
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jobs.commands.rendering import (
    harmless,
    plain,
    show_fields,
    show_search,
    show_table,
    show_window,
)


def _shown(show: object, *arguments: object) -> str:
    assert callable(show)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=200)
    show(console, *arguments)
    return file.getvalue()


@given(st.text())
def test_no_control_character_reaches_the_terminal(text: str) -> None:
    kept = set(harmless(text)) - {"\n", "\t"}
    assert not [c for c in kept if unicodedata.category(c) in {"Cc", "Cs"}]
    assert not kept & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069")


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])))
def test_readable_text_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_an_escape_sequence_is_shown_as_its_picture() -> None:
    assert harmless("\x1b[31mred\x07") == "␛[31mred␇"


def test_markup_in_a_text_is_not_markup() -> None:
    text = "[bold]not bold[/bold] [link=http://x]y[/link]"
    assert plain(text).plain == text
    assert text in _shown(show_table, ["column"], [[text]])


def _result(**changes: object) -> dict[str, object]:
    return {
        "title": "A [red]title[/red]",
        "excerpt": "the \x1b[2J[blink]excerpt[/blink] of it",
        "reference": "knowledge:///kb/i@r#char=0,4",
        "source": {"type": "file", "ref": "docs/[x].md"},
        "scores": {
            "score": 0.5,
            "lexical": 1.0,
            "semantic": None,
            "lexical_rank": 1,
            "semantic_rank": None,
        },
        **changes,
    }


def test_a_search_result_shows_title_score_excerpt_and_address() -> None:
    shown = _shown(show_search, {"results": [_result()]}, "excerpt")
    assert "\x1b" not in shown.replace("\x1b]8", "")
    for part in ("A [red]title[/red]", "0.5000", "[blink]excerpt[/blink]", "knowledge:///kb/i@r"):
        assert part in shown


def test_no_result_is_said() -> None:
    assert "No published passage matches" in _shown(show_search, {"results": []}, "x")


def test_missing_shards_are_said() -> None:
    coverage = {"shards": 4, "answered": 3, "fraction": 0.75}
    assert "3 of 4 shards" in _shown(show_search, {"results": [], "coverage": coverage}, "x")


def test_a_window_says_how_to_read_on() -> None:
    answer = {
        "title": "T",
        "reference": "knowledge:///kb/i@r#char=0,3",
        "content": "abc",
        "content_offset": 0,
        "content_total_chars": 9,
        "content_truncated": True,
        "knowledge_revision_id": "r",
    }
    assert "--offset 3" in _shown(show_window, answer)


def test_fields_are_shown_in_words() -> None:
    fields = {
        "built": True,
        "current": False,
        "team": None,
        "reason": "",
        "reasons": {},
        "refused": {"content is empty": 3, "line is not JSON": 1},
        "encoded": 0,
    }
    shown = _shown(show_fields, fields)
    assert [" ".join(line.split()) for line in shown.splitlines()] == [
        "built yes",
        "current no",
        "team -",
        "reason -",
        "reasons -",
        "refused content is empty: 3; line is not JSON: 1",
        "encoded 0",
    ]
