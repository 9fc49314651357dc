"""What a client without a valid credential is told: the metadata (RFC 9728) and the challenge."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from engine.access_config import AuthConfig
from engine.authorization import READ_SCOPE

WELL_KNOWN = "/.well-known/oauth-protected-resource"
_MCP_PATH = "/mcp"


class ProtectedResource:
    """The server as OAuth's protected resource.

    Without issuers there is no metadata, and the challenges name none: whoever has a token of the
    token file was given it by hand.
    """

    def __init__(self, config: AuthConfig) -> None:
        self._resource = config.resource_url if config.issuers else None
        self._issuers = [each.issuer for each in config.issuers]

    @property
    def announced(self) -> bool:
        """Say whether there is metadata to be found."""
        return self._resource is not None

    def paths(self) -> frozenset[str]:
        """Return the paths at which the metadata lies: the bare one, and one for the resource.

        A proxy may have put a prefix before the path of the MCP endpoint; it may pass that on in
        the well-known path, or take it away.
        """
        if self._resource is None:
            return frozenset()
        path = urlsplit(self._resource).path.rstrip("/")
        return frozenset({WELL_KNOWN, WELL_KNOWN + _MCP_PATH, WELL_KNOWN + path})

    def document(self) -> dict[str, Any]:
        """Return the metadata (RFC 9728, section 2)."""
        return {
            "resource": self._resource,
            "resource_name": "Octavo",
            "authorization_servers": self._issuers,
            "scopes_supported": [READ_SCOPE],
            "bearer_methods_supported": ["header"],
        }

    def challenge(self, error: str = "", scope: str = READ_SCOPE) -> str:
        """Return a WWW-Authenticate header (RFC 6750, section 3; RFC 9728, section 5.1).

        Args:
            error: `invalid_token` or `insufficient_scope`; empty: no credential was given.
            scope: what a credential must allow.
        """
        parts = [f'error="{error}"'] if error else []
        parts.append(f'scope="{scope}"')
        if self._resource is not None:
            parts.append(f'resource_metadata="{self._metadata_url()}"')
        return "Bearer " + ", ".join(parts)

    def _metadata_url(self) -> str:
        parts = urlsplit(self._resource or "")
        return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}"
