"""A program for tests: the product's ASGI stack on a free port; prints its URL.

Usage: python -m tests.conformance.server {tool,fixtures} [TOKENS]. `tool` serves the product's one
tool over the reference library; `fixtures` puts the tools that the conformance suite expects in its
place, behind the same guard and door. TOKENS is a token file.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from unittest.mock import patch

import uvicorn
from starlette.applications import Starlette

from engine.config import Config
from serve import mcp_door
from serve.auth.tokens import StaticTokens
from serve.doors import build_app
from tests.conformance.fixtures import fixture_server
from tests.serve.library import Library


def _application(kind: str, tokens: Path | None) -> Starlette:
    library = Library(texts={"ü": "umlaut 漢字"})
    credentials = None if tokens is None else StaticTokens(tokens)
    if kind == "tool":
        return build_app(library, Config(), credentials)
    with patch.object(mcp_door, "build_server", lambda _: fixture_server()):
        return build_app(library, Config(), credentials)


async def _serve(app: Starlette) -> None:
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        sys.stdout.write(f"http://127.0.0.1:{port}/mcp\n")  # early clients wait in the queue
        sys.stdout.flush()
        await server.serve(sockets=[listener])


if __name__ == "__main__":
    given = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    asyncio.run(_serve(_application(sys.argv[1], given)))
