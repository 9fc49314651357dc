"""Answers, shown readably on a terminal.

Titles, excerpts and contents are untrusted: they are never read as markup, and control characters
(terminal escapes among them) and marks that reorder text are shown, not obeyed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_KEPT = frozenset("\n\t")
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
_WORD = re.compile(r"\w+")
_LEAST_WORD_CHARS = 2


def harmless(text: str) -> str:
    """Return a text that a terminal shows and does not obey.

    Control characters but tab and line feed become their pictures (U+2400..), or U+FFFD where
    there is none; marks that override the direction of writing become U+FFFD.
    """
    return "".join(map(_harmless_character, text.replace("\r\n", "\n")))


def _harmless_character(character: str) -> str:
    if character in _KEPT:
        return character
    if character in _REORDERING:
        return "\ufffd"
    if unicodedata.category(character) not in {"Cc", "Cs"}:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def plain(text: object, style: str = "") -> Text:
    """Return an untrusted text as a renderable that is not markup."""
    return Text(harmless(str(text)), style=style)


def show_search(console: Console, answer: Mapping[str, Any], query: str) -> None:
    """Print a query answer of the contract: score, title, excerpt and address of each result."""
    results = answer["results"]
    if not results:
        console.print(plain("No published passage matches.", "dim"))
    for position, result in enumerate(results, start=1):
        show_result(console, position, result, query)
        console.print()
    coverage = answer.get("coverage")
    if coverage is not None:
        text = f"Incomplete: {coverage['answered']} of {coverage['shards']} shards answered."
        console.print(plain(text, "bold yellow"))


def show_result(console: Console, position: int, result: Mapping[str, Any], query: str) -> None:
    """Print one result of a query answer; words of the query are set off in its excerpt."""
    console.print(_result_head(position, result), soft_wrap=True)
    console.print(_excerpt(result["excerpt"], query))
    console.print(_address(result), soft_wrap=True)


def _result_head(position: int, result: Mapping[str, Any]) -> Text:
    scores = result["scores"]
    head = Text(f"{position:>2}. ", style="bold")
    head.append(harmless(" ".join(result["title"].split())), style="bold")
    head.append(f"  {scores['score']:.4f}", style="cyan")
    sides = []
    for side in ("lexical", "semantic"):
        if scores[side] is not None:
            rank = scores[f"{side}_rank"]
            sides.append(f"{side} {scores[side]:.4f}" + (f" #{rank}" if rank else ""))
    head.append(f"  ({', '.join(sides)})" if sides else "", style="dim")
    return head


def _excerpt(excerpt: str, query: str) -> Text:
    text = plain(" ".join(excerpt.split()))
    words = [word for word in _WORD.findall(query) if len(word) >= _LEAST_WORD_CHARS]
    if words:
        alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
        text.highlight_regex(rf"(?i)(?:{alternatives})", "bold yellow")
    return text


def _address(result: Mapping[str, Any]) -> Text:
    address = Text(harmless(result["reference"]), style="blue")
    source = result["source"]
    address.append(f"  {harmless(source['type'])} {harmless(source['ref'])}", style="dim")
    return address


def show_window(console: Console, answer: Mapping[str, Any]) -> None:
    """Print an addressed answer of the contract: title, window, and where it lies."""
    start = answer["content_offset"]
    end = start + len(answer["content"])
    console.print(plain(" ".join(answer["title"].split()), "bold"), soft_wrap=True)
    console.print(plain(answer["reference"], "blue"), soft_wrap=True)
    console.print()
    console.print(plain(answer["content"]), soft_wrap=True)
    console.print()
    rest = f"; more with --offset {end}" if answer["content_truncated"] else ""
    revision = answer["knowledge_revision_id"]
    line = f"characters {start} to {end} of {answer['content_total_chars']}{rest}"
    console.print(plain(f"{line} (revision {revision})", "dim"), soft_wrap=True)


def show_table(console: Console, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table; cells are untrusted text, None is shown as a dash."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(plain("-" if cell is None else cell) for cell in row))
    console.print(table)


def show_fields(console: Console, fields: Mapping[str, object]) -> None:
    """Print names and values, one pair a line."""
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        line = Text(f"{name.replace('_', ' '):<{width}}  ", style="dim")
        line.append_text(plain(_shown_value(value)))
        console.print(line, soft_wrap=True)


def _shown_value(value: object) -> object:
    """Return a value in words: no Python, and a dash for what is empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = "; ".join(f"{name}: {count}" for name, count in value.items())
    return "-" if value is None or value == "" else value
