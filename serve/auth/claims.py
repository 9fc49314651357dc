"""What a verified token says: its times, its audience, and the principal it stands for.

Pure functions of claims. A claim of an unexpected type refuses the token; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.access_config import IssuerConfig
from engine.authorization import Principal, qualified
from serve.auth.credentials import RefusedTokenError

MAX_SUBJECT_CHARS = 255
"""OpenID Connect Core 1.0, section 2."""
_MAX_NAMES = 1000
_LAST_S = 1e12

Claims = Mapping[str, Any]


def _time(claims: Claims, name: str) -> int | float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedTokenError(f"{name} malformed")
    if not -_LAST_S < value < _LAST_S:  # not a number, infinite, or not to be reckoned with
        raise RefusedTokenError(f"{name} malformed")
    return value


def check_times(claims: Claims, *, now: float, leeway_s: float, max_life_s: float) -> float:
    """Check `exp`, `nbf` and `iat` (RFC 7519), and that the token does not live too long.

    Args:
        claims: of the token.
        now: seconds since the epoch.
        leeway_s: by how much the issuer's clock may differ.
        max_life_s: from `iat`, or from now when there is none, to `exp`.

    Returns:
        `exp`, in seconds since the epoch.

    Raises:
        RefusedTokenError: expired, not yet valid, too long-lived, or malformed.
    """
    expires = _time(claims, "exp")
    if expires is None:
        raise RefusedTokenError("exp missing")
    if expires + leeway_s <= now:
        raise RefusedTokenError("expired")
    not_before, issued = _time(claims, "nbf"), _time(claims, "iat")
    for begin in (not_before, issued):
        if begin is not None and begin > now + leeway_s:
            raise RefusedTokenError("not yet valid")
    if expires - (now if issued is None else issued) > max_life_s:
        raise RefusedTokenError("lives too long")
    return float(expires)


def check_audience(claims: Claims, accepted: tuple[str, ...]) -> None:
    """Check that a token is meant for this server: one of its `aud` is accepted.

    Raises:
        RefusedTokenError: it is not, or says nothing of it.
    """
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise RefusedTokenError("aud missing")
    if frozenset(accepted).isdisjoint(named):
        raise RefusedTokenError("audience")


def claim_at(claims: Claims, path: str) -> Any:
    """Return a claim, or None: one of exactly this name, else what lies at the dotted path."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for name in path.split("."):
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    return found


def _names(claims: Claims, path: str, *, words: bool) -> frozenset[str]:
    value = claim_at(claims, path)
    if value is None:
        return frozenset()
    if isinstance(value, str):
        value = value.split(" ") if words else [value]
    if (
        not isinstance(value, list)
        or len(value) > _MAX_NAMES
        or not all(isinstance(each, str) for each in value)
    ):
        raise RefusedTokenError("names malformed")
    return frozenset(value) - {""}


def _subject(claims: Claims) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= MAX_SUBJECT_CHARS:
        raise RefusedTokenError("sub missing")
    if not subject.isprintable() or not subject.strip():
        raise RefusedTokenError("sub malformed")
    return subject


def _organization(claims: Claims, issuer: IssuerConfig, organization: str) -> str:
    if not issuer.organization_claim:
        return ""
    value = claim_at(claims, issuer.organization_claim)
    held = value if isinstance(value, list) else [value]
    return organization if issuer.organization_value in held else ""


def principal_of(claims: Claims, issuer: IssuerConfig, organization: str) -> Principal:
    """Return whom a verified token stands for; subject and teams are qualified by the issuer.

    Args:
        claims: of the token.
        issuer: who signed it.
        organization: the one of this deployment, given to those whose claim says so.

    Raises:
        RefusedTokenError: there is no subject, or a claim has a wrong type.
    """
    if "cnf" in claims:  # RFC 7800: bound to a key whose proof this server does not ask for
        raise RefusedTokenError("bound to a key")
    teams = _names(claims, issuer.teams_claim, words=False)
    return Principal(
        subject=qualified(issuer.name, _subject(claims)),
        teams=frozenset(qualified(issuer.name, team) for team in teams),
        scopes=_names(claims, issuer.scopes_claim, words=True),
        organization=_organization(claims, issuer, organization),
    )
