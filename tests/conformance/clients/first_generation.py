"""The Python client of mcp 1.x: lists the tools, makes the calls of argv[1] (see test_clients.py).

Run by an interpreter of its own. Types are not checked: ours are those of mcp 2.
"""
# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


@asynccontextmanager
async def _connected(asked):
    if asked.get("url"):
        headers = {"Authorization": f"Bearer {asked['token']}"}
        async with streamablehttp_client(asked["url"], headers=headers) as (incoming, outgoing, _):
            yield incoming, outgoing
    else:
        async with stdio_client(StdioServerParameters(**asked["program"])) as streams:
            yield streams


async def _main():
    asked = json.loads(sys.argv[1])
    async with _connected(asked) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        answers = [await session.call_tool("search_knowledge", call) for call in asked["calls"]]
    told = {
        "tools": [tool.name for tool in tools],
        "answers": [answer.model_dump(by_alias=True, mode="json") for answer in answers],
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(_main())
