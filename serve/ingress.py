"""The ingress: the doors, the guard, and the coordinator, as one ASGI application on a replica."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ray import serve as rayserve
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from engine.config import Config, undump_config
from engine.encoders.opening import open_encoder
from engine.errors import InternalError
from engine.local import open_follower, open_knowledge
from engine.search.answering import Knowledge
from engine.search.client import GroupClient
from engine.search.encoding import LocalQueryEncoder, QueryEncoder
from serve.auth import Credentials, StaticTokens
from serve.clients import group_client, remote_encoder
from serve.door import Answers, Door
from serve.guard import Guard, Names, StripHeaders
from serve.http import OPEN_PATHS, HttpDoor
from serve.mcp_door import PATH, McpDoor

_ENCODER_PATIENCE_S = 60.0


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
    return Starlette(
        routes=[Route(PATH, mcp_door), Mount("/", http_door)],
        middleware=[
            Middleware(StripHeaders),
            Middleware(Guard, names=names, credentials=credentials, open_paths=OPEN_PATHS),
        ],
        lifespan=lifespan,
    )


@rayserve.ingress()
class IngressDeployment:
    """Answers HTTP and MCP. Builds its application on the replica: nothing is pickled."""

    def __init__(
        self,
        config_text: str,
        tokens: str | None,
        groups: Sequence[DeploymentHandle[Any]],
        encoder: DeploymentHandle[Any] | None,
    ) -> None:
        """Take the parts.

        Args:
            config_text: the configuration, as `dump_config` wrote it.
            tokens: the path of the token file; None: everybody is anonymous.
            groups: the shard groups that are deployments; empty: one group, in this process.
            encoder: the encoder deployment; None: an encoder in this process.
        """
        self._config = undump_config(config_text)
        self._credentials = None if tokens is None else StaticTokens(Path(tokens))
        position = None if groups else 0
        self._follower = open_follower(self._config, position=position, groups=max(1, len(groups)))
        self._groups = groups
        self._encoder = encoder
        self._knowledge: Knowledge | None = None

    async def _query_encoder(self) -> QueryEncoder:
        if self._encoder is not None:
            return await remote_encoder(self._encoder, _ENCODER_PATIENCE_S)
        return LocalQueryEncoder(open_encoder(self._config.encoder))

    def _clients(self) -> Sequence[GroupClient]:
        if self._groups:
            return [group_client(f"group-{n}", handle) for n, handle in enumerate(self._groups)]
        if self._follower.group is None:
            raise InternalError("no shard group")
        return [self._follower.group]

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application; Serve calls this once, on the replica."""
        encoder = await self._query_encoder()
        knowledge = open_knowledge(self._config, self._follower, self._clients(), encoder)
        self._follower.start()
        self._knowledge = knowledge
        return build_app(knowledge, self._config, self._credentials)

    async def check_health(self) -> None:
        """Tell Serve whether this replica still follows its store.

        Raises:
            InternalError: it does not.
        """
        if not self._follower.healthy():
            raise InternalError("the ingress does not follow the store")

    async def __del__(self) -> None:
        """Close what was opened; Serve awaits this when the replica stops."""
        if self._knowledge is not None:
            await self._knowledge.close()
