"""All doors of the server, behind one guard, as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.config import Config
from serve.audit import Trail
from serve.auth.credentials import Credentials
from serve.door import Answers, Door, Reply, json_response
from serve.fairness import Limits, Places, Rates
from serve.guard import Guard, Names, Policy, StripHeaders
from serve.http import OPEN_PATHS, HttpDoor
from serve.mcp_door import PATH, McpDoor
from serve.metadata import ProtectedResource


def _policy(config: Config, credentials: Credentials | None, trail: Trail) -> Policy:
    serve, limits = config.serve, Limits.of(config)
    resource = ProtectedResource(config.auth)
    return Policy(
        names=Names.of(serve.host, serve.allowed_hosts, serve.allowed_origins),
        credentials=credentials,
        resource=resource,
        rates=Rates(limits.requests_per_s, limits.burst),
        refusals=Rates(limits.requests_per_s, limits.burst),
        bodies=Places(limits.of_reading()),
        trail=trail,
        open_paths=OPEN_PATHS | resource.paths(),
        max_body_bytes=serve.max_body_bytes,
        body_timeout_s=serve.body_timeout_s,
    )


def build_app(
    answers: Answers,
    config: Config,
    credentials: Credentials | None = None,
    trail: Trail | None = None,
) -> Starlette:
    """Join the doors into one application; its life span must be run.

    Args:
        answers: what is served; the caller closes it.
        config: the tree; of it `serve`, `auth` and `fairness`.
        credentials: None: everybody is anonymous, for loopback only.
        trail: writes the audit records; None: one that counts nothing.
    """
    door = Door(answers, Limits.of(config))
    mcp_door = McpDoor(door, max_body_bytes=config.serve.max_body_bytes)
    http_door: ASGIApp = HttpDoor(door)
    policy = _policy(config, credentials, trail or Trail())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:  # noqa: ARG001  Starlette's shape
        async with mcp_door.running():
            yield

    async def metadata(request: Request) -> Response:  # noqa: ARG001  a handler's shape
        return json_response(Reply(policy.resource.document()))

    app = Starlette(
        routes=[
            Route(PATH, mcp_door),
            *(Route(path, metadata) for path in sorted(policy.resource.paths())),
        ],
        middleware=[Middleware(StripHeaders), Middleware(Guard, policy)],
        lifespan=lifespan,
    )
    # not a mounted route: its pattern stops at a line break, which a decoded path may hold
    app.router.default = http_door
    return app
