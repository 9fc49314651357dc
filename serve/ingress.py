"""The ingress deployment: the coordinator and the doors, on a replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray import serve as rayserve
from ray.serve.handle import DeploymentHandle
from ray.util.metrics import Counter
from starlette.types import ASGIApp

from engine.config import undump_config
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError, InternalError
from engine.local import open_follower, open_knowledge
from engine.search.answering import Knowledge
from engine.search.client import GroupClient
from engine.search.encoding import LocalQueryEncoder, QueryEncoder
from serve.audit import Trail, open_audit
from serve.auth.opening import open_credentials
from serve.clients import group_client, remote_encoder
from serve.doors import build_app
from serve.health import Health
from serve.logs import open_log
from serve.loopback import keep_replica_local

_ENCODER_PATIENCE_S = 60.0


def _counter() -> Callable[[str, str], None]:
    """Return what counts requests in Ray's metrics: few kinds and outcomes, no names, no ids."""
    counter = Counter(
        "octavo_requests", description="Requests answered.", tag_keys=("kind", "outcome")
    )

    def count(kind: str, outcome: str) -> None:
        counter.inc(1.0, {"kind": kind, "outcome": outcome})

    return count


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
            tokens: the path of the token file, if there is one.
            groups: the shard groups that are deployments; empty: one group, in this process.
            encoder: the encoder deployment; None: an encoder in this process.
        """
        keep_replica_local()
        self._config = undump_config(config_text)
        open_log(self._config)
        self._credentials = open_credentials(self._config, None if tokens is None else Path(tokens))
        open_audit(self._config, credentials=self._credentials is not None)
        position = None if groups else 0
        self._follower = open_follower(self._config, position=position, groups=max(1, len(groups)))
        self._health = Health(self._follower.healthy)
        self._groups = groups
        self._encoder = encoder
        self._knowledge: Knowledge | None = None

    async def _query_encoder(self) -> QueryEncoder:
        if self._encoder is not None:
            return await remote_encoder(self._encoder, _ENCODER_PATIENCE_S)
        return LocalQueryEncoder(open_encoder(self._config.encoder))

    def _require_space(self, encoder: QueryEncoder) -> None:
        for record in self._follower.records()[:1]:
            if record.encoder != encoder.fingerprint:
                reason = f"generation {record.number} was made by another encoder"
                raise EncoderError(f"{reason}: configure the one it was made with, or reindex")

    def _clients(self) -> Sequence[GroupClient]:
        if self._groups:
            return [group_client(f"group-{n}", handle) for n, handle in enumerate(self._groups)]
        if self._follower.group is None:
            raise InternalError("no shard group")
        return [self._follower.group]

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application; Serve calls this once, on the replica."""
        encoder = await self._query_encoder()
        self._require_space(encoder)
        knowledge = open_knowledge(self._config, self._follower, self._clients(), encoder)
        self._knowledge = knowledge
        return build_app(knowledge, self._config, self._credentials, Trail(_counter()))

    async def check_health(self) -> None:
        """Tell Serve whether this replica is worth keeping.

        Raises:
            InternalError: it has not followed its store for long.
        """
        self._health.require()

    async def __del__(self) -> None:
        """Close what was opened; Serve awaits this when the replica stops."""
        if self._knowledge is not None:
            await self._knowledge.close()
