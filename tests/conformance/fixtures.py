"""The tools, prompts and resources that the conformance suite asks a server for.

They stand in the place of the product's tool, so that the suite tries the transport for real.
"""

from __future__ import annotations

import json
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    AudioContent,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmbeddedResource,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)

from tests.conformance.asking import ASKING_PROMPT, ROUNDS, converse, demand

Context = ServerRequestContext[Any, Any]

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8"
    "z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
_IMAGE = ImageContent(type="image", data=PNG, mime_type="image/png")
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
_IN_HEADER: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
}
_STATIC = "test://static-text"
_BINARY = "test://static-binary"


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    resource = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=resource)


_ANSWERS: dict[str, CallToolResult] = {
    "test_simple_text": CallToolResult(
        content=[_text("This is a simple text response for testing.")]
    ),
    "test_image_content": CallToolResult(content=[_IMAGE]),
    "test_audio_content": CallToolResult(
        content=[AudioContent(type="audio", data=WAV, mime_type="audio/wav")]
    ),
    "test_embedded_resource": CallToolResult(
        content=[_embedded("test://embedded-resource", "text/plain", "An embedded resource.")]
    ),
    "test_multiple_content_types": CallToolResult(
        content=[
            _text("Multiple content types test:"),
            _IMAGE,
            _embedded("test://mixed-content-resource", "application/json", json.dumps({"a": 1})),
        ]
    ),
    "test_error_handling": CallToolResult(
        content=[_text("This tool intentionally returns an error for testing")], is_error=True
    ),
    "json_schema_2020_12_tool": CallToolResult(content=[_text("ok")]),
    "test_custom_header": CallToolResult(content=[_text("ok")]),
    "test_missing_capability": CallToolResult(content=[_text("the client can sample")]),
    "test_logging_tool": CallToolResult(content=[_text("logged")]),
}

_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


_SCHEMAS: dict[str, dict[str, Any]] = {
    **dict.fromkeys([*_ANSWERS, *(ROUNDS.keys() - {ASKING_PROMPT})], _NOTHING),
    "json_schema_2020_12_tool": _SCHEMA_2020_12,
    "test_custom_header": _IN_HEADER,
}


async def _list_tools(context: Context, parameters: PaginatedRequestParams | None) -> Any:
    return ListToolsResult(
        tools=[
            Tool(name=name, description=f"Answers {name}.", input_schema=schema)
            for name, schema in _SCHEMAS.items()
        ]
    )


async def _call_tool(
    context: Context, parameters: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    if parameters.name not in _SCHEMAS:
        raise MCPError(code=INVALID_PARAMS, message="unknown tool")
    if parameters.name == "test_missing_capability":
        demand(context, ClientCapabilities.model_validate({"sampling": {}}))
    if parameters.name == "test_logging_tool":
        await context.session.send_log_message("info", "a message that nobody asked for")
    if parameters.name in _ANSWERS:
        return _ANSWERS[parameters.name]
    said = converse(context, parameters)
    return CallToolResult(content=[_text(said)]) if isinstance(said, str) else said


async def _list_resources(context: Context, parameters: PaginatedRequestParams | None) -> Any:
    return ListResourcesResult(
        resources=[
            Resource(uri=_STATIC, name="text", description="A text.", mime_type="text/plain"),
            Resource(uri=_BINARY, name="binary", description="A picture.", mime_type="image/png"),
        ]
    )


async def _list_templates(context: Context, parameters: PaginatedRequestParams | None) -> Any:
    template = ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="template",
        description="Data by id.",
        mime_type="application/json",
    )
    return ListResourceTemplatesResult(resource_templates=[template])


async def _read_resource(context: Context, parameters: ReadResourceRequestParams) -> Any:
    uri = str(parameters.uri)
    if uri == _STATIC:
        text = "This is the content of the static text resource."
        return ReadResourceResult(
            contents=[TextResourceContents(uri=uri, mime_type="text/plain", text=text)]
        )
    if uri == _BINARY:
        return ReadResourceResult(
            contents=[BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)]
        )
    if uri.startswith("test://template/") and uri.endswith("/data"):
        number = uri.removeprefix("test://template/").removesuffix("/data")
        text = json.dumps({"id": number, "templateTest": True, "data": f"Data for ID: {number}"})
        return ReadResourceResult(
            contents=[TextResourceContents(uri=uri, mime_type="application/json", text=text)]
        )
    raise MCPError(code=INVALID_PARAMS, message="Resource not found", data={"uri": uri})


def _argument(name: str) -> PromptArgument:
    return PromptArgument(name=name, description=f"The {name}.", required=True)


_PROMPTS = (
    Prompt(name="test_simple_prompt", description="A simple prompt."),
    Prompt(
        name="test_prompt_with_arguments",
        description="A prompt with arguments.",
        arguments=[_argument("arg1"), _argument("arg2")],
    ),
    Prompt(
        name="test_prompt_with_embedded_resource",
        description="A prompt with a resource.",
        arguments=[_argument("resourceUri")],
    ),
    Prompt(name="test_prompt_with_image", description="A prompt with a picture."),
    Prompt(name=ASKING_PROMPT, description="A prompt that asks first."),
)


async def _list_prompts(context: Context, parameters: PaginatedRequestParams | None) -> Any:
    return ListPromptsResult(prompts=list(_PROMPTS))


async def _get_prompt(context: Context, parameters: GetPromptRequestParams) -> Any:
    given = parameters.arguments or {}
    contents: dict[str, list[Any]] = {
        "test_simple_prompt": [_text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [
            _text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
        ],
        "test_prompt_with_embedded_resource": [
            _embedded(given.get("resourceUri", _STATIC), "text/plain", "Embedded for testing."),
            _text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": [_IMAGE, _text("Please analyze the image above.")],
    }
    if parameters.name == ASKING_PROMPT:
        said = converse(context, parameters)
        if not isinstance(said, str):
            return said
        contents[ASKING_PROMPT] = [_text(said)]
    if parameters.name not in contents:
        raise MCPError(code=INVALID_PARAMS, message="unknown prompt")
    return GetPromptResult(
        messages=[PromptMessage(role="user", content=part) for part in contents[parameters.name]]
    )


async def _complete(context: Context, parameters: CompleteRequestParams) -> CompleteResult:
    return CompleteResult(completion=Completion(values=[], total=0, has_more=False))


def fixture_server() -> Server[Any]:
    """Make the server that the suite expects, as far as one answer to one request carries it."""
    server: Server[Any] = Server(
        "octavo-fixtures",
        version="0.1.0",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
        get_tool_input_schema=_SCHEMAS.get,
    )
    sealed = RequestStateSecurity.ephemeral()
    server.middleware.append(RequestStateBoundary(sealed, default_audience=server.name))
    return server
