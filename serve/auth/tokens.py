"""The token file: hashed tokens, read again when it changes.

The file holds SHA-256 hashes only. A token is 256 random bits, so a plain hash cannot be reversed.
Its names are local: they hold no `#`, which qualifies the names of issuers.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engine.authorization import READ_SCOPE, Principal, is_local
from engine.errors import ConfigurationError
from serve.auth.credentials import MAX_TOKEN_CHARS, Verified, hash_token
from serve.auth.tree import parse_tree
from serve.auth.watching import WatchedFile


def _local(name: str) -> str:
    if not is_local(name):
        raise ValueError("must not hold '#', which qualifies the names of issuers")
    return name


LocalName = Annotated[str, AfterValidator(_local)]


class TokenEntry(BaseModel):
    """One token of the file, by its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    subject: LocalName = Field(min_length=1)
    teams: tuple[LocalName, ...] = ()
    scopes: tuple[str, ...] = (READ_SCOPE,)
    organization: str = ""


class TokenFile(BaseModel):
    """The whole file: YAML or JSON with one key, `tokens`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: tuple[TokenEntry, ...]


def make_token(
    subject: str,
    *,
    teams: Iterable[str] = (),
    scopes: Iterable[str] = (READ_SCOPE,),
    organization: str = "",
) -> tuple[str, dict[str, Any]]:
    """Make a token and the entry of the token file for it.

    Returns:
        The token, to be handed to its holder and kept nowhere; and its entry, which holds the
        hash only.

    Raises:
        ConfigurationError: the subject is empty, or a name is not local.
    """
    teams = list(teams)
    if not subject:
        raise ConfigurationError("a token needs a subject")
    if not all(map(is_local, (subject, *teams))):
        raise ConfigurationError("'#' qualifies the names of issuers: a token's names hold none")
    token = "octavo_" + secrets.token_urlsafe(32)
    entry: dict[str, Any] = {
        "sha256": hash_token(token),
        "subject": subject,
        "teams": teams,
        "scopes": list(scopes),
        "organization": organization,
    }
    return token, entry


def parse_tokens(text: str, source: str) -> tuple[TokenEntry, ...]:
    """Read the text of a token file (YAML, of which JSON is a part).

    Raises:
        ConfigurationError: it is not YAML, or does not have the shape of a token file.
    """
    return parse_tree(TokenFile, text, source).tokens


def _principals(text: str, source: str) -> tuple[tuple[bytes, Principal], ...]:
    return tuple(
        (
            entry.sha256.encode(),
            Principal(
                subject=entry.subject,
                teams=frozenset(entry.teams) - {""},
                scopes=frozenset(entry.scopes),
                organization=entry.organization,
            ),
        )
        for entry in parse_tokens(text, source)
    )


class StaticTokens:
    """The tokens of a file, followed: a token that is removed is refused within a second.

    While the file is missing or malformed, no token is accepted and none is refused: whoever asks
    is told to ask again.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            ConfigurationError: it cannot be read or has not the right shape.
        """
        self._file = WatchedFile(path, _principals, clock=clock)

    async def verify(self, token: str) -> Verified | None:
        """Return what a token stands for, or None. All entries are compared, in constant time.

        Raises:
            OverloadedError: the file cannot be confirmed.
        """
        if len(token) > MAX_TOKEN_CHARS:
            return None
        entries = await self._file.value()
        digest = hash_token(token)
        given = digest.encode()
        found: Principal | None = None
        for known, principal in entries:
            if hmac.compare_digest(known, given):
                found = principal
        return None if found is None else Verified(found, frozenset({digest}))

    async def principal(self, token: str) -> Principal | None:
        """Return who a token stands for, or None.

        Raises:
            OverloadedError: the file cannot be confirmed.
        """
        verified = await self.verify(token)
        return None if verified is None else verified.principal
