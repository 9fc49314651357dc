"""The demo's visit: a scripted conversation with a running server through a real MCP client.

Each step asks, shows what came back, and fails the demo when it is not what the contract says.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp import Client
from mcp.types import TextContent
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.contract import TOOL_NAME
from engine.errors import OperatorError
from engine.ids import ItemId, RevisionId
from jobs.commands.rendering import harmless, plain

_EXCERPT_CHARS = 170
_TITLE_CHARS = 80
_WORD = re.compile(r"[^\W_]\w{3,}|[\u4e00-\u9fff]{2}")
"""A word of a query worth marking: four letters or more, or two Chinese characters."""
_PATIENCE_S = 30.0
_POLL_S = 0.05
_WINDOW_CHARS = 1_000

type Arguments = Mapping[str, Any]


class DemoError(OperatorError):
    """A step of the demo did not go as promised."""

    code = "octavo_demo"


def expect(fulfilled: bool, promise: str) -> None:
    """Fail the demo when a promise is not kept.

    Raises:
        DemoError: it is not.
    """
    if not fulfilled:
        raise DemoError(f"not as promised: {promise}")


@dataclass(frozen=True, slots=True)
class Address:
    """What opens one text: an item, a revision, and a place in it."""

    item: ItemId
    revision: RevisionId
    offset: int
    excerpt: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the tool, and how long it took."""

    body: Mapping[str, Any]
    is_error: bool
    elapsed_ms: float

    @property
    def results(self) -> Sequence[Mapping[str, Any]]:
        """Return the results of a query answer."""
        expect(self.body.get("type") == "knowledge_search", "a query answer")
        found: Sequence[Mapping[str, Any]] = self.body["results"]
        return found


class Visit:
    """One visitor: an MCP client, and the terminal where the conversation is shown.

    Attributes:
        console: where to show it.
        steps: how many steps were shown.
        timings: the milliseconds of every call.
    """

    def __init__(self, url: str, console: Console) -> None:
        """Name the server's MCP endpoint. Nothing is connected before `play`."""
        self.console = console
        self.steps = 0
        self.timings: list[float] = []
        self._url = url
        self._client: Client | None = None

    def play[T](self, part: Callable[[Visit], Awaitable[T]]) -> T:
        """Connect, play a part of the visit, disconnect; return what the part returns."""

        async def connected() -> T:
            async with Client(self._url) as client:
                self._client = client
                return await part(self)

        return asyncio.run(connected())

    @property
    def client(self) -> Client:
        """Return the connected client; only inside a part."""
        if self._client is None:
            raise ValueError("a visit is connected only while a part is played")
        return self._client

    def heading(self, title: str, why: str) -> None:
        """Begin a step."""
        self.steps += 1
        self.console.print()
        self.console.print(Text(f"{self.steps}. {title}", style="bold green"))
        self.console.print(Text(why, style="dim"))

    async def call(self, arguments: Arguments, *, show: bool = True) -> Reply:
        """Call the tool once.

        Raises:
            DemoError: the text block and the structured content are not the same object.
        """
        started = time.perf_counter()
        result = await self.client.call_tool(TOOL_NAME, dict(arguments))
        elapsed_ms = (time.perf_counter() - started) * 1000
        self.timings.append(elapsed_ms)
        first = result.content[0]
        expect(isinstance(first, TextContent) and len(result.content) == 1, "one text block")
        body = json.loads(first.text) if isinstance(first, TextContent) else {}
        expect(body == result.structured_content, "the text and the structured content agree")
        if show:
            self._show_call(arguments, elapsed_ms)
        return Reply(body, bool(result.is_error), elapsed_ms)

    def _show_call(self, arguments: Arguments, elapsed_ms: float) -> None:
        line = Text("   search_knowledge ", style="cyan")
        line.append(harmless(json.dumps(arguments, ensure_ascii=False)))
        line.append(f"  {elapsed_ms:.0f} ms", style="magenta")
        self.console.print(line, soft_wrap=True)

    async def search(self, title: str, why: str, arguments: Arguments) -> Reply:
        """Play a step that searches, and show its results.

        Raises:
            DemoError: there is no result, or a result breaks the contract's shape.
        """
        self.heading(title, why)
        reply = await self.call(arguments)
        expect(not reply.is_error, f"{title}: an answer, not an error")
        expect(len(reply.results) > 0, f"{title}: at least one result")
        scores = [result["scores"]["score"] for result in reply.results]
        expect(scores == sorted(scores, reverse=True), f"{title}: the best comes first")
        self.show_results(reply.results, str(arguments["query"]))
        return reply

    def show_results(self, results: Sequence[Mapping[str, Any]], query: str) -> None:
        """Show results as a table, the query's words marked; every text is untrusted."""
        table = Table(box=None, header_style="dim", pad_edge=False, show_edge=False)
        table.add_column("score", justify="right", style="bold")
        table.add_column("lexical", justify="right", style="dim")
        table.add_column("semantic", justify="right", style="dim")
        table.add_column("title and excerpt", ratio=1)
        for result in results:
            scores = result["scores"]
            shown = plain(" ".join(str(result["title"]).split())[:_TITLE_CHARS], "bold")
            shown.append("\n").append_text(_marked(str(result["excerpt"]), query))
            table.add_row(
                _number(scores["score"]),
                _number(scores["lexical"]),
                _number(scores["semantic"]),
                shown,
            )
        self.console.print(Padding(table, (0, 0, 0, 3)))

    def say(self, text: str) -> None:
        """Show a finding."""
        self.console.print(Text("   " + harmless(text), style="green"), soft_wrap=True)


