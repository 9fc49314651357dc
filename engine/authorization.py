"""Who may read a base. It fails closed: empty or missing names match nothing.

Contract, "Who may read a base".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.errors import ScopeRequiredError
from engine.ids import BaseId

READ_SCOPE = "knowledge:read"
OPERATE_SCOPE = "knowledge:operate"
_WILDCARDS = frozenset({"knowledge:*", "*"})

SCOPES = ("private", "team", "organization", "public")

QUALIFIER = "#"


def qualified(issuer: str, name: str) -> str:
    """Return a subject or team of an issuer as bases and deny lists name it: `corp#alice`.

    Names of the token file and of `--as` are local and stand alone. The qualifier keeps names of
    different issuers apart: an issuer's short name holds no `#`, so the first `#` ends it, and a
    local name holds none at all.

    Args:
        issuer: the short name that the configuration gives the issuer.
        name: any name as the issuer writes it.
    """
    return f"{issuer}{QUALIFIER}{name}"


def is_local(name: str) -> bool:
    """Say whether a name can be one of the token file: it belongs to no issuer."""
    return QUALIFIER not in name


@dataclass(frozen=True, slots=True)
class Principal:
    """A verified caller.

    Attributes:
        subject: who it is, `qualified` unless local; empty for an anonymous caller.
        teams: the teams it belongs to, `qualified` unless local.
        scopes: what its credential allows.
        organization: the organization it belongs to, or empty.
        operator: the local operator, who may read every base.
    """

    subject: str = ""
    teams: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    organization: str = ""
    operator: bool = False


OPERATOR = Principal(subject="operator", scopes=frozenset({"*"}), operator=True)
ANONYMOUS = Principal(scopes=frozenset({READ_SCOPE}))


class ReadableBase(Protocol):
    """What authorization needs to know of a base."""

    @property
    def base_id(self) -> BaseId:
        """Return the id."""
        ...

    @property
    def owner(self) -> str:
        """Return the owner's subject."""
        ...

    @property
    def team(self) -> str | None:
        """Return the team, if any."""
        ...

    @property
    def scope(self) -> str:
        """Return one of `SCOPES`."""
        ...

    @property
    def active(self) -> bool:
        """Say whether the base is not archived."""
        ...


def require_read(principal: Principal) -> None:
    """Check that a credential allows reading at all.

    Raises:
        ScopeRequiredError: it holds none of `knowledge:read`, `knowledge:*`, `*`.
    """
    _require(principal, READ_SCOPE)


def require_operate(principal: Principal) -> None:
    """Check that a credential allows to look behind answers: shards, segments, statistics.

    No credential holds this scope unless somebody gave it.

    Raises:
        ScopeRequiredError: it holds none of `knowledge:operate`, `knowledge:*`, `*`.
    """
    _require(principal, OPERATE_SCOPE)


def _require(principal: Principal, scope: str) -> None:
    if principal.scopes.isdisjoint(_WILDCARDS | {scope}):
        raise ScopeRequiredError(scope)


def may_read(principal: Principal, base: ReadableBase, organization: str) -> bool:
    """Say whether a principal may read a base. Archived bases are readable by nobody.

    Args:
        principal: the caller.
        base: the base's newest state.
        organization: the organization this deployment belongs to; empty matches nobody.
    """
    if not base.active:
        return False
    if principal.operator or base.scope == "public":
        return True
    if principal.subject and base.owner == principal.subject:
        return True
    if base.scope == "team":
        return bool(base.team) and base.team in principal.teams
    if base.scope == "organization":
        return bool(organization) and principal.organization == organization
    return False


def readable_bases(
    principal: Principal, bases: Iterable[ReadableBase], organization: str
) -> frozenset[BaseId]:
    """Return the ids of the active bases that a principal may read."""
    return frozenset(base.base_id for base in bases if may_read(principal, base, organization))
