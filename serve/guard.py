"""What stands before every route: header clean-up, Host and Origin, the credential."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.authorization import ANONYMOUS, Principal
from engine.errors import InvalidRequestError, UnauthorizedError
from serve.auth.credentials import Credentials
from serve.door import json_response, refusal

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def bearer(headers: Headers) -> str | None:
    """Return the token of an Authorization header (RFC 6750), or None when there is none."""
    values = headers.getlist("authorization")
    if len(values) != 1:
        return None
    scheme, _, token = values[0].strip().partition(" ")
    return token.strip() if scheme.casefold() == "bearer" and token.strip() else None


def _matches(value: str, allowed: Iterable[str]) -> bool:
    """Say whether a name, with or without a port, is allowed; `:*` allows any port."""
    for pattern in allowed:
        if value == pattern:
            return True
        name = pattern.removesuffix(":*")
        if name != pattern and (value == name or value.startswith(name + ":")):
            return value == name or value[len(name) + 1 :].isdecimal()
    return False


@dataclass(frozen=True, slots=True)
class Names:
    """The Host and Origin headers that are accepted, against DNS rebinding.

    Attributes:
        hosts: names with port, or with `:*` for any port and none.
        origins: origins likewise.
    """

    hosts: tuple[str, ...]
    origins: tuple[str, ...]

    @classmethod
    def of(cls, host: str, hosts: Iterable[str], origins: Iterable[str]) -> Names:
        """Accept loopback names, the listening address, and what is configured."""
        listening = () if host in {"0.0.0.0", "::", ""} else (f"[{host}]" if ":" in host else host,)
        names = dict.fromkeys([*LOOPBACK_NAMES, *listening])
        configured = [name if ":" in name.rpartition("]")[2] else f"{name}:*" for name in hosts]
        return cls(
            hosts=(*(f"{name}:*" for name in names), *configured),
            origins=(*(f"http://{name}:*" for name in names), *origins),
        )

    def accept_host(self, headers: Headers) -> bool:
        """Say whether exactly one Host header came, and names this server."""
        values = headers.getlist("host")
        return len(values) == 1 and _matches(values[0].casefold(), self.hosts)

    def accept_origin(self, headers: Headers) -> bool:
        """Say whether no Origin header came, or one that is accepted."""
        values = headers.getlist("origin")
        return not values or (len(values) == 1 and _matches(values[0].casefold(), self.origins))


class Guard:
    """Stands before an application: Host 421, Origin 403, credential 401, in this order.

    The verified principal is put into the scope's state as `principal`. Paths of `open_paths` need
    no credential. Without credentials everybody is the anonymous reader of public bases, which is
    for loopback only.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: Names,
        credentials: Credentials | None,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._names = names
        self._credentials = credentials
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refused = await self._verdict(scope, Headers(scope=scope))
        await (refused or self._app)(scope, receive, send)

    async def _verdict(self, scope: Scope, headers: Headers) -> Response | None:
        if not self._names.accept_host(headers):
            return json_response(refusal(InvalidRequestError("unknown host"), 421))
        if not self._names.accept_origin(headers):
            return json_response(refusal(InvalidRequestError("origin not allowed"), 403))
        if scope["path"] in self._open_paths:
            return None
        if self._credentials is None:
            principal: Principal | None = ANONYMOUS
        else:
            token = bearer(headers)
            principal = None if token is None else await self._credentials.principal(token)
        if principal is None:
            challenge = 'Bearer error="invalid_token"' if "authorization" in headers else "Bearer"
            refused = refusal(UnauthorizedError())
            return json_response(refused, {"WWW-Authenticate": challenge})
        scope["state"] = {**scope.get("state", {}), "principal": principal}
        return None


class StripHeaders:
    """Takes blanks off the ends of header values, which httptools leaves there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with stripped header values."""
        if scope["type"] == "http":
            headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
            scope = dict(scope, headers=headers)
        await self._app(scope, receive, send)
