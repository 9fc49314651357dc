"""The doors that `serve` opens: HTTP, MCP over HTTP in both protocol eras, MCP over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import httpx2
import uvicorn
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from engine.config import dump_config
from engine.contract import HTTP_STATUS
from engine.local import open_local
from serve.auth.credentials import Credentials
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from serve.http import READ_PARAMETERS
from tests.contracts.background import Background, background
from tests.contracts.corpus import CALLERS, ORGANIZATION
from tests.contracts.doors import Door, Entry, Reply
from tests.engine.search.building import small_config

HTTP_CALLERS = frozenset({"anonymous", "alice", "bob", "scopeless"})
STDIO_CALLERS = {"anonymous": [], "alice": ["--as", "alice:blue"], "operator": ["--operator"]}
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a caller asks, and with which headers."""

    url: str
    headers: Mapping[str, str]


def _write_tokens(path: Path) -> dict[str, str]:
    """Write a token for every caller who needs one; return the tokens by caller."""
    tokens, entries = {}, []
    for name in sorted(HTTP_CALLERS - {"anonymous"}):
        who = CALLERS[name]
        tokens[name], entry = make_token(
            who.subject, teams=who.teams, scopes=who.scopes, organization=who.organization
        )
        entries.append(entry)
    path.write_text(yaml.safe_dump({"tokens": entries}), "utf-8")
    return tokens


@asynccontextmanager
async def _listening(root: Path, tokens: Path) -> AsyncIterator[tuple[str, str]]:
    """Serve a store twice, for anybody and for holders of tokens; yield both URLs."""
    config = small_config(root, organization=ORGANIZATION)
    knowledge = open_local(config)
    guards: list[Credentials | None] = [None, StaticTokens(tokens)]
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in guards]
    servers = [
        uvicorn.Server(uvicorn.Config(build_app(knowledge, config, guard), log_level="error"))
        for guard in guards
    ]
    pairs = zip(servers, listeners, strict=True)
    running = [asyncio.create_task(server.serve(sockets=[each])) for server, each in pairs]
    anybody, holders = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in listeners)
    yield anybody, holders
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*running)
    for each in listeners:
        each.close()
    await knowledge.close()


@dataclass(frozen=True, slots=True)
class Site:
    """A served store.

    Attributes:
        elsewhere: the loop on which it is served, and on which clients live.
        addresses: where each caller asks.
        stack: closes the clients.
    """

    elsewhere: Background
    addresses: Mapping[str, Address]
    stack: ExitStack


@contextmanager
def _served(root: Path) -> Iterator[Site]:
    path = root.parent / "tokens.yaml"
    tokens = _write_tokens(path)
    with background() as elsewhere, elsewhere.entered(_listening(root, path)) as urls:
        anybody, holders = urls
        addresses = {"anonymous": Address(anybody, {})} | {
            name: Address(holders, {"authorization": f"Bearer {token}"})
            for name, token in tokens.items()
        }
        with ExitStack() as stack:
            yield Site(elsewhere, addresses, stack)