def _marked(excerpt: str, query: str) -> Text:
    """Return a part of an excerpt, around the first of the query's words, all of them marked."""
    text = harmless(" ".join(excerpt.split()))
    words = sorted(set(_WORD.findall(query)), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, words)) or r"(?!)", re.IGNORECASE)
    first = pattern.search(text)
    start = 0 if first is None else max(0, min(first.start() - 60, len(text) - _EXCERPT_CHARS))
    shown = Text("..." if start else "", style="not bold")
    shown.append(text[start : start + _EXCERPT_CHARS])
    shown.append("..." if start + _EXCERPT_CHARS < len(text) else "")
    shown.highlight_regex(pattern, "yellow")
    return shown


def _number(score: float | None) -> str:
    return "-" if score is None else f"{score:.4f}"


def address_of(result: Mapping[str, Any]) -> Address:
    """Return what opens a result."""
    return Address(
        ItemId(result["knowledge_item_id"]),
        RevisionId(result["knowledge_revision_id"]),
        int(result["excerpt_offset"]),
        str(result["excerpt"]),
    )


# ------------------------------------------------------------------------------------ the steps


async def greet(visit: Visit) -> None:
    """Show what an agent sees first: one tool."""
    visit.heading("What an agent sees", "the server offers one tool and teaches how to use it")
    tools = (await visit.client.list_tools()).tools
    expect([tool.name for tool in tools] == [TOOL_NAME], "one tool, search_knowledge")
    tool = tools[0]
    parameters = ", ".join(tool.input_schema["properties"])
    visit.console.print(Text(f"   {tool.name}: {parameters}", style="cyan"), soft_wrap=True)
    visit.console.print(Padding(plain(tool.description or "", "italic"), (0, 3)))


async def search_in_every_mode(visit: Visit) -> Reply:
    """Ask in four modes and four languages; return the answer that is opened next."""
    opened = await visit.search(
        "Hybrid: words and meaning together",
        "English question, every base the caller may read",
        {"query": "How do I stream a file as an HTTP response?", "max_results": 3},
    )
    found = await visit.search(
        "Lexical: an exact identifier",
        "BM25; every result contains the word, in whichever language it is written",
        {"query": "knowledge_resource_unavailable", "mode": "lexical", "max_results": 4},
    )
    expect(
        all(result["scores"]["lexical"] > 0 for result in found.results),
        "a lexical result contains a word of the query",
    )
    await visit.search(
        "Semantic: meaning, across languages",
        "asked in German; every text of this base is English",
        {
            "query": "Wie schicke ich eine Datei als HTTP-Antwort?",
            "mode": "semantic",
            "knowledge_base_id": "packages",
            "max_results": 3,
        },
    )
    await visit.search(
        "Rank fusion, in German",
        "mode rrf joins the ranks of both sides; each result still shows both scores",
        {
            "query": "Wie schnell wirkt es, wenn Rechte entzogen werden?",
            "mode": "rrf",
            "knowledge_base_id": "octavo",
            "max_results": 3,
        },
    )
    await visit.search(
        "Hybrid, in French",
        "alpha moves the weight towards words",
        {"query": "reprendre un travail interrompu", "alpha": 0.7, "max_results": 2},
    )
    await visit.search(
        "Hybrid, in Chinese",
        "the right Lucene analyzer is used for every language",
        {"query": "怎样证明引文是真实的？", "max_results": 2},
    )
    return opened


async def open_result(visit: Visit, opened: Reply) -> None:
    """Open the first result exactly at its excerpt."""
    address = address_of(opened.results[0])
    visit.heading(
        "Open a result at its excerpt", "item, revision and offset are all that is needed"
    )
    reply = await visit.call(
        {
            "knowledge_item_id": address.item,
            "knowledge_revision_id": address.revision,
            "offset": address.offset,
            "limit_chars": max(1, len(address.excerpt)),
        }
    )
    expect(reply.body.get("content") == address.excerpt, "the window is the excerpt, verbatim")
    visit.say(f"the same {len(address.excerpt)} characters, at {reply.body['reference']}")


