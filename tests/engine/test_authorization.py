"""Who may read a base: the contract's table, and nothing by default."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.authorization import (
    ANONYMOUS,
    OPERATOR,
    SCOPES,
    Principal,
    may_read,
    readable_bases,
    require_read,
)
from engine.errors import ScopeRequiredError
from engine.ids import BaseId

KB = BaseId("kb")


@dataclass(frozen=True)
class Base:
    """A base as authorization sees it."""

    base_id: BaseId = KB
    owner: str = "carol"
    team: str | None = "blue"
    scope: str = "private"
    active: bool = True


NAMES = st.sampled_from(["", "carol", "alice", "blue", "acme"])
bases = st.builds(
    Base, st.just(KB), NAMES, st.none() | NAMES, st.sampled_from(SCOPES), st.booleans()
)
principals = st.builds(
    Principal, NAMES, st.frozensets(NAMES), st.just(frozenset({"knowledge:read"})), NAMES
)


@pytest.mark.parametrize("scope", ["knowledge:read", "knowledge:*", "*"])
def test_each_implying_scope_suffices(scope: str) -> None:
    require_read(Principal("alice", scopes=frozenset({scope, "other"})))


@pytest.mark.parametrize("scopes", [(), ("knowledge",), ("knowledge:write",), ("KNOWLEDGE:READ",)])
def test_no_other_scope_does(scopes: tuple[str, ...]) -> None:
    with pytest.raises(ScopeRequiredError, match="knowledge:read"):
        require_read(Principal("alice", scopes=frozenset(scopes)))


@pytest.mark.parametrize(
    ("base", "principal", "organization", "allowed"),
    [
        (Base(), Principal("carol"), "", True),
        (Base(), Principal("alice"), "", False),
        (Base(scope="team"), Principal("alice", teams=frozenset({"blue"})), "", True),
        (Base(), Principal("alice", teams=frozenset({"blue"})), "", False),
        (Base(scope="team"), Principal("alice", teams=frozenset({"red"})), "", False),
        (Base(scope="organization"), Principal("bob", organization="acme"), "acme", True),
        (Base(scope="organization"), Principal("bob", organization="other"), "acme", False),
        (Base(scope="public"), ANONYMOUS, "", True),
        (Base(), OPERATOR, "", True),
        (Base(active=False), OPERATOR, "", False),
        (Base(active=False, scope="public"), Principal("carol"), "", False),
        (Base(scope="unknown"), Principal("alice"), "", False),
    ],
)
def test_the_table_of_the_contract(
    base: Base, principal: Principal, organization: str, allowed: bool
) -> None:
    assert may_read(principal, base, organization) is allowed


@given(bases, principals, NAMES)
def test_empty_names_match_nothing(base: Base, principal: Principal, organization: str) -> None:
    nobody = Principal(scopes=principal.scopes, teams=frozenset({""}))
    if base.active and base.scope != "public":
        assert not may_read(nobody, base, organization)
        assert not may_read(principal, Base(base.base_id, "", "", base.scope), "") or (
            base.scope == "public"
        )


@given(st.lists(bases, max_size=4), principals, NAMES)
def test_readable_bases_are_those_that_may_be_read(
    held: list[Base], principal: Principal, organization: str
) -> None:
    named = [
        Base(BaseId(str(at)), one.owner, one.team, one.scope, one.active)
        for at, one in enumerate(held)
    ]
    found = readable_bases(principal, named, organization)
    assert found == {one.base_id for one in named if may_read(principal, one, organization)}
