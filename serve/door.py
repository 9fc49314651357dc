"""What every door shares: whom it asks, and how any failure becomes an answer of the contract."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
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
)

logger = logging.getLogger(__name__)

_DISABLED_RETRY_S = 5


class Answers(Protocol):
    """What a door asks: `engine.search.answering.Knowledge`, whatever serves the shards."""

    async def answer(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        """Answer one call of the contract; raises `EngineError` with the contract's codes."""
        ...

    async def ready(self) -> bool:
        """Say whether queries can be answered: a settled generation, or a store known empty."""
        ...


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


def fault(error: BaseException) -> Reply:
    """Turn a failure that no caller may see into a fault id, and log it under that id."""
    number = uuid4().hex
    logger.error("call failed", exc_info=error, extra={"fault": number})
    return refusal(InternalError(number))


class Door:
    """Answers calls, at most `limit` at a time; nothing that goes wrong inside gets out."""

    def __init__(self, answers: Answers, limit: int = 64) -> None:
        self._answers = answers
        self._limit = limit
        self._running = 0

    async def ready(self) -> bool:
        """Say whether queries can be answered."""
        try:
            return await self._answers.ready()
        except EngineError:
            return False

    async def reply(
        self, arguments: Mapping[str, Any] | InvalidRequestError, principal: Principal
    ) -> Reply:
        """Answer one call.

        Args:
            arguments: raw, as the caller sent them; or what is wrong with their form, which is
                said only to a caller who may ask at all.
            principal: the verified caller.
        """
        if self._running >= self._limit:
            return refusal(OverloadedError(f"{self._limit} requests are running already"))
        self._running += 1
        try:
            if isinstance(arguments, InvalidRequestError):
                # asked with nothing: a switched-off runtime or a missing scope is said first
                await self._answers.answer({}, principal)
                return refusal(arguments)
            return Reply(await self._answers.answer(arguments, principal))
        except QueryRequiredError as error:
            return refusal(arguments if isinstance(arguments, InvalidRequestError) else error)
        except EngineError as error:
            if error.code in HTTP_STATUS:
                return refusal(error)
            return fault(error)
        except Exception as error:  # noqa: BLE001  the one catch-all: no exception text gets out
            return fault(error)
        finally:
            self._running -= 1