async def page_to_the_end(visit: Visit, address: Address) -> None:
    """Read a pinned revision window by window, and prove the text by its hash."""
    visit.heading(
        "Page a pinned revision to its end",
        "windows join to the stored text; its SHA-256 is the one in the citation",
    )
    text, windows, sha256, truncated = "", 0, "", True
    while truncated:
        reply = await visit.call(
            {
                "knowledge_item_id": address.item,
                "knowledge_revision_id": address.revision,
                "offset": len(text),
                "limit_chars": _WINDOW_CHARS,
            },
            show=windows < 2,
        )
        expect(not reply.is_error, "a window, not an error")
        text += reply.body["content"]
        sha256 = reply.body["locator"]["content_sha256"]
        truncated = reply.body["content_truncated"]
        windows += 1
    expect(windows > 1, "a text of several windows")
    expect(hashlib.sha256(text.encode("utf-8")).hexdigest() == sha256, "the hash fits the text")
    visit.say(f"{windows} windows, {len(text)} characters, sha256 {sha256[:16]}... verified")


async def meet_errors(visit: Visit) -> None:
    """Show that mistakes get a code and not a guess, and that hidden looks like absent."""
    visit.heading("Mistakes", "one error shape, with a stable code")
    mixed = {"query": "anything", "knowledge_item_id": "something"}
    await _fails(visit, mixed, "knowledge_invalid_request")
    await _fails(visit, {"query": "x", "max_results": 500}, "knowledge_invalid_request")
    visit.heading(
        "A private base and a base that does not exist", "they get the same answer, word for word"
    )
    code = "knowledge_resource_unavailable"
    hidden = await _fails(visit, {"query": "salary", "knowledge_base_id": "private-notes"}, code)
    absent = await _fails(visit, {"query": "salary", "knowledge_base_id": "no-such-base"}, code)
    expect(hidden.body == absent.body, "hidden and absent look alike")


async def _fails(visit: Visit, arguments: Arguments, code: str) -> Reply:
    reply = await visit.call(arguments)
    error = reply.body.get("error", {})
    expect(reply.is_error and error.get("code") == code, f"the error {code}")
    line = Text(f"   {code}: ", style="yellow")
    visit.console.print(line.append(harmless(str(error.get("message")))), soft_wrap=True)
    return reply


async def not_yet_there(visit: Visit, query: str, phrase: str) -> None:
    """Show that a text which nobody published is not found."""
    visit.heading("Before: nobody has written this yet", "the same search, before and after")
    reply = await visit.call({"query": query, "knowledge_base_id": "octavo", "max_results": 3})
    expect(not _shows(reply, phrase), "a text that was not published is not found")
    visit.say("no result mentions it")


async def found_again(visit: Visit, query: str, phrase: str) -> Address:
    """Find the new revision. The server was not restarted.

    Raises:
        DemoError: it does not show up in time.
    """
    visit.heading(
        "After: the new revision", "the running server took the new generation up by itself"
    )
    arguments = {"query": query, "knowledge_base_id": "octavo", "max_results": 3}
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        reply = await visit.call(arguments, show=False)
        if _shows(reply, phrase):
            reply = await visit.call(arguments)
            visit.show_results(reply.results, query)
            chosen = [one for one in reply.results if phrase in one["excerpt"]]
            return address_of(chosen[0])
        await asyncio.sleep(_POLL_S)
    raise DemoError("not as promised: the new revision is found after the reindex")


def _shows(reply: Reply, phrase: str) -> bool:
    return any(phrase in result["excerpt"] for result in reply.results)


async def still_pinned(visit: Visit, older: Address) -> None:
    """Show that the earlier revision can still be opened by its id."""
    visit.heading(
        "The earlier revision, pinned", "a citation made before the change still opens its text"
    )
    reply = await visit.call(
        {"knowledge_item_id": older.item, "knowledge_revision_id": older.revision}
    )
    expect(not reply.is_error, "a pinned revision stays readable")
    current = await visit.call({"knowledge_item_id": older.item})
    expect(
        current.body["knowledge_revision_id"] != older.revision, "another revision is current now"
    )
    visit.say(f"pinned {older.revision[:12]}..., current {current.body['knowledge_revision_id']}")


async def current_of(visit: Visit, query: str, source_ref: str) -> Address:
    """Return where an item of a source stands now.

    Raises:
        DemoError: a search for it does not find it.
    """
    arguments = {"query": query, "knowledge_base_id": "octavo", "max_results": 10}
    reply = await visit.call(arguments, show=False)
    for result in reply.results:
        if str(result["source"]["ref"]).endswith(source_ref):
            return address_of(result)
    raise DemoError(f"not as promised: {source_ref} is found")


async def gone_at_once(visit: Visit, address: Address, started: float) -> None:
    """Show how soon an unpublished item cannot be read any more.

    Args:
        visit: the visitor.
        address: the item.
        started: when it was unpublished, by `time.perf_counter`.
    """
    visit.heading("Unpublished: gone at once", "withdrawing waits for no reindex")
    deadline = time.monotonic() + _PATIENCE_S
    arguments = {"knowledge_item_id": address.item}
    while time.monotonic() < deadline:
        reply = await visit.call(arguments, show=False)
        if reply.is_error:
            waited_s = time.perf_counter() - started
            expect(
                reply.body["error"]["code"] == "knowledge_resource_unavailable",
                "an unpublished item is unavailable",
            )
            visit.say(f"unreadable {waited_s:.2f} s after the change was written")
            return
        await asyncio.sleep(_POLL_S)
    raise DemoError("not as promised: an unpublished item cannot be read")
