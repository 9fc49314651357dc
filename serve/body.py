"""Reading a request's body whole before anything works on it: bounded in size and in time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive

from engine.errors import InvalidRequestError
from serve.door import Reply, json_response, refusal


@dataclass(slots=True)
class Body:
    """A body that was read, or what to answer instead.

    Attributes:
        refused: the answer to a body that is too large or too slow, else None.
    """

    refused: Response | None
    _data: bytes | None
    _receive: Receive

    @classmethod
    def unread(cls, instead: Reply, receive: Receive) -> Body:
        """Answer this instead. What is left of the body is not read: the connection is closed."""
        return cls(json_response(instead, {"Connection": "close"}), None, receive)

    async def replay(self) -> Message:
        """Give the body as one message; then what else comes, as the server says it."""
        data, self._data = self._data, None
        if data is None:
            return await self._receive()
        return {"type": "http.request", "body": data, "more_body": False}


async def read_body(headers: Headers, receive: Receive, limit: int, patience_s: float) -> Body:
    """Read the whole body of a request.

    Args:
        headers: of the request.
        receive: gives its messages.
        limit: bytes that it may have.
        patience_s: seconds in which it must have come.

    Returns:
        The body. Of a client that went away: no data; the next message says so.
    """
    too_large = refusal(InvalidRequestError(f"a body has at most {limit} bytes"), 413)
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length[:20]) > limit:
        return Body.unread(too_large, receive)
    data = bytearray()
    try:
        async with asyncio.timeout(patience_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return Body(None, None, _again(message))
                data += message.get("body", b"")
                if len(data) > limit:
                    return Body.unread(too_large, receive)
                if not message.get("more_body", False):
                    return Body(None, bytes(data), receive)
    except TimeoutError:
        late = refusal(InvalidRequestError("the body did not come in time"), 408)
        return Body.unread(late, receive)


def _again(message: Message) -> Receive:
    async def receive() -> Message:
        return message

    return receive
