"""Fetching an issuer's documents: bounded in time and size, redirects not followed."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import httpx2
from pydantic import TypeAdapter, ValidationError

from engine.access_config import IssuerConfig, SecureUrl, is_loopback_address
from engine.errors import OperatorError
from serve.auth.keys import Key, UnfitKeyError, parse_keys
from serve.auth.strict_json import parse_object

MAX_BYTES = 256 * 1024
_DISCOVERY = "/.well-known/openid-configuration"
_SECURE_URL: TypeAdapter[str] = TypeAdapter(SecureUrl)


class KeyServiceError(OperatorError):
    """An issuer's keys could not be had; the message says where and why."""


async def _read(url: str, patience_s: float) -> bytes:
    local = is_loopback_address(urlsplit(url).hostname or "")
    context = False if local else await asyncio.to_thread(httpx2.create_ssl_context)
    # uncompressed, so that a small body cannot become a large one
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    async with (
        httpx2.AsyncClient(timeout=patience_s, trust_env=not local, verify=context) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        if response.status_code != 200:
            raise KeyServiceError(f"{url}: answered with status {response.status_code}")
        if "content-encoding" in response.headers:
            raise KeyServiceError(f"{url}: answered with an encoded body")
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MAX_BYTES:
                raise KeyServiceError(f"{url}: answered with more than {MAX_BYTES} bytes")
        return bytes(body)


async def fetch_object(url: str, patience_s: float) -> dict[str, Any]:
    """Fetch one JSON object.

    Args:
        url: https, or http of this machine.
        patience_s: seconds for all of it.

    Raises:
        KeyServiceError: no connection, no answer in time, another status than 200 (a redirect is
            one), more than `MAX_BYTES`, or not a JSON object.
    """
    try:
        async with asyncio.timeout(patience_s):
            return parse_object(await _read(url, patience_s))
    except TimeoutError:
        raise KeyServiceError(f"{url}: did not answer within {patience_s:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise KeyServiceError(f"{url}: {type(error).__name__}") from None
    except ValueError:
        raise KeyServiceError(f"{url}: did not answer with a JSON object") from None


async def _keys_url(issuer: IssuerConfig, patience_s: float) -> str:
    """Return where the keys lie: as configured, or by OpenID Connect Discovery 1.0."""
    if issuer.jwks_url is not None:
        return issuer.jwks_url
    url = issuer.issuer.rstrip("/") + _DISCOVERY
    document = await fetch_object(url, patience_s)
    return described_keys_url(document, issuer.issuer, url)


def described_keys_url(document: dict[str, Any], issuer: str, source: str) -> str:
    """Return where a discovery document says that an issuer's keys lie.

    Only an issuer of this machine may name a URL of this machine without TLS: another one would
    have this server ask whatever listens beside it.

    Raises:
        KeyServiceError: it describes another issuer, or names no URL that may be asked.
    """
    if document.get("issuer") != issuer:
        raise KeyServiceError(f"{source}: describes another issuer")
    try:
        found = _SECURE_URL.validate_python(document.get("jwks_uri"), strict=True)
    except ValidationError:
        raise KeyServiceError(f"{source}: names no secure jwks_uri") from None
    if urlsplit(issuer).scheme == "https" and urlsplit(found).scheme != "https":
        raise KeyServiceError(f"{source}: names no secure jwks_uri")
    return found


async def fetch_keys(issuer: IssuerConfig, patience_s: float) -> tuple[Key, ...]:
    """Fetch the keys of an issuer; none when it publishes none that fits.

    Args:
        issuer: of it the URLs.
        patience_s: seconds for each of the one or two fetches.

    Raises:
        KeyServiceError: they could not be had.
    """
    url = await _keys_url(issuer, patience_s)
    try:
        return parse_keys(await fetch_object(url, patience_s))
    except UnfitKeyError as error:
        raise KeyServiceError(f"{url}: {error}") from None
