"""Fixtures that answer with questions: input-required results of the 2026-07-28 protocol.

What has been asked so far travels sealed in `requestState`: the server keeps nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    GetPromptRequestParams,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)

Context = ServerRequestContext[Any, Any]
Question = CreateMessageRequest | ElicitRequest | ListRootsRequest
Round = Mapping[str, Question]


def _form(message: str, field: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(text: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=9))


_NAME = _form("What is your name?", "name")
_CAPITAL = _sample("What is the capital of France?")
_CONFIRM: Round = {"confirm": _form("Please confirm", "ok", "boolean")}

ASKING_PROMPT = "test_input_required_result_prompt"
ROUNDS: dict[str, tuple[Round, ...]] = {
    "test_input_required_result_elicitation": ({"user_name": _NAME},),
    "test_input_required_result_sampling": ({"capital_question": _CAPITAL},),
    "test_input_required_result_list_roots": ({"client_roots": ListRootsRequest()},),
    "test_input_required_result_request_state": (_CONFIRM,),
    "test_input_required_result_tampered_state": (_CONFIRM,),
    "test_input_required_result_multiple_inputs": (
        {"user_name": _NAME, "greeting": _CAPITAL, "client_roots": ListRootsRequest()},
    ),
    "test_input_required_result_multi_round": (
        {"step1": _NAME},
        {"step2": _form("What is your favorite color?", "color")},
    ),
    "test_input_required_result_capabilities": ({"name": _NAME, "capital": _CAPITAL},),
    "test_streaming_elicitation": ({"user_name": _NAME},),
    ASKING_PROMPT: ({"user_context": _form("Which context?", "context")},),
}


def demand(context: Context, needed: ClientCapabilities) -> None:
    """Refuse a client that has not declared what is needed.

    Raises:
        MCPError: MISSING_REQUIRED_CLIENT_CAPABILITY, with what is needed.
    """
    wanted = needed.model_dump(by_alias=True, mode="json", exclude_none=True)
    if not wanted.keys() <= _declared(context).keys():
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="the client has not declared a capability that this needs",
            data={"requiredCapabilities": wanted},
        )


def _declared(context: Context) -> dict[str, Any]:
    declared = context.session.client_capabilities or ClientCapabilities()
    return declared.model_dump(by_alias=True, mode="json", exclude_none=True)


def _understood(context: Context, questions: Round) -> dict[str, Question]:
    declared = _declared(context)
    return {
        key: question
        for key, question in questions.items()
        if question.method.partition("/")[0] in declared
    }


def converse(
    context: Context, parameters: CallToolRequestParams | GetPromptRequestParams
) -> InputRequiredResult | str:
    """Ask the next questions, or return what was answered last, as JSON.

    `state-ok` stands before it when the state of the last round came back.
    """
    rounds = ROUNDS[parameters.name]
    at = int(parameters.request_state or 0)
    answers = parameters.input_responses or {}
    if rounds[at].keys() <= answers.keys():
        at += 1
    if at < len(rounds):
        questions = _understood(context, rounds[at])
        if not questions:
            demand(context, ClientCapabilities.model_validate({"elicitation": {}}))
        return InputRequiredResult(input_requests=questions, request_state=str(at))
    said = {key: answer.model_dump(mode="json") for key, answer in answers.items()}
    checked = "state-ok " if parameters.request_state is not None else ""
    return checked + json.dumps(said)
