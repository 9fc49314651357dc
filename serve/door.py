"""What every door shares: whom it asks, and how any failure becomes an answer of the contract."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

import orjson
from starlette.responses import Response

from engine.authorization import Principal
from engine.contract import HTTP_STATUS, render_error
from engine.errors import (
    EngineError,
    InternalError,
    InvalidRequestError,
    OverloadedError,
    QueryRequiredError,
    ScopeRequiredError,
)
from serve.fairness import Limits, Places
from serve.visit import Visit

logger = logging.getLogger(__name__)

_DISABLED_RETRY_S = 5


class Answers(Protocol):
    """What a door asks: `engine.search.answering.Knowledge`, whatever serves the shards."""

    async def answer(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        """Answer one call of the contract; raises `EngineError` with the contract's codes."""
        ...

    async def explain(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        """Answer a search and show its arithmetic, for operators; raises as `answer` does."""
        ...

    async def ready(self) -> bool:
        """Say whether queries can be answered: a settled generation, or a store known empty."""
        ...


Ask = Callable[[Mapping[str, Any], Principal], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the contract.

    Attributes:
        body: the JSON object.
        status: the HTTP status of it.
        retry_after_s: whole seconds to wait before asking again, when that makes sense.
    """

    body: dict[str, Any]
    status: int = 200
    retry_after_s: int | None = None

    @property
    def is_error(self) -> bool:
        """Say whether the body is an error of the contract."""
        return self.status != 200


def json_text(body: Mapping[str, Any]) -> bytes:
    """Return an answer as compact UTF-8 JSON, without ASCII escapes."""
    return orjson.dumps(body)


def json_response(reply: Reply, headers: Mapping[str, str] | None = None) -> Response:
    """Return the HTTP response of a reply."""
    extra = {"Cache-Control": "no-store", **(headers or {})}
    if reply.retry_after_s is not None:
        extra["Retry-After"] = str(reply.retry_after_s)
    content = json_text(reply.body)
    return Response(content, reply.status, extra, media_type="application/json")


def refusal(error: EngineError, status: int | None = None) -> Reply:
    """Turn an error with a code of the contract into its reply, under its status or another."""
    number = status if status is not None else HTTP_STATUS[error.code]
    wait: int | None = None
    if isinstance(error, OverloadedError):
        wait = max(1, math.ceil(error.retry_after_s))
    elif number == 503:
        wait = _DISABLED_RETRY_S
    return Reply(render_error(error), number, wait)


def fault(error: BaseException, request_id: str = "") -> Reply:
    """Turn a failure that no caller may see into a fault id, and log it under that id.

    Args:
        error: what went wrong.
        request_id: of the request, if there was one.
    """
    number = uuid4().hex
    extra = {"fault": number, "request": request_id}
    logger.error("call failed", exc_info=error, extra=extra)
    return refusal(InternalError(number))


class Door:
    """Answers calls, as many at a time as the limits say; nothing that goes wrong gets out."""

    def __init__(self, answers: Answers, limits: Limits | None = None) -> None:
        self._answers = answers
        self._places = Places(limits or Limits())

    async def ready(self) -> bool:
        """Say whether queries can be answered."""
        try:
            return await self._answers.ready()
        except EngineError:
            return False

    async def reply(
        self,
        arguments: Mapping[str, Any] | InvalidRequestError,
        principal: Principal,
        *,
        explain: bool = False,
        visit: Visit | None = None,
    ) -> Reply:
        """Answer one call.

        Args:
            arguments: raw, as the caller sent them; or what is wrong with their form, which is
                said only to a caller who may ask at all.
            principal: the verified caller.
            explain: show the arithmetic of a search, to operators only.
            visit: the request that brings the call; what it turns out to be is noted in it.
        """
        visit = visit or Visit(principal=principal)
        if isinstance(arguments, InvalidRequestError):
            visit.kind = "invalid"
        else:
            visit.note_arguments(arguments, "explain" if explain else None)
        ask = self._answers.explain if explain else self._answers.answer
        try:
            if visit.overload is not None:
                raise visit.overload
            async with self._places.place(principal.subject):
                reply = await self._asked(ask, arguments, principal)
        except ScopeRequiredError as error:
            visit.missing_scope = error.scope
            reply = refusal(error)
        except EngineError as error:
            known = error.code in HTTP_STATUS
            reply = refusal(error) if known else fault(error, visit.request_id)
        except Exception as error:  # noqa: BLE001  the one catch-all: no exception text gets out
            reply = fault(error, visit.request_id)
        visit.note_answer(reply.body)
        return reply

    async def _asked(
        self, ask: Ask, arguments: Mapping[str, Any] | InvalidRequestError, principal: Principal
    ) -> Reply:
        if not isinstance(arguments, InvalidRequestError):
            return Reply(await ask(arguments, principal))
        with suppress(QueryRequiredError):
            # asked with nothing: a switched-off runtime or a missing scope is said first
            await ask({}, principal)
        return refusal(arguments)
