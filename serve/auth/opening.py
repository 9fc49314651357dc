"""All credentials of a server together, as its configuration says."""

from __future__ import annotations

from pathlib import Path

from engine.access_config import is_loopback
from engine.authorization import Principal
from engine.config import Config
from engine.errors import ConfigurationError
from serve.auth.credentials import MAX_TOKEN_CHARS, Credentials, RefusedTokenError, Verified
from serve.auth.denied import DenyList
from serve.auth.issued import IssuedTokens, looks_issued
from serve.auth.tokens import StaticTokens


class AllCredentials:
    """The token file and the issuers, less what is on the deny list."""

    def __init__(
        self,
        static: StaticTokens | None = None,
        issued: IssuedTokens | None = None,
        denied: DenyList | None = None,
    ) -> None:
        self._static = static
        self._issued = issued
        self._denied = denied

    async def principal(self, token: str) -> Principal | None:
        """Return who a token stands for.

        Raises:
            RefusedTokenError: it is not valid or on the deny list, and which.
            OverloadedError: that cannot be told now.
        """
        if len(token) > MAX_TOKEN_CHARS:
            raise RefusedTokenError("too long")
        verified = await self._verify(token)
        if self._denied is not None and await self._denied.holds(verified):
            raise RefusedTokenError("denied")
        return verified.principal

    async def _verify(self, token: str) -> Verified:
        refused = RefusedTokenError("unknown")
        if self._issued is not None and looks_issued(token):
            try:
                return await self._issued.verify(token)
            except RefusedTokenError as error:
                refused = error
        if self._static is not None:
            verified = await self._static.verify(token)
            if verified is not None:
                return verified
        raise refused


def require_credentials(config: Config, tokens: Path | None) -> None:
    """Check that a server that other machines can reach asks for credentials.

    Raises:
        ConfigurationError: it would not.
    """
    if tokens is None and not config.auth.issuers and not is_loopback(config.serve.host):
        raise ConfigurationError(
            f"serve.host {config.serve.host} is not a loopback address: "
            "give a token file (--tokens) or auth.issuers"
        )


def open_credentials(config: Config, tokens: Path | None) -> Credentials | None:
    """Open what a configuration names.

    Args:
        config: of it `auth`, `organization` and `serve.host`.
        tokens: the token file, if there is one.

    Returns:
        The credentials; None: everybody is anonymous, which is for loopback only.

    Raises:
        ConfigurationError: a file is missing or malformed; or there are no credentials although
            other machines could connect.
    """
    require_credentials(config, tokens)
    path = config.auth.deny_list
    denied = DenyList(Path(path)) if path else None
    if tokens is None and not config.auth.issuers:
        return None
    return AllCredentials(
        StaticTokens(tokens) if tokens is not None else None,
        IssuedTokens(config.auth, config.organization) if config.auth.issuers else None,
        denied,
    )
