"""Texts that nobody may read appear nowhere: not in answers, statistics, errors, logs or files.

Each hidden text holds a word that is asked for, and a mark that is not. Whoever sees a mark has
seen the text; whoever can tell a hidden word from one that nobody wrote has seen statistics.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from engine.authorization import OPERATE_SCOPE, READ_SCOPE
from engine.config import Config
from engine.contract import MODES
from engine.ids import ItemId, RevisionId
from engine.local import open_local
from jobs.status import status
from serve.audit import Trail, close_audit, open_audit
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from tests.engine.search.building import Library, small_config

pytestmark = pytest.mark.jvm

SEEN = "marmots"
HIDDEN = {
    "draft": "qwolfram",
    "second": "qtungsten",
    "unpublished": "qrhenium",
    "withdrawn": "qosmium",
    "archived": "qiridium",
    "foreign": "qplatinum",
}
"""Items that hold what nobody but their owner may read, each with the word that only it has."""

UNWRITTEN = "qunobtainium"
PUBLISHED_LATER_HIDDEN = ("unpublished", "withdrawn", "archived", "foreign")


def mark(name: str) -> str:
    """Return what is in a hidden text and in no request."""
    return f"zzmark{name}zz"


def _text(name: str) -> tuple[str, str, str]:
    word = HIDDEN[name]
    body = f"{SEEN} and {word} {mark(name)} " * 5
    return name, f"{word} title {mark(name)}", body


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = Library(tmp_path_factory.mktemp("leaks") / "store")
    library.add_base("open", owner="owner")
    library.add_base("vault", scope="private", owner="somebody")
    library.add_base(mark("base"), scope="private", owner="somebody")
    library.add("open", [(f"item-{at}", "Seen", f"{SEEN} number {at}") for at in range(12)])
    library.add("open", [("second", "Seen", f"{SEEN} in a first revision")], revision="r1")
    for name in ("unpublished", "withdrawn", "archived"):
        library.add("open", [_text(name)], revision="r1")
    library.add("vault", [_text("foreign")], revision="r1")
    library.reindex(2)
    library.add("open", [_text("draft")], revision="r1", publish=False)
    library.add("open", [_text("second")], revision="r2", publish=False)
    writer = library.store.writer
    writer.unpublish([ItemId("unpublished")])
    writer.withdraw(ItemId("withdrawn"), RevisionId("r1"))
    writer.archive_item(ItemId("archived"))
    library.reindex(2, grow=True)
    return library


class Ears:
    """Everything that was said while a test ran."""

    def __init__(self, folder: Path, root: Path, log: pytest.LogCaptureFixture) -> None:
        self.audit, self._root, self._log = folder / "audit.jsonl", root, log
        self.answers: list[str] = []
        self.counted: list[tuple[str, str]] = []

    def said(self) -> str:
        """Return it as one text."""
        records = [json.dumps(vars(record), default=str) for record in self._log.records]
        files = [path.read_text("utf-8") for path in (self._root / "logs").glob("*")]
        trail = self.audit.read_text("utf-8")
        return "\n".join([*self.answers, *records, *files, trail, repr(self.counted)])


@pytest.fixture
def ears(library: Library, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Ears]:
    caplog.set_level(logging.DEBUG)
    heard = Ears(tmp_path, library.root, caplog)
    yield heard
    close_audit()


@asynccontextmanager
async def connected(
    library: Library, tmp_path: Path, ears: Ears
) -> AsyncIterator[httpx2.AsyncClient]:
    token, entry = make_token("owner", scopes=[READ_SCOPE, OPERATE_SCOPE])
    (tmp_path / "tokens.yaml").write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    config = _config(library, ears)
    open_audit(config, credentials=True)
    trail = Trail(lambda kind, outcome: ears.counted.append((kind, outcome)))
    knowledge = open_local(config)
    app = build_app(knowledge, config, StaticTokens(tmp_path / "tokens.yaml"), trail)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app),
            base_url="http://127.0.0.1:8000",
            headers={"authorization": f"Bearer {token}"},
        ) as http,
    ):
        yield http
    await knowledge.close()


def _config(library: Library, ears: Ears) -> Config:
    return small_config(library.root, audit={"destination": str(ears.audit)})


def _assert_nothing_hidden(text: str) -> None:
    marks = [name for name in (*HIDDEN, "base") if mark(name) in text]
    assert marks == []


@pytest.mark.parametrize("mode", MODES)
async def test_no_search_shows_a_hidden_text_or_tells_its_words_from_unwritten_ones(
    library: Library, tmp_path: Path, ears: Ears, mode: str
) -> None:
    async with connected(library, tmp_path, ears) as client:

        async def ask(query: str) -> httpx2.Response:
            arguments = {"query": query, "mode": mode, "max_results": 50}
            response = await client.post("/v1/search", json=arguments)
            ears.answers.append(response.text)
            return response

        for word in HIDDEN.values():
            for query in (word, f"{SEEN} {word}", f"title {word}"):
                found = (await ask(query)).json()["results"]
                items = {result["knowledge_item_id"] for result in found}
                assert items.isdisjoint(set(HIDDEN) - {"second"})
                assert all(result["knowledge_revision_id"] != "r2" for result in found)
        if mode == "lexical":
            unwritten = (await ask(f"{SEEN} {UNWRITTEN}")).content
            for word in HIDDEN.values():
                assert (await ask(f"{SEEN} {word}")).content == unwritten
        _assert_nothing_hidden(ears.said())


async def test_an_explanation_counts_no_word_of_a_hidden_text(
    library: Library, tmp_path: Path, ears: Ears
) -> None:
    async with connected(library, tmp_path, ears) as client:

        async def terms(word: str) -> str:
            arguments = {"query": f"{SEEN} {word}", "mode": "lexical"}
            response = await client.post("/v1/explain", json=arguments)
            assert response.status_code == 200
            ears.answers.append(response.text)
            told = {key: value for key, value in response.json().items() if key in STABLE}
            assert set(told) == STABLE
            return json.dumps(told).replace(word, "WORD")

        expected = await terms(UNWRITTEN)
        for word in HIDDEN.values():
            assert await terms(word) == expected
        _assert_nothing_hidden(ears.said())


STABLE = {"answer", "query", "results"}
"""Parts of an explanation that hold no time."""


@pytest.mark.parametrize("name", HIDDEN)
async def test_no_address_opens_a_hidden_revision(
    library: Library, tmp_path: Path, ears: Ears, name: str
) -> None:
    async with connected(library, tmp_path, ears) as client:
        revision = "r2" if name == "second" else "r1"
        paths = [f"/v1/items/{name}/revisions/{revision}"]
        if name != "second":
            paths.append(f"/v1/items/{name}")
        missing = await client.get("/v1/items/no-such-item")
        for path in paths:
            for query in ("", "?knowledge_base_id=open", "?knowledge_base_id=vault", "?offset=3"):
                response = await client.get(path + query)
                ears.answers.append(response.text)
                assert (response.status_code, response.content) == (404, missing.content)
        call: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "search_knowledge",
                "arguments": {"knowledge_item_id": name, "knowledge_revision_id": revision},
            },
        }
        accepted = {"accept": "application/json, text/event-stream"}
        response = await client.post("/mcp", json=call, headers=accepted)
        assert response.status_code == 200
        assert response.json()["result"]["isError"] is True
        ears.answers.append(response.text)
        _assert_nothing_hidden(ears.said())


PATHS = (
    "/openapi.json",
    "/healthz",
    "/readyz",
    "/metrics",
    "/",
    "/store/revisions",
    "/segments",
    "/v1/items/..%2f..%2fstore",
    "/v1/items/%2e%2e/revisions/%2e%2e%2fstore",
    "/v1/items/../../segments/seg-0-0001/passages.arrow",
    "/static/../store/items/_delta_log/00000000000000000000.json",
    "//v1/items/draft",
    "/v1/items/draft%00",
)


async def test_nothing_that_can_be_fetched_holds_a_hidden_text(
    library: Library, tmp_path: Path, ears: Ears
) -> None:
    async with connected(library, tmp_path, ears) as client:
        for path in PATHS:
            for method in ("GET", "HEAD", "POST", "OPTIONS"):
                response = await client.request(method, path)
                assert response.status_code < 500 or path == "/readyz"
                ears.answers.append(response.text + repr(response.headers.multi_items()))
        for body in (
            "{",
            "[]",
            json.dumps({"query": 7}),
            json.dumps({"knowledge_item_id": "draft/.."}),
        ):
            response = await client.post("/v1/search", content=body)
            assert response.status_code < 500
            ears.answers.append(response.text)
        _assert_nothing_hidden(ears.said())


def test_the_status_of_a_store_holds_no_text(library: Library) -> None:
    told = json.dumps(status(small_config(library.root)))
    for name, word in HIDDEN.items():
        assert mark(name) not in told
        assert word not in told


def test_a_draft_is_in_no_file_of_an_index(library: Library) -> None:
    """Drafts wait in the table of revisions alone; an index is made of what was published."""
    folders = ("segments", "generations", "reference", "stage")
    files = [path for folder in folders for path in (library.root / folder).rglob("*")]
    data = b"".join(path.read_bytes() for path in files if path.is_file())
    assert SEEN.encode() in data
    for name in HIDDEN:
        assert (mark(name).encode() in data) == (name in PUBLISHED_LATER_HIDDEN)
