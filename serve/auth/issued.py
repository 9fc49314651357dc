"""JWT access tokens (RFC 7519, RFC 8725, RFC 9068) of the configured issuers.

Nothing that a token says about itself decides how it is verified: the issuer's keys come from where
the configuration says, and the algorithm must be one of a fixed list and of the key. `jku`, `x5u`,
`jwk` and `x5c` headers are not read.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jwt.api_jws import PyJWS
from jwt.exceptions import InvalidTokenError

from engine.access_config import AuthConfig, IssuerConfig
from serve.auth.claims import check_audience, check_times, principal_of
from serve.auth.credentials import MAX_TOKEN_CHARS, RefusedTokenError, Verified, hash_token
from serve.auth.fetching import fetch_keys
from serve.auth.key_source import KeySource, Patience
from serve.auth.keys import ALGORITHMS, Key
from serve.auth.strict_json import parse_object
from serve.auth.twins import twins

MAX_CACHED = 4096
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_MAX_KEY_ID_CHARS = 512


@dataclass(frozen=True, slots=True)
class _Cached:
    verified: Verified
    issuer: str
    thumbprint: bytes
    expires_at: float


def looks_issued(token: str) -> bool:
    """Say whether a token has the form of a signed JWT: three parts."""
    return token.count(".") == 2


def _part(segment: str) -> dict[str, Any]:
    try:
        data = urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
        return parse_object(data)
    except ValueError:
        raise RefusedTokenError("malformed") from None


def _algorithm(header: Mapping[str, Any]) -> str:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise RefusedTokenError("algorithm")
    if "crit" in header or "b64" in header:  # RFC 7515: extensions that must be understood
        raise RefusedTokenError("critical header")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.casefold() not in _TYPES:
        raise RefusedTokenError("token type")
    return algorithm


def _key_id(header: Mapping[str, Any]) -> str | None:
    key_id = header.get("kid")
    if key_id is None:
        return None
    if not isinstance(key_id, str) or len(key_id) > _MAX_KEY_ID_CHARS:
        raise RefusedTokenError("key id")
    return key_id


class IssuedTokens:
    """Verifies tokens of some issuers, and remembers those that it verified until they expire.

    What is remembered counts no longer than the token, and only while the key that signed it is
    one of the issuer's.
    """

    def __init__(
        self,
        config: AuthConfig,
        organization: str,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the issuers; nothing is fetched yet.

        Args:
            config: of it the issuers and how long keys count.
            organization: the one of this deployment.
            wall: seconds since the epoch.
            clock: monotonic seconds.
        """
        patience = Patience(config.keys_refresh_s, config.keys_max_age_s, config.keys_cooldown_s)
        self._issuers = {each.issuer: each for each in config.issuers}
        self._sources = {
            each.issuer: KeySource(
                each.name, partial(fetch_keys, each, config.keys_timeout_s), patience, clock=clock
            )
            for each in config.issuers
        }
        self._organization = organization
        self._leeway_s = config.leeway_s
        self._wall = wall
        self._jws = PyJWS(algorithms=ALGORITHMS)
        self._cache: OrderedDict[str, _Cached] = OrderedDict()

    async def verify(self, token: str) -> Verified:
        """Return what a token stands for.

        Raises:
            RefusedTokenError: it is not valid, and why.
            OverloadedError: the issuer's keys cannot be had now.
        """
        if len(token) > MAX_TOKEN_CHARS:
            raise RefusedTokenError("too long")
        digest = hash_token(token)
        known = await self._remembered(digest)
        if known is not None:
            return known
        head, _, rest = token.partition(".")
        header, unverified = _part(head), _part(rest.partition(".")[0])
        algorithm, key_id = _algorithm(header), _key_id(header)
        name = unverified.get("iss")
        issuer = self._issuers.get(name) if isinstance(name, str) else None
        if issuer is None:
            raise RefusedTokenError("issuer")
        keys = await self._sources[issuer.issuer].matching(key_id, algorithm)
        if not keys:
            raise RefusedTokenError("unknown key")
        key, claims = self._signed(token, keys, algorithm)
        hashes = frozenset({digest}) | {hash_token(twin) for twin in twins(token, key)}
        return self._accepted(claims, issuer, hashes, key, digest)

    async def _remembered(self, digest: str) -> Verified | None:
        cached = self._cache.get(digest)
        if cached is None:
            return None
        keys = await self._sources[cached.issuer].keys()
        fresh = self._wall() < cached.expires_at
        if fresh and any(key.thumbprint == cached.thumbprint for key in keys):
            return cached.verified
        self._cache.pop(digest, None)
        return None

    def _signed(
        self, token: str, keys: tuple[Key, ...], algorithm: str
    ) -> tuple[Key, dict[str, Any]]:
        """Return the key that signed a token, and its claims."""
        for key in keys:
            try:
                decoded = self._jws.decode_complete(
                    token,
                    key=key.public,
                    algorithms=[algorithm],
                    options={"verify_signature": True, "enforce_minimum_key_length": True},
                )
                return key, parse_object(decoded["payload"])
            except (InvalidTokenError, ValueError):
                continue
        raise RefusedTokenError("signature")

    def _accepted(
        self,
        claims: Mapping[str, Any],
        issuer: IssuerConfig,
        hashes: frozenset[str],
        key: Key,
        digest: str,
    ) -> Verified:
        if claims.get("iss") != issuer.issuer:
            raise RefusedTokenError("issuer")
        check_audience(claims, issuer.audience)
        expires_at = check_times(
            claims,
            now=self._wall(),
            leeway_s=self._leeway_s,
            max_life_s=issuer.max_token_life_s,
        )
        token_id = claims.get("jti", "")
        if not isinstance(token_id, str):
            raise RefusedTokenError("jti malformed")
        principal = principal_of(claims, issuer, self._organization)
        verified = Verified(principal, hashes, token_id)
        self._cache[digest] = _Cached(verified, issuer.issuer, key.thumbprint, expires_at)
        if len(self._cache) > MAX_CACHED:
            self._cache.popitem(last=False)
        return verified
