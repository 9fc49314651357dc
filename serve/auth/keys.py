"""The public keys of an issuer, from a JWK set (RFC 7517): which of them may verify what.

The algorithms are a fixed list of asymmetric ones (RFC 7518, RFC 8037). Each key is bound to those
that its type, curve, `alg`, `use` and `key_ops` allow, before any token is looked at.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK
from jwt.exceptions import PyJWTError

logger = logging.getLogger(__name__)

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_BY_CURVE = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ALGORITHMS = (*_RSA, *_BY_CURVE.values(), "EdDSA")
"""What a token may be signed with."""

MAX_KEYS = 32
_RSA_BITS = range(2048, 8193)
_SECRET_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class UnfitKeyError(ValueError):
    """A key that must not verify tokens; the message says why and holds nothing of the key."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        key_id: its `kid`, or None.
        algorithms: what it may verify, a part of `ALGORITHMS`.
        public: the key itself.
        thumbprint: SHA-256 of its SubjectPublicKeyInfo: what it is, whatever it is called.
    """

    key_id: str | None
    algorithms: frozenset[str]
    public: PublicKey
    thumbprint: bytes

    def fits(self, key_id: str | None, algorithm: str) -> bool:
        """Say whether it can have signed a token with this header; a token may name no key."""
        return algorithm in self.algorithms and key_id in (None, self.key_id)


def _algorithms(jwk: Mapping[str, Any]) -> frozenset[str]:
    kind, curve, declared = jwk.get("kty"), jwk.get("crv"), jwk.get("alg")
    if kind == "RSA":
        possible = frozenset(_RSA)
    elif kind == "EC" and isinstance(curve, str) and curve in _BY_CURVE:
        possible = frozenset({_BY_CURVE[curve]})
    elif kind == "OKP" and curve == "Ed25519":
        possible = frozenset({"EdDSA"})
    else:
        raise UnfitKeyError("its type or curve is not known")
    if declared == "Ed25519":  # RFC 9864's name for the same
        declared = "EdDSA"
    if declared is None:
        return possible
    if declared not in possible:
        raise UnfitKeyError("its alg is not of its type, or not accepted")
    return frozenset({declared})


def parse_key(jwk: Mapping[str, Any]) -> Key:
    """Read one public key.

    Raises:
        UnfitKeyError: it is not for verifying signatures, holds secret parts, is too weak, or
            cannot be read.
    """
    if jwk.get("use", "sig") != "sig":
        raise UnfitKeyError("its use is not sig")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise UnfitKeyError("its key_ops hold no verify")
    if not _SECRET_MEMBERS.isdisjoint(jwk):
        raise UnfitKeyError("it holds a secret: everybody may have it")
    key_id = jwk.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise UnfitKeyError("its kid is not a text")
    algorithms = _algorithms(jwk)
    try:
        public = PyJWK(dict(jwk), algorithm=min(algorithms)).key
    except (PyJWTError, ValueError, TypeError):
        raise UnfitKeyError("it cannot be read") from None
    if not isinstance(public, PublicKey):
        raise UnfitKeyError("it is not a public key")
    if isinstance(public, RSAPublicKey) and public.key_size not in _RSA_BITS:
        raise UnfitKeyError("its length is not accepted")
    encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Key(key_id, algorithms, public, hashlib.sha256(encoded).digest())


def parse_keys(document: Mapping[str, Any]) -> tuple[Key, ...]:
    """Read a JWK set; keys that do not fit are left out, the first `MAX_KEYS` are looked at.

    A set in which no key fits is an answer too: an issuer may take all its keys back.

    Raises:
        UnfitKeyError: it is not a JWK set.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise UnfitKeyError("it is not a JWK set")
    found = []
    for position, jwk in enumerate(listed[:MAX_KEYS]):
        try:
            found.append(parse_key(jwk if isinstance(jwk, dict) else {}))
        except UnfitKeyError as error:
            extra = {"position": position, "reason": str(error)}
            logger.info("key of an issuer left out", extra=extra)
    if not found:
        logger.warning("an issuer publishes no key that may verify tokens")
    return tuple(found)
