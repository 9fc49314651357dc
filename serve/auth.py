"""Credentials: a file of hashed tokens, read again when it changes.

The file holds SHA-256 hashes only. A token is 256 random bits, so a plain hash cannot be reversed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.authorization import READ_SCOPE, Principal
from engine.errors import ConfigurationError

logger = logging.getLogger(__name__)

_MAX_TOKEN_CHARS = 8192
_RECHECK_S = 1.0


class TokenEntry(BaseModel):
    """One token of the file, by its hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    subject: str = Field(min_length=1)
    teams: tuple[str, ...] = ()
    scopes: tuple[str, ...] = (READ_SCOPE,)
    organization: str = ""


class TokenFile(BaseModel):
    """The whole file: YAML or JSON with one key, `tokens`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: tuple[TokenEntry, ...]


class Credentials(Protocol):
    """What turns a bearer token into a caller."""

    async def principal(self, token: str) -> Principal | None:
        """Return who a token stands for, or None when it is not valid."""
        ...


def hash_token(token: str) -> str:
    """Return the lower-case hexadecimal SHA-256 of a token's UTF-8 bytes."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


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
        ConfigurationError: the subject is empty.
    """
    if not subject:
        raise ConfigurationError("a token needs a subject")
    token = "octavo_" + secrets.token_urlsafe(32)
    entry: dict[str, Any] = {
        "sha256": hash_token(token),
        "subject": subject,
        "teams": list(teams),
        "scopes": list(scopes),
        "organization": organization,
    }
    return token, entry


def parse_tokens(text: str, source: str) -> tuple[TokenEntry, ...]:
    """Read the text of a token file (YAML, of which JSON is a part).

    Raises:
        ConfigurationError: it is not YAML, or does not have the shape of a token file.
    """
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigurationError(f"{source}: is not YAML") from None
    try:
        return TokenFile.model_validate(tree).tokens
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigurationError(f"{source}: {where}: {first['msg']}") from None


@dataclass(frozen=True, slots=True)
class _Stamp:
    modified_ns: int
    size: int
    inode: int


class StaticTokens:
    """The tokens of a file, read again when it changes, checked at most every second.

    A file that turns bad keeps the last good one in force; the first reading must succeed.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            ConfigurationError: it cannot be read or has not the right shape.
        """
        self._path = path
        self._clock = clock
        self._checked = clock()
        self._stamp = self._look()
        self._entries = self._read()

    def _look(self) -> _Stamp | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return _Stamp(found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> tuple[tuple[bytes, Principal], ...]:
        try:
            text = self._path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{self._path}: cannot be read: {error}") from None
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
            for entry in parse_tokens(text, str(self._path))
        )

    def _refresh(self) -> None:
        now = self._clock()
        if now - self._checked < _RECHECK_S:
            return
        self._checked = now
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._entries = self._read()
        except ConfigurationError as error:
            logger.warning("token file kept as it was", extra={"reason": str(error)})

    async def principal(self, token: str) -> Principal | None:
        """Return who a token stands for, or None. Every entry is compared, in constant time."""
        self._refresh()
        if len(token) > _MAX_TOKEN_CHARS:
            return None
        given = hash_token(token).encode()
        found: Principal | None = None
        for known, principal in self._entries:
            if hmac.compare_digest(known, given):
                found = principal
        return found
