"""The part of the configuration that says who is let in, how much one may ask, what is recorded."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Say whether a host name or address is this machine alone: a known name, never looked up."""
    return host in _LOOPBACK_NAMES


def is_loopback_address(host: str) -> bool:
    """Say whether a host of a URL is `localhost` or any loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _secure(url: str) -> str:
    """Accept an https URL, or an http URL of this machine; no user, no fragment, no blank."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ValueError("must be a URL") from None
    if any(ord(char) <= 0x20 or ord(char) > 0x7E for char in url) or not host:
        raise ValueError("must be a URL")
    if parts.username is not None or parts.fragment:
        raise ValueError("must hold neither a user nor a fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback_address(host)):
        raise ValueError("must begin with https://; http:// only for this machine")
    return url


SecureUrl = Annotated[str, AfterValidator(_secure)]


class IssuerConfig(BaseModel):
    """One issuer of JWT access tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")
    """Qualifies its subjects and teams, as in `corp#alice`: never to be given to another issuer."""
    issuer: SecureUrl
    """The `iss` claim, exactly."""
    audience: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """`aud` claims that mean this server; one is enough."""
    jwks_url: SecureUrl | None = None
    """Where its keys lie; None: where its OpenID discovery document says."""
    teams_claim: str = "groups"
    scopes_claim: str = "scope"
    organization_claim: str = ""
    """Empty: nobody of this issuer belongs to the organization."""
    organization_value: str = ""
    """What the claim holds for members of this deployment's organization."""
    max_token_life_s: int = Field(86_400, ge=60, le=31_536_000)

    @model_validator(mode="after")
    def _organization_is_whole(self) -> Self:
        if bool(self.organization_claim) != bool(self.organization_value):
            raise ValueError("organization_claim and organization_value go together")
        return self


class AuthConfig(BaseModel):
    """Which credentials are accepted, besides the token file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    issuers: tuple[IssuerConfig, ...] = ()
    resource_url: SecureUrl | None = None
    """The public URL of the MCP endpoint, for the protected-resource metadata (RFC 9728)."""
    deny_list: str = ""
    """A file of refused subjects, token ids and token hashes; empty: none."""
    leeway_s: float = Field(30.0, ge=0.0, le=300.0)
    keys_refresh_s: float = Field(300.0, ge=1.0, le=86_400.0)
    keys_max_age_s: float = Field(86_400.0, ge=1.0, le=604_800.0)
    keys_timeout_s: float = Field(5.0, gt=0.0, le=60.0)
    keys_cooldown_s: float = Field(30.0, ge=1.0, le=3600.0)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for field in ("name", "issuer"):
            values = [getattr(each, field) for each in self.issuers]
            if len(set(values)) != len(values):
                raise ValueError(f"two issuers have the same {field}")
        if self.issuers and self.resource_url is None:
            raise ValueError("issuers need a resource_url: clients find the issuer by it")
        if self.keys_max_age_s < self.keys_refresh_s:
            raise ValueError("keys_max_age_s must not be below keys_refresh_s")
        return self


class FairnessConfig(BaseModel):
    """How much of one ingress replica one principal may take. 0 is off.

    None: off when only this machine can connect, else the value that the property names.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_s: float | None = Field(None, ge=0.0, le=1e6)
    burst: int = Field(40, ge=1, le=1_000_000)
    concurrent: int | None = Field(None, ge=0, le=10_000)
    running: int | None = Field(None, ge=0, le=10_000)


class AuditConfig(BaseModel):
    """Where the audit trail goes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    destination: str = "auto"
    """`auto`, `off`, `stderr`, or the path of a file."""
