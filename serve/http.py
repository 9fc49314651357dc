"""The HTTP door: search, addressed reads, explanations for operators, OpenAPI, health.

Ids are percent-encoded in paths and decoded exactly once, from the raw path, so that an id may hold
any character, `/` and `%2F` included.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from engine.errors import InvalidRequestError
from serve.auth.strict_json import parse_object
from serve.door import Door, Reply, json_response, refusal
from serve.openapi import document
from serve.visit import Visit

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
READ_PARAMETERS = ("offset", "limit_chars", "knowledge_base_id")
_HEX = frozenset(b"0123456789abcdefABCDEF")

Handler = Callable[[Request], Awaitable[Response]]


def decode_segment(segment: bytes) -> str:
    """Percent-decode one raw path segment, exactly once (RFC 3986).

    Raises:
        InvalidRequestError: a `%` without two hexadecimal digits, or not UTF-8.
    """
    parts = segment.split(b"%")
    if any(len(part) < 2 or not _HEX.issuperset(part[:2]) for part in parts[1:]):
        raise InvalidRequestError("the path holds a broken percent-encoding")
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidRequestError("the path is not UTF-8") from None


def parse_body(body: bytes) -> Mapping[str, Any]:
    """Read a JSON object (RFC 8259), strictly.

    Raises:
        InvalidRequestError: it is not UTF-8, not JSON, not an object, names a key twice, holds NaN
            or an infinity, or is nested too deep.
    """
    try:
        return parse_object(body)
    except ValueError as error:
        raise InvalidRequestError(f"the body must be a JSON object in UTF-8: {error}") from None


def parse_query(raw: bytes) -> dict[str, str]:
    """Read the query parameters of an addressed read.

    Raises:
        InvalidRequestError: a parameter is unknown, given twice, or not UTF-8.
    """
    try:
        text = raw.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=32)
    except ValueError:
        raise InvalidRequestError("the query string cannot be read") from None
    for name, _ in pairs:
        if name not in READ_PARAMETERS:
            shown = name if name.isidentifier() and len(name) <= 64 else None
            raise InvalidRequestError(f"unknown parameter {shown or ''}".rstrip(), shown)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRequestError("a parameter is given twice")
    return found


def raw_path(scope: Scope) -> bytes:
    """Return the path as it was sent, without a query string."""
    sent = scope.get("raw_path")
    path = sent if isinstance(sent, bytes) else scope["path"].encode("utf-8")
    return path.partition(b"?")[0]


class HttpDoor:
    """An ASGI application over one `Door`. `Guard` has read the body and made the visit."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._document = document()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            response = await self._dispatch(request, raw_path(scope))
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _dispatch(self, request: Request, path: bytes) -> Response:
        handler, method = self._route(path)
        if handler is None:
            return json_response(refusal(InvalidRequestError("no such path"), 404))
        if request.method != method and not (request.method == "HEAD" and method == "GET"):
            error = InvalidRequestError(f"only {method} is allowed here")
            return json_response(refusal(error, 405), {"Allow": method})
        return await handler(request)

    def _route(self, path: bytes) -> tuple[Handler | None, str]:
        fixed: dict[bytes, tuple[Handler, str]] = {
            b"/v1/search": (self._search, "POST"),
            b"/v1/explain": (self._explain, "POST"),
            b"/openapi.json": (self._openapi, "GET"),
            b"/healthz": (self._healthz, "GET"),
            b"/readyz": (self._readyz, "GET"),
        }
        if path in fixed:
            return fixed[path]
        match path.split(b"/"):
            case [b"", b"v1", b"items", item] if item:
                return self._reader(item, None), "GET"
            case [b"", b"v1", b"items", item, b"revisions", revision] if item and revision:
                return self._reader(item, revision), "GET"
        return None, ""

    def _reader(self, item: bytes, revision: bytes | None) -> Handler:
        async def read(request: Request) -> Response:
            try:
                arguments: Mapping[str, Any] | InvalidRequestError = {
                    **parse_query(request.scope["query_string"]),
                    "knowledge_item_id": decode_segment(item),
                    "knowledge_revision_id": "" if revision is None else decode_segment(revision),
                }
            except InvalidRequestError as error:
                arguments = error
            return await self._ask(request, arguments)

        return read

    async def _search(self, request: Request) -> Response:
        return await self._posted(request, explain=False)

    async def _explain(self, request: Request) -> Response:
        return await self._posted(request, explain=True)

    async def _posted(self, request: Request, *, explain: bool) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().casefold()
        if kind != "application/json":
            error = InvalidRequestError("the content type must be application/json")
            return json_response(refusal(error, 415))
        try:
            arguments: Mapping[str, Any] | InvalidRequestError = parse_body(await request.body())
        except InvalidRequestError as error:
            arguments = error
        return await self._ask(request, arguments, explain=explain)

    async def _ask(
        self,
        request: Request,
        arguments: Mapping[str, Any] | InvalidRequestError,
        *,
        explain: bool = False,
    ) -> Response:
        visit: Visit = request.state.visit
        reply = await self._door.reply(arguments, visit.principal, explain=explain, visit=visit)
        return json_response(reply)

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002  a handler's shape
        return json_response(Reply(self._document))

    async def _healthz(self, request: Request) -> Response:  # noqa: ARG002  a handler's shape
        return PlainTextResponse("ok\n", headers={"Cache-Control": "no-store"})

    async def _readyz(self, request: Request) -> Response:  # noqa: ARG002  a handler's shape
        ready = await self._door.ready()
        headers = {"Cache-Control": "no-store"} | ({} if ready else {"Retry-After": "1"})
        return PlainTextResponse(
            "ready\n" if ready else "not ready\n", 200 if ready else 503, headers
        )
