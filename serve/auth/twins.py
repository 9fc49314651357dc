"""Other forms of one JWT: who holds it can write it so that it verifies and has another hash.

An ECDSA signature (r, s) is as valid as (r, n - s), n being the order of the curve's group. RSA and
Ed25519 signatures have one form only, and base64url is read strictly.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from serve.auth.keys import Key


def twins(token: str, key: Key) -> tuple[str, ...]:
    """Return the other forms of a token that this key has verified: one for ECDSA, else none."""
    if not isinstance(key.public, EllipticCurvePublicKey):
        return ()
    order = key.public.curve.group_order
    signed, _, written = token.rpartition(".")
    signature = urlsafe_b64decode(written + "=" * (-len(written) % 4))
    half = len(signature) // 2
    mirrored = order - int.from_bytes(signature[half:], "big")
    twin = urlsafe_b64encode(signature[:half] + mirrored.to_bytes(half, "big"))
    return (f"{signed}.{twin.rstrip(b'=').decode('ascii')}",)
