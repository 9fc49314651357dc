"""What stands before every route: header clean-up, Host and Origin, credential, rate, body."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.authorization import Principal
from engine.errors import EngineError, InvalidRequestError, OverloadedError, UnauthorizedError
from serve.audit import Trail
from serve.auth.credentials import Credentials
from serve.body import Body, read_body
from serve.door import json_response, refusal
from serve.fairness import Places, Rates
from serve.metadata import ProtectedResource
from serve.visit import Visit

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

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
        accepted = [name.casefold() for name in hosts]  # as the headers are, when compared
        configured = [name if ":" in name.rpartition("]")[2] else f"{name}:*" for name in accepted]
        return cls(
            hosts=(*(f"{name.casefold()}:*" for name in names), *configured),
            origins=(
                *(f"http://{name.casefold()}:*" for name in names),
                *(each.casefold() for each in origins),
            ),
        )

    def accept_host(self, headers: Headers) -> bool:
        """Say whether exactly one Host header came, and names this server."""
        values = headers.getlist("host")
        return len(values) == 1 and _matches(values[0].casefold(), self.hosts)

    def accept_origin(self, headers: Headers) -> bool:
        """Say whether no Origin header came, or one that is accepted."""
        values = headers.getlist("origin")
        return not values or (len(values) == 1 and _matches(values[0].casefold(), self.origins))


@dataclass(frozen=True, slots=True)
class Policy:
    """What a guard goes by.

    Attributes:
        names: the Host and Origin headers that are accepted.
        credentials: None: everybody is the anonymous reader of public bases, for loopback only.
        resource: what a caller without a valid credential is told.
        rates: how often one caller may ask.
        refusals: how often one that asks too often is told so by a door, which costs more.
        bodies: how many requests may be read at once.
        trail: where each request is recorded.
        open_paths: need no credential, are not counted and not recorded.
        max_body_bytes: of a request.
        body_timeout_s: in which a body must have come.
    """

    names: Names
    credentials: Credentials | None
    resource: ProtectedResource
    rates: Rates
    refusals: Rates
    bodies: Places
    trail: Trail
    open_paths: frozenset[str]
    max_body_bytes: int
    body_timeout_s: float


class Guard:
    """Stands before an application: Host 421, Origin 403, credential 401, rate 503, body 413, 408.

    A `Visit` with the verified principal is put into the scope's state as `visit`. The body is read
    before the application begins, so that a slow client holds no place. When the answer is ready,
    the credential is looked at once more: one that was taken back meanwhile gets nothing.
    """

    def __init__(
        self, app: ASGIApp, policy: Policy, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._policy = policy
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # a policy's: there are none here
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, visit = Headers(scope=scope), Visit()
        scope["state"] = {**scope.get("state", {}), "visit": visit}
        secured = scope["path"] not in self._policy.open_paths
        gate = _Exit(self._policy, scope, send, visit, self._clock)
        try:
            refused = self._misdirected(headers)
            if refused is None and secured:
                refused = await self._verdict(headers, visit, gate)
            if refused is None and secured:
                body = await self._body(headers, receive, visit)
                receive = body.replay
                refused = body.refused
            if refused is not None:
                visit.kind = "refused"
            await (refused or self._app)(scope, receive, gate.send)
        finally:
            gate.close(recorded=secured or visit.kind == "refused")

    async def _body(self, headers: Headers, receive: Receive, visit: Visit) -> Body:
        """Read the body. A caller who lets many wait for theirs cannot take every connection."""
        policy = self._policy
        try:
            async with policy.bodies.place(visit.principal.subject):
                return await read_body(
                    headers, receive, policy.max_body_bytes, policy.body_timeout_s
                )
        except OverloadedError as error:
            return Body.unread(refusal(error), receive)

    def _misdirected(self, headers: Headers) -> Response | None:
        if not self._policy.names.accept_host(headers):
            return json_response(refusal(InvalidRequestError("unknown host"), 421))
        if not self._policy.names.accept_origin(headers):
            return json_response(refusal(InvalidRequestError("origin not allowed"), 403))
        return None

    async def _verdict(self, headers: Headers, visit: Visit, gate: _Exit) -> Response | None:
        try:
            if self._policy.credentials is not None:
                token = bearer(headers)
                visit.principal = await _verified(self._policy.credentials, token)
                gate.token = token
        except UnauthorizedError as error:
            visit.reason = getattr(error, "reason", "none given")
            given = "invalid_token" if "authorization" in headers else ""
            challenge = {"WWW-Authenticate": self._policy.resource.challenge(given)}
            return json_response(refusal(error), challenge)
        except OverloadedError as error:
            return json_response(refusal(error))
        early_s = self._policy.rates.charge(visit.principal.subject)
        if early_s:
            overload = OverloadedError("this caller asks too often", early_s)
            if self._policy.refusals.charge(visit.principal.subject):
                return json_response(refusal(overload))
            visit.overload = overload  # said by the door, in the words of its protocol
        return None


async def _verified(credentials: Credentials, token: str | None) -> Principal:
    principal = None if token is None else await credentials.principal(token)
    if principal is None:
        raise UnauthorizedError
    return principal


class _Exit:
    """What every answer passes on its way out."""

    def __init__(
        self, policy: Policy, scope: Scope, send: Send, visit: Visit, clock: Callable[[], float]
    ) -> None:
        self.token: str | None = None
        self._policy = policy
        self._scope = scope
        self._send = send
        self._visit = visit
        self._clock = clock
        self._began = clock()
        self._status = 0
        self._latency_s = 0.0
        self._replaced = False

    async def send(self, message: Message) -> None:
        """Pass a part of an answer on, or put a refusal in its place."""
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            refused = await self._taken_back()
            if refused is not None:
                self._replaced = True
                self._visit.answered = []
                await refused(self._scope, _nothing, self._dispatch)
                return
            self._challenge_scope(message)
        await self._dispatch(message)

    async def _dispatch(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._latency_s = self._clock() - self._began
            MutableHeaders(scope=message)["Octavo-Request-Id"] = self._visit.request_id
        await self._send(message)

    async def _taken_back(self) -> Response | None:
        """Look at the credential again: it may have been taken back while the answer was made."""
        credentials = self._policy.credentials
        if credentials is None or self.token is None:
            return None
        try:
            if await credentials.principal(self.token) == self._visit.principal:
                return None
            refused: EngineError = UnauthorizedError()
        except (UnauthorizedError, OverloadedError) as error:
            refused = error
        self._visit.kind = "refused"
        self._visit.outcome, self._visit.reason = refused.code, "taken back"
        headers = {}
        if isinstance(refused, UnauthorizedError):
            headers["WWW-Authenticate"] = self._policy.resource.challenge("invalid_token")
        return json_response(refusal(refused), headers)

    def _challenge_scope(self, message: Message) -> None:
        """Say which scope lacks. An OAuth client learns it by the status, in MCP too."""
        missing = self._visit.missing_scope
        if not missing or self._policy.credentials is None:
            return
        challenge = self._policy.resource.challenge("insufficient_scope", missing)
        MutableHeaders(scope=message)["WWW-Authenticate"] = challenge
        if self._policy.resource.announced:
            message["status"] = 403

    def close(self, *, recorded: bool) -> None:
        """Write the record of the request. One without an answer has the status 0."""
        visit = self._visit
        if not self._status:
            visit.outcome = "no answer"
        elif visit.outcome == "ok" and self._status >= 400:
            visit.outcome = f"status {self._status}"
        if recorded:
            method = self._scope["method"] if self._scope["method"] in _METHODS else "other"
            self._policy.trail.record(
                visit, method=method, status=self._status, latency_s=self._latency_s
            )


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


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
