"""What a verified credential says, and what every kind of credential offers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from engine.authorization import Principal
from engine.errors import UnauthorizedError

MAX_TOKEN_CHARS = 8192
"""Longer tokens are refused before anything looks into them."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that was verified.

    Attributes:
        principal: who it stands for.
        token_hashes: `hash_token` of it, and of what else its holder can write it as.
        token_id: its `jti`, or empty.
    """

    principal: Principal
    token_hashes: frozenset[str]
    token_id: str = ""


class RefusedTokenError(UnauthorizedError):
    """A token was refused. The caller learns no more than that; `reason` is for the audit trail.

    Attributes:
        reason: one fixed word or two, never a part of the token.
    """

    def __init__(self, reason: str) -> None:
        Exception.__init__(self, reason)
        self.reason = reason


class Credentials(Protocol):
    """What turns a bearer token into a caller."""

    async def principal(self, token: str) -> Principal | None:
        """Return who a token stands for, or None when it is not valid.

        Raises:
            RefusedTokenError: it is not valid, and why.
            OverloadedError: whether it is valid cannot be told now.
        """
        ...


def hash_token(token: str) -> str:
    """Return the lower-case hexadecimal SHA-256 of a token's UTF-8 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
