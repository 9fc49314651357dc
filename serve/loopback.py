"""Keeping a replica's own port on the loopback interface.

Ray Serve 2.60 binds each replica's port for calls between deployments to all interfaces and has no
setting for it. On a node that is loopback itself, nobody else may reach it.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.serve._private import replica

LOOPBACK = "127.0.0.1"


def keep_replica_local() -> None:
    """Bind the port that this replica is about to open to loopback, if its node is loopback.

    To be called while the deployment is constructed: Serve opens the port after that.
    """
    here: Any = ray.util
    if here.get_node_ip_address() != LOOPBACK:
        return
    module: Any = replica
    bind = module.add_port_to_grpc_server

    def bind_locally(server: object, address: str) -> object:
        return bind(server, address.replace("[::]", LOOPBACK))

    module.add_port_to_grpc_server = bind_locally
