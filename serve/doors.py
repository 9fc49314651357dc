"""All doors of the server, behind one guard, as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.config import Config
from serve.auth.credentials import Credentials
from serve.door import Answers, Door
from serve.guard import Guard, Names, StripHeaders
from serve.http import OPEN_PATHS, HttpDoor
from serve.mcp_door import PATH, McpDoor


def build_app(
    answers: Answers, config: Config, credentials: Credentials | None = None
) -> Starlette:
    """Join the doors into one application; its life span must be run.

    Args:
        answers: what is served; the caller closes it.
        config: the tree; of it `serve`.
        credentials: None: everybody is anonymous, for loopback only.
    """
    door = Door(answers, config.serve.max_ongoing_requests)
    limit = config.serve.max_body_bytes
    mcp_door = McpDoor(door, max_body_bytes=limit)
    http_door: ASGIApp = HttpDoor(door, max_body_bytes=limit)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001  Starlette's shape
        async with mcp_door.running():
            yield

    names = Names.of(config.serve.host, config.serve.allowed_hosts, config.serve.allowed_origins)
    app = Starlette(
        routes=[Route(PATH, mcp_door)],
        middleware=[
            Middleware(StripHeaders),
            Middleware(Guard, names=names, credentials=credentials, open_paths=OPEN_PATHS),
        ],
        lifespan=lifespan,
    )
    # not a mounted route: its pattern stops at a line break, which a decoded path may hold
    app.router.default = http_door
    return app
