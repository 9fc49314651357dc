"""Reading files that are one text each: Markdown, plain text, reStructuredText, HTML."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import trafilatura

from engine.store.limits import MAX_CONTENT_CHARS
from jobs.reading_rows import FILE, Draft, Reading, Refusal, check, shortened

_MAX_FILE_BYTES = 4 * MAX_CONTENT_CHARS + len(codecs.BOM_UTF8)
_MAX_HTML_BYTES = 50_000_000
_CHARSET_BYTES = 4096


class _UnreadableError(Exception):
    """A file gives no text; the message is the reason."""


def read_text_file(path: Path, ref: str, language: str | None) -> Reading | Refusal:
    """Read a file by its suffix: one of `TEXT_SUFFIXES`.

    The content is the file's text exactly as stored, without a byte order mark; of HTML, what
    trafilatura makes of it as Markdown. The title is the first heading (Markdown), the first
    section's (reStructuredText), the title element (HTML); else the file's name, and of plain text
    the first line.

    Args:
        path: where the file is.
        ref: its path below the directory that is read.
        language: of the text; None: detect.
    """
    try:
        title, content = _READERS[Path(ref).suffix.lower()](path, PurePosixPath(ref).name)
    except OSError as error:
        return Refusal(ref, f"cannot be read: {error.strerror or type(error).__name__}")
    except _UnreadableError as error:
        return Refusal(ref, str(error))
    return check(Draft(ref, title, content, language, FILE, ref))


def _bytes(path: Path, limit: int) -> bytes:
    if path.stat().st_size > limit:
        raise _UnreadableError(f"file is larger than {limit} bytes")
    return path.read_bytes()


def _text(path: Path) -> str:
    data = _bytes(path, _MAX_FILE_BYTES).removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _UnreadableError(f"is not UTF-8 (line {line})") from None


def _plain(path: Path, name: str) -> tuple[str, str]:
    del name
    return "", _text(path)


# ------------------------------------------------------------------------------------ Markdown

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(?:.*\r?\n)*?(?:---|\.\.\.)[ \t]*\r?\n")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*")
_BLOCK_START = re.compile(r" {0,3}([-*+>|<]|\d+[.)] )|\t| {4}")
_ATTRIBUTES = re.compile(r"\s*\{[^{}]*\}\s*$")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_SCANNED_CHARS = 200_000


def _markdown(path: Path, name: str) -> tuple[str, str]:
    content = _text(path)
    return _markdown_heading(content[:_SCANNED_CHARS]) or name, content


def _markdown_heading(content: str) -> str:
    """Return the first heading's text (CommonMark: ATX or setext, not in a fence)."""
    fence = before = ""
    for line in _FRONT_MATTER.sub("", content, count=1).splitlines():
        mark = _FENCE.match(line)
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not line.strip("`~ \t")
            fence = "" if closes else fence
        elif mark is not None:
            fence, before = mark[1], ""
        elif heading := _ATX.fullmatch(line):
            if title := _markdown_title(heading[1]):
                return title
        elif before and _SETEXT.fullmatch(line):
            return _markdown_title(before)
        else:
            before = "" if _BLOCK_START.match(line) else line.strip()
    return ""


def _markdown_title(text: str) -> str:
    plain = _LINK.sub(r"\1", _ATTRIBUTES.sub("", text))
    return shortened(re.sub(r"`|\*\*|__", "", plain))


# ----------------------------------------------------------------------------- reStructuredText

_UNDERLINE = re.compile(r"([!-/:-@[-`{-~])\1*")


def _restructured(path: Path, name: str) -> tuple[str, str]:
    content = _text(path)
    return _section_title(content[:_SCANNED_CHARS]) or name, content


def _section_title(content: str) -> str:
    """Return the first section's title: a line with an underline at least as long."""
    lines = [line.rstrip() for line in content.splitlines()]
    for number in range(1, len(lines)):
        title, under = lines[number - 1], lines[number]
        if not _UNDERLINE.fullmatch(under) or _UNDERLINE.fullmatch(title):
            continue
        over = lines[number - 2] if number >= 2 else ""
        starts = not over or over == under
        if title.strip() and starts and len(under) >= min(len(title.strip()), 4):
            return shortened(title)
    return ""


# ---------------------------------------------------------------------------------------- HTML

_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)


def _html(path: Path, name: str) -> tuple[str, str]:
    html = _html_text(_bytes(path, _MAX_HTML_BYTES))
    try:
        tree = trafilatura.load_html(html)
        if tree is None:
            raise _UnreadableError("is not HTML")
        title = shortened(str(tree.findtext(".//title") or ""))
        content = trafilatura.extract(
            html, output_format="markdown", include_comments=False, favor_recall=True
        )
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise _UnreadableError(f"HTML cannot be converted ({type(error).__name__})") from None
    if not content or not content.strip():
        raise _UnreadableError("HTML has no text")
    return title or name, content


def _html_text(data: bytes) -> str:
    """Decode as UTF-8, else as the document says itself."""
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        named = _CHARSET.search(data[:_CHARSET_BYTES])
    if named is None:
        raise _UnreadableError("is not UTF-8, and names no other charset")
    try:
        return data.decode(named[1].decode("ascii"))
    except (LookupError, ValueError):
        raise _UnreadableError("is not in the charset that it names") from None


_READERS: dict[str, Callable[[Path, str], tuple[str, str]]] = {
    ".md": _markdown,
    ".markdown": _markdown,
    ".txt": _plain,
    ".rst": _restructured,
    ".html": _html,
    ".htm": _html,
}

TEXT_SUFFIXES = frozenset(_READERS)
