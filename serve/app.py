"""The Serve application of a configuration: the only place that binds deployments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray import serve as rayserve
from ray.serve.schema import LoggingConfig

from engine.config import Config, dump_config
from serve.encoder import EncoderDeployment
from serve.group import GroupDeployment
from serve.ingress import IngressDeployment

NAME = "octavo"
REPLICA_CPUS = 0.1
LOGS = LoggingConfig(enable_access_log=False, log_level="WARNING", encoding="JSON")
_COMMON: dict[str, Any] = {
    "ray_actor_options": {"num_cpus": REPLICA_CPUS},
    "health_check_period_s": 2,
    "health_check_timeout_s": 30,
    "graceful_shutdown_timeout_s": 5,
    "graceful_shutdown_wait_loop_s": 0.1,
    "logging_config": LOGS,
    # a first replica that cannot start will not start at the next try either
    "max_constructor_retry_count": 1,
}


def build(config: Config, tokens: Path | None = None) -> rayserve.Application:
    """Bind the application.

    The default is one deployment, the ingress, with the shard group and the encoder in its process.
    Two groups and more are one deployment each, same class: a fan-out over the replicas of one
    deployment does not reach the right ones.

    Args:
        config: the tree; of it `serve`.
        tokens: the token file, read on each ingress replica.
    """
    text, wanted = dump_config(config), config.serve
    # the door sheds load in the contract's words before Serve would in its own
    ongoing = 2 * wanted.max_ongoing_requests
    groups = []
    if wanted.groups > 1 or wanted.group_deployments:
        deployment = rayserve.deployment(max_ongoing_requests=ongoing, **_COMMON)(GroupDeployment)
        groups = [
            deployment.options(
                name=f"group-{position}", num_replicas=wanted.replicas_per_group
            ).bind(text, position, wanted.groups)
            for position in range(wanted.groups)
        ]
    encoder = None
    if wanted.encoder_deployment:
        deployment = rayserve.deployment(max_ongoing_requests=ongoing, **_COMMON)(EncoderDeployment)
        encoder = deployment.options(name="encoder").bind(text)
    ingress = rayserve.deployment(max_ongoing_requests=ongoing, **_COMMON)(IngressDeployment)
    return ingress.options(name="ingress", num_replicas=wanted.ingress_replicas).bind(
        text, None if tokens is None else str(tokens.absolute()), groups, encoder
    )
