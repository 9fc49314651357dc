"""Turning files into texts."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from engine.errors import NotFoundError
from jobs.reading import Kind, Listing, Reading, Refusal, list_files, list_sources, read_source


def write(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def read(path: Path, language: str | None = None) -> list[Reading | Refusal]:
    return [found for source in list_sources(path) for found in read_source(source, language)]


def reading(path: Path) -> Reading:
    (found,) = read(path)
    assert isinstance(found, Reading), found
    return found


def refusal(path: Path) -> Refusal:
    (found,) = read(path)
    assert isinstance(found, Refusal), found
    return found


# ----------------------------------------------------------------------------------- listing


def test_a_directory_is_listed_in_order_without_hidden_and_unsupported_files(
    tmp_path: Path,
) -> None:
    for name in ("b.md", "a/z.txt", "a.rst", "c.HTML", ".hidden.md", ".git/x.md", "d.png"):
        write(tmp_path, name, "text")
    listing = list_files(tmp_path)
    assert [source.ref for source in listing.sources] == ["a.rst", "a/z.txt", "b.md", "c.HTML"]
    assert listing.skipped == 1
    assert list_sources(tmp_path) == list(listing.sources)


def test_links_are_followed_but_no_folder_is_entered_twice(tmp_path: Path) -> None:
    write(tmp_path, "root/a/one.md", "text")
    write(tmp_path, "elsewhere/two.md", "text")
    (tmp_path / "root/a/loop").symlink_to(tmp_path / "root")
    (tmp_path / "root/self").symlink_to(tmp_path / "root/self")
    (tmp_path / "root/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root/broken.md").symlink_to(tmp_path / "nothing")
    refs = [source.ref for source in list_sources(tmp_path / "root")]
    assert refs == ["a/one.md", "linked/two.md"]


def test_the_queries_beside_a_beir_corpus_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "corpus.jsonl", '{"_id": "1", "text": "some text"}')
    write(tmp_path, "queries.jsonl", '{"_id": "q", "text": "a query"}')
    assert [source.ref for source in list_sources(tmp_path)] == ["corpus.jsonl"]


def test_a_file_given_itself_is_read_even_if_hidden(tmp_path: Path) -> None:
    assert reading(write(tmp_path, ".notes.md", "# Hidden\n")).title == "Hidden"


def test_an_unsupported_file_given_itself_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "image.png", b"\x89PNG")
    assert refusal(path) == Refusal("image.png", "unsupported file type")


def test_a_directory_without_readable_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "folder/image.png", b"\x89PNG")
    assert refusal(tmp_path / "folder") == Refusal("folder", "directory has no readable file")


def test_a_path_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="neither a file nor a directory"):
        list_files(tmp_path / "missing")


def test_a_name_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.md"
    with open(raw, "wb") as file:  # noqa: PTH123 (a name that Path cannot spell)
        file.write(b"# Coffee")
    found = refusal(tmp_path)
    assert found.reason == "file name is not valid Unicode"
    found.place.encode("utf-8")


def test_sources_travel_between_processes(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "text")
    sources = list_sources(tmp_path)
    assert pickle.loads(pickle.dumps(sources)) == sources
    assert sources[0].kind is Kind.TEXT
    assert isinstance(list_files(tmp_path), Listing)


# ----------------------------------------------------------------------------------- Markdown


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("# One\n\n# Two\n", "One"),
        ("text\n\n## Second level ##\n", "Second level"),
        ("Setext title\n============\n\ntext", "Setext title"),
        ("Lower\n-----\n", "Lower"),
        ("```\n# comment\n```\n# Real", "Real"),
        ("~~~~\n# no\n~~~\n# still no\n~~~~\n# Real", "Real"),
        ("---\ntitle: x\n# comment\n---\n# After front matter", "After front matter"),
        ("# `code` and **bold** [link](http://x) { #anchor }", "code and bold link"),
        ("- item\n---\n# Real", "Real"),
        ("#\n# Named", "Named"),
        ("#hashtag\n", "page.md"),
        ("no heading", "page.md"),
        ("# " + "long " * 200, "long " * 39 + "long"),
    ],
)
def test_the_title_of_markdown_is_its_first_heading(
    tmp_path: Path, content: str, title: str
) -> None:
    found = reading(write(tmp_path, "page.md", content))
    assert found.title == title
    assert found.content == content


def test_a_content_is_kept_exactly_but_for_the_byte_order_mark(tmp_path: Path) -> None:
    text = "# T\r\n\r\ne\u0301  \u00a0 tail \r\n"
    path = write(tmp_path, "docs/en/page.markdown", b"\xef\xbb\xbf" + text.encode())
    (found,) = read(tmp_path)
    assert found == Reading(
        place="docs/en/page.markdown",
        title="T",
        content=text,
        language=found.language if isinstance(found, Reading) else "",
        source_type="file",
        source_ref="docs/en/page.markdown",
    )
    assert path.is_file()


# ---------------------------------------------------------------------------- text, rst, HTML


def test_the_title_of_plain_text_is_its_first_line(tmp_path: Path) -> None:
    assert reading(write(tmp_path, "a.txt", "\n ---\n  The  first line \nmore")).title == (
        "The first line"
    )
    assert reading(write(tmp_path, "b.txt", "x" * 300)).title == "x" * 200
    assert reading(write(tmp_path, "c.txt", "...")).title == "c.txt"


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("Title\n=====\n\ntext", "Title"),
        ("=====\nTitle\n=====\n\ntext", "Title"),
        (".. comment\n\nSection\n-------\n", "Section"),
        ("text\n\n----\n\nReal\n~~~~\n", "Real"),
        ("only text", "page.rst"),
    ],
)
def test_the_title_of_restructured_text_is_its_first_section(
    tmp_path: Path, content: str, title: str
) -> None:
    found = reading(write(tmp_path, "page.rst", content))
    assert (found.title, found.content) == (title, content)


HTML = """<html><head><title> A page &amp; more </title><script>var x = 1;</script></head><body>
<nav><a href="/">Home</a></nav><main><h1>Heading</h1><p>The ferry crosses the river every morning,
and the bread is baked at dawn in the village.</p><ul><li>First point of the list</li></ul></main>
</body></html>"""


def test_html_is_converted_and_named_by_its_title(tmp_path: Path) -> None:
    found = reading(write(tmp_path, "page.html", HTML))
    assert found.title == "A page & more"
    assert "The ferry crosses the river every morning" in found.content
    assert "var x" not in found.content
    assert "<p>" not in found.content


def test_html_may_name_its_charset(tmp_path: Path) -> None:
    html = HTML.replace("<head>", '<head><meta charset="iso-8859-1">').replace("dawn", "dawn café")
    found = reading(write(tmp_path, "page.htm", html.encode("latin-1")))
    assert "dawn café" in found.content


@pytest.mark.parametrize("html", ["<html><body></body></html>", "<p></p>", "<!-- only -->"])
def test_html_without_text_is_refused(tmp_path: Path, html: str) -> None:
    assert refusal(write(tmp_path, "page.html", html)).reason in {
        "HTML has no text",
        "is not HTML",
    }


# ------------------------------------------------------------------------------- broken files


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.rst"])
def test_text_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    found = refusal(write(tmp_path, name, b"one\ntwo \xff\xfe\n"))
    assert found == Refusal(name, "is not UTF-8 (line 2)")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "content is empty"),
        (b" \r\n\t", "content is empty"),
        (b"\xef\xbb\xbf", "content is empty"),
        (b"nul \x00 inside", "content must not contain NUL"),
        (b"<p>\xff</p>", "is not UTF-8"),
    ],
)
def test_contents_that_the_store_would_refuse_are_refused(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    assert refusal(write(tmp_path, "a.txt", data)).reason.startswith(reason)


def test_a_content_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert "1..5000000 characters" in refusal(write(tmp_path, "a.txt", "x" * 5_000_001)).reason
    assert "larger than" in refusal(write(tmp_path, "b.txt", "x" * 20_000_004)).reason
    assert len(reading(write(tmp_path, "c.txt", "x" * 5_000_000)).content) == 5_000_000


def test_a_file_that_vanished_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.md", "text")
    (source,) = list_sources(path)
    path.unlink()
    (found,) = read_source(source)
    assert found == Refusal("a.md", "cannot be read: No such file or directory")


def test_a_broken_file_stops_nothing(tmp_path: Path) -> None:
    write(tmp_path, "a.md", b"\xff")
    write(tmp_path, "b.md", "# Fine")
    kinds = [type(found) for found in read(tmp_path)]
    assert kinds == [Refusal, Reading]


# ---------------------------------------------------------------------------------- languages


def test_a_language_is_detected_unless_given(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "Das Haus steht am See, und der Zug hat Verspätung.")
    assert reading(path).language == "de"
    (found,) = read(path, "nl")
    assert isinstance(found, Reading)
    assert found.language == "nl"
