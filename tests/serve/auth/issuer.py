"""A real issuer on this machine: keys, tokens, a JWK set and a discovery document over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from engine.access_config import AuthConfig

AUDIENCE = "https://kb.example/mcp"
NOW = 1_900_000_000.0
CURVES: dict[str, ec.EllipticCurve] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def private_key(algorithm: str, label: str = "") -> PrivateKey:
    """Return a key for an algorithm, the same for the same label: RSA keys take long to make."""
    return _private_key(algorithm, label)


@cache
def _private_key(algorithm: str, label: str) -> PrivateKey:
    if algorithm in CURVES:
        return ec.generate_private_key(CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk_of(key: PrivateKey, **members: Any) -> dict[str, Any]:
    """Return the public JWK of a key, with further members; a member of None is left out."""
    if isinstance(key, rsa.RSAPrivateKey):
        found = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        found = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        found = OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    found.pop("key_ops", None)
    return {name: value for name, value in {**found, **members}.items() if value is not None}


@dataclass
class Issuer:
    """An issuer that runs.

    Attributes:
        url: its `iss`.
        keys: the JWK set that it publishes.
        replies: path to (status, headers, body), sent instead of what it would send.
        fetched: the paths that were asked for.
        held: requests wait until it is set.
    """

    url: str
    keys: list[dict[str, Any]] = field(default_factory=list)
    replies: dict[str, tuple[int, Mapping[str, str], bytes]] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)

    def publish(self, algorithm: str = "ES256", label: str = "", **members: Any) -> PrivateKey:
        """Add a key to the set, under its label as `kid`; return it."""
        key = private_key(algorithm, label)
        self.keys.append(jwk_of(key, **{"kid": label or algorithm, **members}))
        return key

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return claims that are accepted at `NOW`; a change to None removes one."""
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": int(NOW) - 10,
            "exp": int(NOW) + 600,
            "scope": "openid knowledge:read",
            "groups": ["red", "blue"],
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self,
        algorithm: str = "ES256",
        label: str = "",
        headers: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Return a token signed by a key, whether that is published or not."""
        head = {"kid": label or algorithm, **(headers or {})}
        key = private_key(algorithm, label)
        return jwt.encode(self.claims(**changes), key, algorithm, head)

    def config(self, **changes: Any) -> dict[str, Any]:
        """Return the configuration of this issuer."""
        return {"name": "corp", "issuer": self.url, "audience": [AUDIENCE], **changes}

    def auth(self, **changes: Any) -> AuthConfig:
        """Return a configuration with this issuer alone."""
        return AuthConfig.model_validate(
            {"issuers": [self.config()], "resource_url": AUDIENCE, **changes}
        )

    def reply(self, path: str) -> tuple[int, Mapping[str, str], bytes]:
        """Return what is sent for a path."""
        self.fetched.append(path)
        if path in self.replies:
            return self.replies[path]
        documents = {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/jwks",
            },
            "/jwks": {"keys": self.keys},
        }
        if path not in documents:
            return 404, {}, b"{}"
        return 200, {"content-type": "application/json"}, json.dumps(documents[path]).encode()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.issuer.held.wait(60)
        status, headers, body = server.issuer.reply(self.path)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    issuer: Issuer
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that go away are part of the tests."""


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """Run an issuer with one published key, for `ES256`."""
    server = _Server(("127.0.0.1", 0), _Handler)
    issuer = server.issuer = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
    issuer.held.set()
    issuer.publish()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield issuer
    finally:
        issuer.held.set()
        server.shutdown()
        thread.join()
        server.server_close()
