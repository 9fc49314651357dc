"""Which published keys may verify what."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from serve.auth.keys import ALGORITHMS, MAX_KEYS, UnfitKeyError, parse_key, parse_keys
from tests.serve.auth.issuer import jwk_of, private_key

RSA_ALGORITHMS = {each for each in ALGORITHMS if each.startswith(("RS", "PS"))}


@pytest.mark.parametrize(
    ("algorithm", "members", "expected"),
    [
        ("RS256", {}, RSA_ALGORITHMS),
        ("RS256", {"alg": "PS384"}, {"PS384"}),
        ("ES256", {}, {"ES256"}),
        ("ES384", {"alg": "ES384", "use": "sig"}, {"ES384"}),
        ("ES512", {"key_ops": ["verify"]}, {"ES512"}),
        ("EdDSA", {}, {"EdDSA"}),
        ("EdDSA", {"alg": "Ed25519"}, {"EdDSA"}),
    ],
)
def test_a_key_is_bound_to_what_its_type_and_its_members_allow(
    algorithm: str, members: dict[str, Any], expected: set[str]
) -> None:
    assert parse_key(jwk_of(private_key(algorithm), **members)).algorithms == expected


@pytest.mark.parametrize(
    ("algorithm", "members", "reason"),
    [
        ("ES256", {"use": "enc"}, "use"),
        ("ES256", {"use": 1}, "use"),
        ("ES256", {"key_ops": ["sign"]}, "key_ops"),
        ("ES256", {"key_ops": "verify"}, "key_ops"),
        ("ES256", {"alg": "ES384"}, "alg"),
        ("ES256", {"alg": "HS256"}, "alg"),
        ("RS256", {"alg": "RSA-OAEP"}, "alg"),
        ("RS256", {"alg": "none"}, "alg"),
        ("RS256", {"d": "AQAB"}, "secret"),
        ("ES256", {"kid": 7}, "kid"),
        ("ES256", {"crv": "secp256k1"}, "curve"),
        ("ES256", {"crv": ["P-256"]}, "curve"),
        ("ES256", {"kty": "oct"}, "type"),
        ("ES256", {"x": "AAAA"}, "read"),
        ("RS256", {"n": 7}, "read"),
        ("EdDSA", {"crv": "X25519"}, "curve"),
        ("EdDSA", {"x": "AAAA"}, "read"),
    ],
)
def test_a_key_that_is_not_for_this_is_left_out(
    algorithm: str, members: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnfitKeyError, match=reason):
        parse_key(jwk_of(private_key(algorithm), **members))


def test_a_private_key_is_never_used() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(UnfitKeyError, match="secret"):
        parse_key(ECAlgorithm.to_jwk(key, as_dict=True))


def test_a_short_rsa_key_is_left_out() -> None:
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024).public_key()
    with pytest.raises(UnfitKeyError, match="length"):
        parse_key({**RSAAlgorithm.to_jwk(weak, as_dict=True), "key_ops": ["verify"]})


def test_the_keys_of_a_set_that_fit_are_used() -> None:
    fit = jwk_of(private_key("ES256"), kid="a")
    listed = [{"kty": "oct", "k": "AA"}, jwk_of(private_key("RS256"), use="enc"), fit, "text"]
    assert [key.key_id for key in parse_keys({"keys": listed})] == ["a"]


def test_of_a_huge_set_only_the_first_keys_are_looked_at() -> None:
    listed = [jwk_of(private_key("ES256"), kid=str(number)) for number in range(3 * MAX_KEYS)]
    assert len(parse_keys({"keys": listed})) == MAX_KEYS
