"""The deny list: credentials that are refused although they verify, within a second.

For what cannot be taken back at its source in time: a JWT is valid until it expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serve.auth.credentials import Verified
from serve.auth.tree import parse_tree
from serve.auth.watching import WatchedFile

Name = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class DenyFile(BaseModel):
    """The whole file. A file that was cut off to nothing is not an empty list: it is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subjects: tuple[Name, ...] = ()
    """As a base names its owner: `alice` of the token file, `corp#alice` of the issuer `corp`."""
    token_ids: tuple[Name, ...] = ()
    """`jti` claims, of whichever issuer."""
    token_hashes: tuple[Sha256, ...] = ()
    """SHA-256 of tokens of any kind."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The deny list in memory."""

    subjects: frozenset[str]
    token_ids: frozenset[str]
    token_hashes: frozenset[str]

    def holds(self, verified: Verified) -> bool:
        """Say whether a verified token is on the list."""
        return (
            verified.principal.subject in self.subjects
            or not verified.token_hashes.isdisjoint(self.token_hashes)
            or (bool(verified.token_id) and verified.token_id in self.token_ids)
        )


def parse_denied(text: str, source: str) -> Denied:
    """Read the text of a deny list.

    Raises:
        ConfigurationError: it is not YAML, or does not have the shape of a deny list.
    """
    file = parse_tree(DenyFile, text, source)
    return Denied(frozenset(file.subjects), frozenset(file.token_ids), frozenset(file.token_hashes))


class DenyList:
    """The deny list of a file, followed.

    While the file is missing or malformed, no credential is accepted and none is refused: whoever
    asks is told to ask again.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            ConfigurationError: it cannot be read or has not the right shape.
        """
        self._file = WatchedFile(path, parse_denied, clock=clock)

    async def holds(self, verified: Verified) -> bool:
        """Say whether a verified token is on the list.

        Raises:
            OverloadedError: the file cannot be confirmed.
        """
        return (await self._file.value()).holds(verified)
