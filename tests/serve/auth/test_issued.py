"""Tokens of a real issuer: which are accepted, and why the others are not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.api_jws import PyJWS

from engine.access_config import AuthConfig
from engine.authorization import Principal
from engine.errors import OverloadedError
from serve.auth.credentials import RefusedTokenError, hash_token
from serve.auth.denied import parse_denied
from serve.auth.issued import IssuedTokens
from serve.auth.keys import ALGORITHMS
from tests.serve.auth.clock import Clock
from tests.serve.auth.issuer import (
    AUDIENCE,
    CURVES,
    NOW,
    Issuer,
    jwk_of,
    private_key,
    running_issuer,
)

ALICE = Principal(
    subject="corp#alice",
    teams=frozenset({"corp#red", "corp#blue"}),
    scopes=frozenset({"openid", "knowledge:read"}),
)


def _tokens(config: AuthConfig, organization: str = "acme", now: float = NOW) -> IssuedTokens:
    return IssuedTokens(config, organization, wall=Clock(now), clock=Clock())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _by_hand(header: object, claims: object, sign: Callable[[bytes], bytes]) -> str:
    """Build a token without a library that would refuse to."""
    parts = [
        each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, claims)
    ]
    head = ".".join(map(_encoded, parts))
    return f"{head}.{_encoded(sign(head.encode()))}"


async def _reason(tokens: IssuedTokens, token: str) -> str:
    with pytest.raises(RefusedTokenError) as caught:
        await tokens.verify(token)
    return caught.value.reason


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_every_accepted_algorithm_verifies(issuer: Issuer, algorithm: str) -> None:
    issuer.publish(algorithm)
    verified = await _tokens(issuer.auth()).verify(issuer.token(algorithm))
    assert verified.principal == ALICE


def test_no_symmetric_algorithm_and_not_none_is_accepted() -> None:
    assert not [each for each in ALGORITHMS if each.startswith("HS") or each == "none"]


async def test_the_keys_may_lie_where_the_configuration_says(issuer: Issuer) -> None:
    config = issuer.auth(issuers=[issuer.config(jwks_url=f"{issuer.url}/jwks")])
    assert (await _tokens(config).verify(issuer.token())).principal == ALICE
    assert issuer.fetched == ["/jwks"]


async def test_an_unsigned_token_is_refused(issuer: Issuer) -> None:
    tokens = _tokens(issuer.auth())
    for name in ("none", "None", "NONE", "nOnE", ""):
        token = _by_hand({"alg": name, "kid": "ES256"}, issuer.claims(), lambda _: b"")
        assert await _reason(tokens, token) == "algorithm"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("form", ["pem", "der", "jwk"])
async def test_a_public_key_is_no_shared_secret(issuer: Issuer, algorithm: str, form: str) -> None:
    key = issuer.publish(algorithm, "confused").public_key()
    secret = {
        "pem": key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "der": key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(jwk_of(private_key(algorithm, "confused"))).encode(),
    }[form]
    tokens = _tokens(issuer.auth())
    for name, digest in (("HS256", hashlib.sha256), ("HS512", hashlib.sha512)):
        token = _by_hand(
            {"alg": name, "kid": "confused"},
            issuer.claims(),
            lambda data, digest=digest: hmac.digest(secret, data, digest),  # type: ignore[misc]  # a default binds
        )
        assert await _reason(tokens, token) == "algorithm"


async def test_a_key_verifies_only_the_algorithm_that_it_declares(issuer: Issuer) -> None:
    issuer.publish("RS256", "bound", alg="RS256")
    tokens = _tokens(issuer.auth(keys_cooldown_s=3600))
    assert (await tokens.verify(issuer.token("RS256", "bound"))).principal == ALICE
    key = private_key("RS256", "bound")
    for other in ("RS512", "PS256"):
        head = {"alg": other, "kid": "bound"}
        token = PyJWS().encode(json.dumps(issuer.claims()).encode(), key, other, head)
        assert await _reason(tokens, token) == "unknown key"


async def test_a_header_cannot_bring_its_own_key(issuer: Issuer) -> None:
    with running_issuer() as evil:
        stranger = private_key("RS256", "stranger")
        evil.keys = [jwk_of(stranger, kid="ES256")]
        tokens = _tokens(issuer.auth())
        for extra in (
            {"jku": f"{evil.url}/jwks"},
            {"x5u": f"{evil.url}/jwks"},
            {"jwk": jwk_of(stranger)},
            {"x5c": ["MIIB"]},
        ):
            token = issuer.token("RS256", "stranger", headers={"kid": "ES256", **extra})
            assert await _reason(tokens, token) == "unknown key"
            token = issuer.token("ES256", "stranger", headers={"kid": "ES256", **extra})
            assert await _reason(tokens, token) == "signature"
        assert evil.fetched == []


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"crit": ["exp"]}, "critical header"),
        ({"crit": []}, "critical header"),
        ({"typ": "logout+jwt"}, "token type"),
        ({"typ": "dpop+jwt"}, "token type"),
        ({"kid": "x" * 513}, "key id"),
    ],
)
async def test_a_header_that_means_something_else_is_refused(
    issuer: Issuer, headers: Mapping[str, Any], reason: str
) -> None:
    assert await _reason(_tokens(issuer.auth()), issuer.token(headers=headers)) == reason


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT"])
async def test_the_types_of_access_tokens_are_accepted(issuer: Issuer, typ: str) -> None:
    verified = await _tokens(issuer.auth()).verify(issuer.token(headers={"typ": typ}))
    assert verified.principal == ALICE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": None}, "exp missing"),
        ({"exp": NOW - 31}, "expired"),
        ({"exp": "soon"}, "exp malformed"),
        ({"exp": True}, "exp malformed"),
        ({"exp": 10**400}, "exp malformed"),
        ({"nbf": NOW + 31}, "not yet valid"),
        ({"nbf": "now"}, "nbf malformed"),
        ({"iat": NOW + 31}, "not yet valid"),
        ({"iat": -(10**400)}, "iat malformed"),
        ({"iat": NOW, "exp": NOW + 86_401}, "lives too long"),
        ({"iat": NOW - 86_400}, "lives too long"),
        ({"iat": None, "exp": NOW + 86_401}, "lives too long"),
        ({"aud": None}, "aud missing"),
        ({"aud": []}, "audience"),
        ({"aud": [AUDIENCE, 1]}, "aud missing"),
        ({"aud": {"a": 1}}, "aud missing"),
        ({"aud": "https://kb.example"}, "audience"),
        ({"aud": AUDIENCE + "/"}, "audience"),
        ({"aud": AUDIENCE.upper()}, "audience"),
        ({"iss": None}, "issuer"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"sub": None}, "sub missing"),
        ({"sub": ""}, "sub missing"),
        ({"sub": 7}, "sub missing"),
        ({"sub": "a" * 256}, "sub missing"),
        ({"sub": "alice\n"}, "sub malformed"),
        ({"sub": "  "}, "sub malformed"),
        ({"groups": [1]}, "names malformed"),
        ({"groups": {"red": True}}, "names malformed"),
        ({"groups": [["red"]]}, "names malformed"),
        ({"scope": 1}, "names malformed"),
        ({"jti": 1}, "jti malformed"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
    ],
)
async def test_a_claim_that_is_missing_wrong_or_out_of_time_refuses(
    issuer: Issuer, changes: Mapping[str, Any], reason: str
) -> None:
    assert await _reason(_tokens(issuer.auth()), issuer.token(**changes)) == reason


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 29},
        {"nbf": NOW + 29},
        {"iat": NOW + 29},
        {"iat": NOW, "exp": NOW + 86_400},
        {"iat": None},
        {"exp": NOW + 0.5},
        {"aud": ["other", AUDIENCE]},
    ],
)
async def test_clocks_may_differ_by_the_leeway_and_no_more(
    issuer: Issuer, changes: Mapping[str, Any]
) -> None:
    verified = await _tokens(issuer.auth()).verify(issuer.token(**changes))
    assert verified.principal.subject == "corp#alice"


@pytest.mark.parametrize("algorithm", CURVES)
async def test_a_denied_token_stays_denied_however_its_holder_writes_it(
    issuer: Issuer, algorithm: str
) -> None:
    issuer.publish(algorithm)
    token, tokens = issuer.token(algorithm), _tokens(issuer.auth())
    signed, _, written = token.rpartition(".")
    signature = base64.urlsafe_b64decode(written + "=" * (-len(written) % 4))
    half = len(signature) // 2
    mirrored = CURVES[algorithm].group_order - int.from_bytes(signature[half:], "big")
    twin = f"{signed}.{_encoded(signature[:half] + mirrored.to_bytes(half, 'big'))}"
    assert twin != token
    hashes = (await tokens.verify(twin)).token_hashes  # ECDSA: it is as valid
    assert hashes == (await tokens.verify(token)).token_hashes
    assert hashes == {hash_token(token), hash_token(twin)}
    denied = parse_denied(f"token_hashes: [{hash_token(token)}]", "deny.yaml")
    assert denied.holds(await tokens.verify(twin))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_signature_is_read_in_one_form_only(issuer: Issuer, algorithm: str) -> None:
    issuer.publish(algorithm)
    token, tokens = issuer.token(algorithm), _tokens(issuer.auth())
    signed, _, written = token.rpartition(".")
    await tokens.verify(token)
    for other in (
        f"{written}=",
        f"!{written}",
        f"{written}*",
        written[:-1] + chr(ord(written[-1]) + 1),
    ):
        assert await _reason(tokens, f"{signed}.{other}") == "signature"


async def test_a_changed_token_is_refused(issuer: Issuer) -> None:
    tokens, token = _tokens(issuer.auth()), issuer.token()
    head, claims, signature = token.split(".")
    other = _encoded(json.dumps(issuer.claims(sub="bob")).encode())
    changed = [
        f"{head}.{other}.{signature}",
        f"{head}.{claims}.{signature[:-2]}AA",
        f"{head}.{claims}.",
        f"{head}.{claims}.{_encoded(bytes(64))}",
        f"{head}.{claims}.!{signature}",
    ]
    assert [await _reason(tokens, each) for each in changed] == ["signature"] * len(changed)


@pytest.mark.parametrize(
    "token",
    ["..", "a.b.c", "e30.e30.", "\u00e9.a.b", "eyJhbGciOiJFUzI1NiJ9.W10.x", "[.].[", "=.=.="],
)
async def test_garbage_is_refused_without_a_fetch(issuer: Issuer, token: str) -> None:
    assert await _reason(_tokens(issuer.auth()), token) in {"malformed", "algorithm"}
    assert issuer.fetched == []


async def test_a_huge_token_is_refused_before_anything_looks_into_it(issuer: Issuer) -> None:
    tokens = _tokens(issuer.auth())
    assert await _reason(tokens, issuer.token(padding="x" * 8192)) == "too long"
    assert issuer.fetched == []


async def test_nesting_without_end_is_refused(issuer: Issuer) -> None:
    deep = b'{"alg":' + b"[" * 3000 + b"]" * 3000 + b"}"
    token = _by_hand(deep, b"{}", lambda _: b"")[:8192]
    assert await _reason(_tokens(issuer.auth()), token) == "malformed"


@pytest.mark.parametrize("where", ["header", "claims"])
async def test_a_key_given_twice_is_refused(issuer: Issuer, where: str) -> None:
    key = private_key("ES256")
    assert isinstance(key, EllipticCurvePrivateKey)
    chosen = key

    def sign(data: bytes) -> bytes:
        first, second = decode_dss_signature(chosen.sign(data, ECDSA(hashes.SHA256())))
        return first.to_bytes(32, "big") + second.to_bytes(32, "big")

    header = json.dumps({"alg": "ES256", "kid": "ES256"})
    claims = json.dumps(issuer.claims())
    tokens = _tokens(issuer.auth())
    good = _by_hand(header.encode(), claims.encode(), sign)
    assert (await tokens.verify(good)).principal == ALICE

    if where == "header":
        header = header[:-1] + ', "alg": "ES256"}'
    else:
        claims = claims[:-1] + ', "sub": "bob"}'
    token = _by_hand(header.encode(), claims.encode(), sign)
    assert await _reason(tokens, token) == "malformed"


async def test_subjects_and_teams_of_two_issuers_are_different(issuer: Issuer) -> None:
    with running_issuer() as other:
        other.keys = [jwk_of(private_key("ES256", "theirs"), kid="ES256")]
        both = [issuer.config(), other.config(name="partner")]
        tokens = _tokens(issuer.auth(issuers=both))
        head = {"kid": "ES256"}
        ours = (await tokens.verify(issuer.token())).principal
        theirs = (await tokens.verify(other.token("ES256", "theirs", head))).principal
        forged = await _reason(tokens, other.token("ES256", "theirs", head, iss=issuer.url))
    assert (ours.subject, theirs.subject) == ("corp#alice", "partner#alice")
    assert ours.teams.isdisjoint(theirs.teams)
    assert forged == "signature"  # both name their keys alike


async def test_a_name_cannot_reach_into_another_issuer(issuer: Issuer) -> None:
    verified = await _tokens(issuer.auth()).verify(
        issuer.token(sub="partner#bob", groups=["partner#red"])
    )
    assert verified.principal.subject == "corp#partner#bob"
    assert verified.principal.teams == {"corp#partner#red"}


@pytest.mark.parametrize(
    ("settings", "changes", "teams", "scopes"),
    [
        ({}, {"groups": None, "scope": None}, set(), set()),
        ({}, {"groups": "red", "scope": ["a", "b"]}, {"corp#red"}, {"a", "b"}),
        ({}, {"groups": "a b", "scope": "a  b "}, {"corp#a b"}, {"a", "b"}),
        ({}, {"groups": ["", "x"]}, {"corp#x"}, {"openid", "knowledge:read"}),
        (
            {"teams_claim": "realm_access.roles"},
            {"realm_access": {"roles": ["/docs/red"]}},
            {"corp#/docs/red"},
            {"openid", "knowledge:read"},
        ),
        ({"teams_claim": "realm_access.roles"}, {"realm_access": ["roles"]}, set(), None),
        (
            {"teams_claim": "https://acme.example/teams", "scopes_claim": "scp"},
            {"https://acme.example/teams": ["red"], "scp": ["knowledge:*"]},
            {"corp#red"},
            {"knowledge:*"},
        ),
    ],
)
async def test_claims_are_read_where_the_configuration_says(
    issuer: Issuer,
    settings: Mapping[str, Any],
    changes: Mapping[str, Any],
    teams: set[str],
    scopes: set[str] | None,
) -> None:
    config = issuer.auth(issuers=[issuer.config(**settings)])
    principal = (await _tokens(config).verify(issuer.token(**changes))).principal
    assert principal.teams == teams
    assert scopes is None or principal.scopes == scopes


@pytest.mark.parametrize(
    ("value", "organization"),
    [("t-1", "acme"), (["x", "t-1"], "acme"), ("acme", ""), (None, ""), ({"t-1": 1}, "")],
)
async def test_the_organization_is_what_the_configured_claim_says(
    issuer: Issuer, value: object, organization: str
) -> None:
    one = issuer.config(organization_claim="tid", organization_value="t-1")
    tokens = _tokens(issuer.auth(issuers=[one]))
    assert (await tokens.verify(issuer.token(tid=value))).principal.organization == organization


async def test_an_organization_claim_counts_only_where_one_is_configured(issuer: Issuer) -> None:
    verified = await _tokens(issuer.auth()).verify(issuer.token(organization="acme"))
    assert verified.principal.organization == ""


async def test_a_verified_token_is_remembered_until_it_expires(issuer: Issuer) -> None:
    wall = Clock(NOW)
    tokens = IssuedTokens(issuer.auth(leeway_s=0), "", wall=wall, clock=Clock())
    token = issuer.token(exp=NOW + 5)
    first = await tokens.verify(token)
    assert await tokens.verify(token) is first
    wall.now += 5
    assert await _reason(tokens, token) == "expired"


async def test_what_is_remembered_is_bounded(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.auth.issued.MAX_CACHED", 3)
    tokens = _tokens(issuer.auth())
    given = [issuer.token(jti=str(number)) for number in range(4)]
    verified = [await tokens.verify(each) for each in given]
    again = [await tokens.verify(each) for each in reversed(given)]
    assert [new is old for new, old in zip(again, reversed(verified), strict=True)] == [
        True,
        True,
        True,
        False,
    ]


async def test_a_token_of_a_key_that_was_taken_back_is_forgotten(issuer: Issuer) -> None:
    clock = Clock()
    tokens = IssuedTokens(issuer.auth(), "", wall=Clock(NOW), clock=clock)
    token = issuer.token()
    await tokens.verify(token)
    issuer.keys.clear()
    issuer.publish("ES256", "next")
    clock.now += 600  # twice the refresh
    assert await _reason(tokens, token) == "unknown key"


async def test_a_key_of_the_same_name_is_not_the_same_key(issuer: Issuer) -> None:
    clock = Clock()
    tokens = IssuedTokens(issuer.auth(), "", wall=Clock(NOW), clock=clock)
    token = issuer.token()
    await tokens.verify(token)
    issuer.keys = [jwk_of(private_key("ES256", "other"), kid="ES256")]
    clock.now += 600
    assert await _reason(tokens, token) == "signature"


async def test_no_token_is_judged_while_its_issuer_was_never_reached(issuer: Issuer) -> None:
    issuer.replies["/jwks"] = (503, {}, b"")
    tokens = _tokens(issuer.auth())
    with pytest.raises(OverloadedError):
        await tokens.verify(issuer.token())
