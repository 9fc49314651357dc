"""The MCP door: one tool, over streamable HTTP and stdio; and a bridge from stdio to HTTP.

The only module that imports mcp. Both protocol eras (handshake, 2026-07-28) come in here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PARSE_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.authorization import Principal
from engine.contract import SEARCH_KNOWLEDGE_SCHEMA, TOOL_DESCRIPTION, TOOL_NAME, TOOL_TITLE
from engine.errors import InvalidRequestError, OperatorError
from serve.auth.strict_json import parse_object
from serve.door import Answers, Door, Reply, json_response, json_text, refusal
from serve.visit import Visit

PATH = "/mcp"
VERSION = "0.1.0"
_CONNECT_S = 5.0
_CALL_S = 60.0

Context = ServerRequestContext[Any, Any]

TOOL = Tool(
    name=TOOL_NAME,
    title=TOOL_TITLE,
    description=TOOL_DESCRIPTION,
    input_schema=SEARCH_KNOWLEDGE_SCHEMA,
    annotations=ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    ),
)


def _result(reply: Reply) -> CallToolResult:
    text = json_text(reply.body).decode("utf-8")
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=reply.body,
        is_error=reply.is_error,
    )


def _schema(name: str) -> Mapping[str, Any] | None:
    return SEARCH_KNOWLEDGE_SCHEMA if name == TOOL_NAME else None


def _visit(context: Context) -> Visit:
    """Return the visit that `Guard` put into the request's state."""
    if context.request is None:
        raise MCPError(code=INTERNAL_ERROR, message="no request")
    visit: Visit = context.request.state.visit
    return visit


def build_server(door: Door, principal: Principal | None = None) -> Server[Any]:
    """Make the server of the one tool.

    Args:
        door: answers the calls.
        principal: who calls, when that is fixed; else `Guard` has put a visit into the state.
    """

    async def list_tools(
        context: Context,  # noqa: ARG001  a handler's shape
        parameters: PaginatedRequestParams | None,  # noqa: ARG001  a handler's shape
    ) -> ListToolsResult:
        return ListToolsResult(tools=[TOOL])

    async def call_tool(context: Context, parameters: CallToolRequestParams) -> CallToolResult:
        if parameters.name != TOOL_NAME:
            raise MCPError(code=INVALID_PARAMS, message="unknown tool")
        visit = _visit(context) if principal is None else Visit(principal=principal)
        arguments = parameters.arguments or {}
        return _result(await door.reply(arguments, visit.principal, visit=visit))

    return Server(
        "octavo",
        version=VERSION,
        title="Octavo",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=_schema,
    )


class McpDoor:
    """An ASGI application for `PATH`, stateless, one JSON body a call. POST only."""

    def __init__(self, door: Door, *, max_body_bytes: int) -> None:
        self._server = build_server(door)
        # Host and Origin are checked by `Guard`, for every route alike.
        unguarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        self._app: ASGIApp = self._server.streamable_http_app(
            streamable_http_path=PATH,
            stateless_http=True,
            json_response=True,
            max_request_body_size=max_body_bytes,
            transport_security=unguarded,
        )

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests can be answered; to be entered once."""
        return self._server.session_manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. GET would hold a stream open for ever, DELETE has no session."""
        if scope["method"] != "POST":
            refused = refusal(InvalidRequestError("only POST is allowed here"), 405)
            await json_response(refused, {"Allow": "POST"})(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await request.body()
            parse_object(body)
        except ClientDisconnect:
            return
        except ValueError as error:
            await _unreadable(str(error))(scope, receive, send)
            return
        await self._app(scope, _again(body, receive), send)


def _unreadable(reason: str) -> Response:
    """Return JSON-RPC's answer to what cannot be read (JSON-RPC 2.0, section 5.1)."""
    told = {"code": PARSE_ERROR, "message": f"the body cannot be read: {reason}"}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": told}, 400)


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives a body that was read, then what else comes: a disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def serve_stdio(answers: Answers, principal: Principal) -> None:
    """Answer one client on standard input and output until it closes them."""
    server = build_server(Door(answers), principal)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


@asynccontextmanager
async def _upstream(url: str, token: str | None, statuses: list[int]) -> AsyncIterator[Client]:
    """Connect; the status of the last response lies in `statuses`: the client's errors hide it."""

    async def remember(response: httpx2.Response) -> None:
        statuses[:] = [response.status_code]

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx2.Timeout(_CALL_S, connect=_CONNECT_S)
    hooks = {"response": [remember]}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks=hooks) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def serve_bridge(url: str, token: str | None = None) -> None:
    """Pass one client on standard input and output through to a running server.

    Args:
        url: of the server's MCP endpoint.
        token: its bearer token, if it wants one.

    Raises:
        OperatorError: the server cannot be reached, or refuses the token.
    """
    last: list[int] = []
    try:
        async with _upstream(url, token, last) as client:
            await _relay(client)
    except* (httpx2.HTTPError, MCPError) as group:
        refused = bool(last) and last[0] >= 400
        reason = _refusal(last[0], token) if refused else _first(group)
        raise OperatorError(f"{url}: {reason}") from None


def _refusal(status: int, token: str | None) -> str:
    if status == 401:
        wanted = "another one" if token else "one"
        return f"the server wants a valid token (401): put {wanted} into OCTAVO_TOKEN"
    return f"the server answered with status {status}: is this the address of its MCP endpoint?"


def _first(group: BaseExceptionGroup[BaseException]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


async def _relay(client: Client) -> None:
    async def list_tools(
        context: Context,  # noqa: ARG001  a handler's shape
        parameters: PaginatedRequestParams | None,  # noqa: ARG001  a handler's shape
    ) -> ListToolsResult:
        return await client.list_tools()

    async def call_tool(
        context: Context,  # noqa: ARG001  a handler's shape
        parameters: CallToolRequestParams,
    ) -> CallToolResult:
        return await client.call_tool(parameters.name, parameters.arguments or {})

    server: Server[Any] = Server(
        "octavo", version=VERSION, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