class HttpDoor:
    """Posts every call, except addressed reads that a path can express: those it gets."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._clients: dict[str, httpx2.AsyncClient] = {}

    def _client(self, caller: str) -> httpx2.AsyncClient:
        if caller not in self._clients:
            address = self._site.addresses[caller]
            client = httpx2.AsyncClient(base_url=address.url, headers=address.headers, timeout=120)
            entered = self._site.elsewhere.entered(client)
            self._clients[caller] = self._site.stack.enter_context(entered)
        return self._clients[caller]

    async def call(self, arguments: Mapping[str, Any], caller: str) -> Reply:
        client = self._client(caller)
        sent = client.send(self._request(client, arguments))
        response = await self._site.elsewhere.call(sent)
        body: dict[str, Any] = response.json()
        is_error = "error" in body
        assert response.status_code == (HTTP_STATUS[body["error"]["code"]] if is_error else 200)
        return body, is_error

    def _request(self, client: httpx2.AsyncClient, arguments: Mapping[str, Any]) -> httpx2.Request:
        rest = dict(arguments)
        ids = [rest.pop(f"knowledge_{name}_id", None) for name in ("item", "revision")]
        texts = [each for each in ids if isinstance(each, str) and each]
        expressible = bool(texts) and ids[0] in texts and (ids[1] in texts or ids[1] is None)
        expressible &= set(rest) <= set(READ_PARAMETERS) and None not in rest.values()
        expressible &= isinstance(rest.get("knowledge_base_id", ""), str)  # in a URL all is text
        if not expressible:
            content = json.dumps(arguments).encode("utf-8")
            headers = {"content-type": "application/json"}
            return client.build_request("POST", "/v1/search", content=content, headers=headers)
        escaped = ["".join(f"%{byte:02X}" for byte in text.encode()) for text in texts]
        path = f"/v1/items/{'/revisions/'.join(escaped)}"
        return client.build_request("GET", f"{path}?{urlencode(rest)}")


@contextmanager
def open_http(root: Path) -> Iterator[Door]:
    """Open the HTTP door on a store."""
    with _served(root) as site:
        yield HttpDoor(site)


def _reply(result: CallToolResult) -> Reply:
    (block,) = result.content
    assert isinstance(block, TextContent)
    body: dict[str, Any] = json.loads(block.text)
    assert result.structured_content == body
    return body, bool(result.is_error)


Era = Literal["auto", "legacy"]


@asynccontextmanager
async def _mcp_client(address: Address, era: Era) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=address.headers, timeout=120) as http,
        Client(streamable_http_client(f"{address.url}/mcp", http_client=http), mode=era) as client,
    ):
        yield client


class McpDoor:
    """Calls the tool over streamable HTTP."""

    def __init__(self, site: Site, era: Era) -> None:
        self._site = site
        self._era: Era = era
        self._clients: dict[str, Client] = {}

    def _client(self, caller: str) -> Client:
        if caller not in self._clients:
            client = _mcp_client(self._site.addresses[caller], self._era)
            entered = self._site.elsewhere.entered(client)
            self._clients[caller] = self._site.stack.enter_context(entered)
        return self._clients[caller]

    async def call(self, arguments: Mapping[str, Any], caller: str) -> Reply:
        called = self._client(caller).call_tool("search_knowledge", dict(arguments))
        return _reply(await self._site.elsewhere.call(called))


@contextmanager
def open_mcp(root: Path, era: Era) -> Iterator[Door]:
    """Open the MCP door on a store, for one protocol era."""
    with _served(root) as site:
        yield McpDoor(site, era)


class StdioDoor:
    """Calls `octavo mcp`, one process for each caller, started when first wanted."""

    def __init__(self, elsewhere: Background, stack: ExitStack, config: Path) -> None:
        self._elsewhere = elsewhere
        self._stack = stack
        self._config = config
        self._clients: dict[str, Client] = {}

    def _client(self, caller: str) -> Client:
        if caller not in self._clients:
            program = StdioServerParameters(
                command=sys.executable,
                args=["-m", "jobs.cli", "--config", str(self._config), "mcp"]
                + STDIO_CALLERS[caller],
                env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
                cwd=REPOSITORY,
            )
            entered = self._elsewhere.entered(Client(program))
            self._clients[caller] = self._stack.enter_context(entered)
        return self._clients[caller]

    async def call(self, arguments: Mapping[str, Any], caller: str) -> Reply:
        client = self._client(caller)
        called = client.call_tool("search_knowledge", dict(arguments))
        return _reply(await self._elsewhere.call(called))


@contextmanager
def open_stdio(root: Path) -> Iterator[Door]:
    """Open the command line's MCP door on a store."""
    config = root.parent / "stdio.yaml"
    config.write_text(dump_config(small_config(root, organization=ORGANIZATION)), "utf-8")
    with background() as elsewhere, ExitStack() as stack:
        yield StdioDoor(elsewhere, stack, config)


SERVE_DOORS: tuple[Entry, ...] = (
    Entry("http", open_http, HTTP_CALLERS, ("jvm",)),
    Entry("mcp-2026", partial(open_mcp, era="auto"), HTTP_CALLERS, ("jvm",)),
    Entry("mcp-handshake", partial(open_mcp, era="legacy"), HTTP_CALLERS, ("jvm",)),
    Entry("mcp-stdio", open_stdio, frozenset(STDIO_CALLERS), ("jvm",)),
)
