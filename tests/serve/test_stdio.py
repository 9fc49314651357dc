"""MCP over standard input and output: a server of its own, and the bridge to an HTTP server."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
import uvicorn
import yaml
from mcp import Client, StdioServerParameters

from engine.config import Config
from engine.errors import OperatorError
from serve.auth.credentials import Credentials
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from serve.mcp_door import serve_bridge
from serve.runtime import free_port
from tests.serve.library import Library

ROOT = Path(__file__).resolve().parents[2]
both_eras = pytest.mark.parametrize("era", ["auto", "legacy"])


def _program(*arguments: str, **environment: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "tests.serve.stdio_library", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
    )


@asynccontextmanager
async def _listening(library: Library, credentials: Credentials | None) -> AsyncIterator[str]:
    app = build_app(library, Config(), credentials)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:  # early clients wait in its queue
        running = asyncio.create_task(server.serve(sockets=[listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        server.should_exit = True
        await running


@both_eras
async def test_a_client_is_answered_over_stdio(era: Literal["auto", "legacy"]) -> None:
    async with Client(_program(), mode=era) as client:
        (tool,) = (await client.list_tools()).tools
        found = await client.call_tool("search_knowledge", {"knowledge_item_id": "ü"})
        missing = await client.call_tool("search_knowledge", {"knowledge_item_id": "x"})
    assert tool.name == "search_knowledge"
    assert found.structured_content is not None
    assert found.structured_content["content"] == "umlaut 漢字"
    assert missing.is_error


@both_eras
async def test_the_bridge_passes_answers_and_errors_through(
    library: Library, era: Literal["auto", "legacy"]
) -> None:
    async with _listening(library, None) as url, Client(_program(url), mode=era) as client:
        (tool,) = (await client.list_tools()).tools
        found = await client.call_tool("search_knowledge", {"knowledge_item_id": "ü"})
        missing = await client.call_tool("search_knowledge", {"knowledge_item_id": "x"})
    assert tool.name == "search_knowledge"
    assert found.structured_content is not None
    assert found.structured_content["content"] == "umlaut"
    assert missing.is_error
    assert missing.structured_content is not None
    assert missing.structured_content["error"]["code"] == "knowledge_resource_unavailable"


async def test_the_bridge_sends_its_token(library: Library, tmp_path: Path) -> None:
    token, entry = make_token("alice")
    path = tmp_path / "tokens.yaml"
    path.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    async with (
        _listening(library, StaticTokens(path)) as url,
        Client(_program(url, OCTAVO_TOKEN=token)) as client,
    ):
        found = await client.call_tool("search_knowledge", {"knowledge_item_id": "ü"})
    assert not found.is_error
    assert {caller.subject for caller in library.callers} == {"alice"}


async def test_a_bridge_to_nowhere_is_one_line() -> None:
    with pytest.raises(OperatorError, match=r"^http://127\.0\.0\.1:\d+/mcp: .+") as caught:
        await serve_bridge(f"http://127.0.0.1:{free_port()}/mcp")
    assert "\n" not in str(caught.value)


async def test_a_refused_token_is_one_line(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text("tokens: []", "utf-8")
    async with _listening(library, StaticTokens(path)) as url:
        for token in ("wrong", None):
            with pytest.raises(OperatorError, match=r"/mcp: .*\(401\).*OCTAVO_TOKEN") as caught:
                await serve_bridge(url, token)
            assert "\n" not in str(caught.value)


async def test_an_address_that_is_no_endpoint_is_named(library: Library) -> None:
    async with _listening(library, None) as url:
        with pytest.raises(OperatorError, match=r"/mcp/x: .*status 404"):
            await serve_bridge(f"{url}/x")
