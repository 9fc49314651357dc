"""The MCP door, by the Python client in both protocol eras, over the reference library."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, TextContent

from engine.authorization import ANONYMOUS
from engine.config import Config
from engine.contract import SEARCH_KNOWLEDGE_SCHEMA, TOOL_DESCRIPTION
from engine.errors import StoreError
from tests.serve.conftest import connected
from tests.serve.library import Library

Era = Literal["auto", "legacy"]

both_eras = pytest.mark.parametrize("era", ["auto", "legacy"])


@asynccontextmanager
async def _visitor(library: Library, era: Era) -> AsyncIterator[Client]:
    async with connected(library) as http:
        transport = streamable_http_client("http://127.0.0.1:8000/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            yield client


def _payload(result: CallToolResult) -> Any:
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == result.structured_content
    return result.structured_content


async def test_the_two_eras_are_two_protocols(library: Library) -> None:
    versions = []
    eras: list[Era] = ["auto", "legacy"]
    for era in eras:
        async with _visitor(library, era) as client:
            versions.append(client.protocol_version)
    assert versions == ["2026-07-28", "2025-11-25"]


@both_eras
async def test_one_tool_is_offered_with_the_contracts_schema(library: Library, era: Era) -> None:
    async with _visitor(library, era) as client:
        (tool,) = (await client.list_tools()).tools
    assert tool.name == "search_knowledge"
    assert tool.description == TOOL_DESCRIPTION
    assert tool.input_schema == SEARCH_KNOWLEDGE_SCHEMA
    assert tool.output_schema is None
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint is True
    assert tool.annotations.idempotent_hint is True
    assert tool.annotations.destructive_hint is False
    assert tool.annotations.open_world_hint is False


@both_eras
async def test_an_answer_is_text_and_the_same_object(library: Library, era: Era) -> None:
    async with _visitor(library, era) as client:
        result = await client.call_tool("search_knowledge", {"knowledge_item_id": "ü"})
    assert not result.is_error
    assert _payload(result)["content"] == "umlaut"
    assert library.callers == [ANONYMOUS]


@both_eras
async def test_the_text_block_is_compact_and_not_escaped(era: Era) -> None:
    async with _visitor(Library(texts={"a": "漢字 😀"}), era) as client:
        result = await client.call_tool("search_knowledge", {"knowledge_item_id": "a"})
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert '"content":"漢字 😀"' in block.text


@both_eras
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "knowledge_query_required"),
        ({"query": "a", "knowledge_item_id": "a"}, "knowledge_invalid_request"),
        ({"quary": "a"}, "knowledge_invalid_request"),
        ({"query": "a", "max_results": 10.5}, "knowledge_invalid_request"),
        ({"query": "a", "limit_chars": 20000}, "knowledge_invalid_request"),
        ({"knowledge_revision_id": "r"}, "knowledge_item_required"),
        ({"knowledge_item_id": "missing"}, "knowledge_resource_unavailable"),
    ],
)
async def test_an_error_is_the_contracts_object_marked_as_error(
    library: Library, era: Era, arguments: dict[str, Any], code: str
) -> None:
    async with _visitor(library, era) as client:
        result = await client.call_tool("search_knowledge", arguments)
    assert result.is_error
    payload = _payload(result)
    assert (payload["type"], payload["error"]["code"]) == ("knowledge_error", code)


@both_eras
async def test_a_switched_off_runtime_is_unavailable(library: Library, era: Era) -> None:
    library.enabled = False
    async with _visitor(library, era) as client:
        result = await client.call_tool("search_knowledge", {"query": "a"})
    assert result.is_error
    assert _payload(result)["type"] == "knowledge_unavailable"


@both_eras
@pytest.mark.parametrize("failure", [RuntimeError("/root/secret"), StoreError("/root/secret")])
async def test_a_fault_of_ours_shows_an_id_only(
    library: Library, era: Era, failure: Exception
) -> None:
    library.failure = failure
    async with _visitor(library, era) as client:
        result = await client.call_tool("search_knowledge", {"query": "a"})
    assert result.is_error
    assert _payload(result)["error"]["code"] == "knowledge_internal"
    assert "secret" not in str(result)


@both_eras
async def test_an_unknown_tool_is_a_protocol_error(library: Library, era: Era) -> None:
    async with _visitor(library, era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("delete_knowledge", {})
    assert caught.value.error.code == -32602


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_only_post_is_answered(library: Library, method: str) -> None:
    async with connected(library) as client:
        response = await client.request(method, "/mcp", headers={"accept": "text/event-stream"})
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"


async def test_a_body_over_the_limit_is_refused(library: Library, small: Config) -> None:
    async with connected(library, config=small) as client:
        headers = {"content-type": "application/json", "accept": "application/json"}
        response = await client.post("/mcp", content=b" " * 2048, headers=headers)
    assert response.status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff",
        b"[" * 30_000 + b"]" * 30_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": '
        + b'{"a": ' * 5_000
        + b"1"
        + b"}" * 5_000
        + b"}",
        b'{"jsonrpc": "2.0", "id": ' + b"9" * 10_000 + b', "method": "tools/list"}',
    ],
    ids=["empty", "half", "array", "text", "bytes", "deep", "deep-parameters", "number"],
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_body_that_is_no_message_is_a_client_error(
    library: Library, body: bytes, version: str
) -> None:
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "mcp-protocol-version": version,
    }
    async with connected(library) as client:
        response = await client.post("/mcp", content=body, headers=headers)
    assert 400 <= response.status_code < 500


async def test_blanks_around_header_values_do_no_harm(library: Library) -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search_knowledge", "arguments": {"query": "a"}},
    }
    headers = {"accept": "application/json  ", "mcp-protocol-version": "2025-06-18 \t"}
    async with connected(library) as client:
        response = await client.post("/mcp", json=call, headers=headers)
    assert response.status_code == 200
    assert isinstance(response, httpx2.Response)
    assert response.json()["result"]["structuredContent"]["type"] == "knowledge_search"
