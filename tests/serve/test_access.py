"""The doors with credentials of every kind: a real issuer, a token file, a deny list, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from engine.authorization import Principal
from engine.config import dump_config, parse_config, undump_config
from engine.errors import ConfigurationError
from serve.auth.credentials import hash_token
from serve.auth.denied import DenyList
from serve.auth.issued import IssuedTokens
from serve.auth.opening import AllCredentials, open_credentials
from serve.auth.tokens import StaticTokens, make_token
from tests.serve.auth.clock import Clock
from tests.serve.auth.issuer import AUDIENCE, NOW, Issuer, running_issuer
from tests.serve.conftest import connected
from tests.serve.library import Library

METADATA = "https://kb.example/.well-known/oauth-protected-resource/mcp"
SECURED = [
    ("POST", "/mcp"),
    ("POST", "/v1/search"),
    ("POST", "/v1/explain"),
    ("GET", "/v1/items/a"),
]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


class Site:
    """Credentials of every kind, with clocks that are set by hand."""

    def __init__(self, issuer: Issuer, folder: Path, **serve: Any) -> None:
        self.issuer = issuer
        self.clock, self.wall = Clock(), Clock(NOW)
        self.denied = folder / "deny.yaml"
        self.denied.write_text("{}", "utf-8")
        self.tokens = folder / "tokens.yaml"
        self.static, entry = make_token("alice")
        self.tokens.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
        auth = {"issuers": [issuer.config()], "resource_url": AUDIENCE}
        self.config = parse_config({"auth": auth, **serve})
        self.credentials = AllCredentials(
            StaticTokens(self.tokens, clock=self.clock),
            IssuedTokens(self.config.auth, "acme", wall=self.wall, clock=self.clock),
            DenyList(self.denied, clock=self.clock),
        )

    def write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        self.clock.now += 1.0

    async def get(self, library: Library, token: str, **headers: str) -> httpx2.Response:
        async with connected(library, self.credentials, self.config) as client:
            return await client.get(
                "/v1/items/a", headers={"authorization": f"Bearer {token}", **headers}
            )


@pytest.fixture
def site(issuer: Issuer, tmp_path: Path) -> Site:
    return Site(issuer, tmp_path)


async def test_tokens_of_the_file_and_of_the_issuer_are_accepted_and_apart(
    library: Library, site: Site
) -> None:
    statuses = [
        (await site.get(library, token)).status_code for token in (site.static, site.issuer.token())
    ]
    assert statuses == [200, 200]
    assert [each.subject for each in library.callers] == ["alice", "corp#alice"]


@pytest.mark.parametrize(("method", "path"), SECURED)
async def test_the_challenge_leads_to_the_metadata(
    library: Library, site: Site, method: str, path: str
) -> None:
    async with connected(library, site.credentials, site.config) as client:
        none = await client.request(method, path)
        bad = await client.request(method, path, headers={"authorization": "Bearer a.b.c"})
    tail = f'scope="knowledge:read", resource_metadata="{METADATA}"'
    assert none.headers["www-authenticate"] == f"Bearer {tail}"
    assert bad.headers["www-authenticate"] == f'Bearer error="invalid_token", {tail}'
    assert [none.status_code, bad.status_code] == [401, 401]


@pytest.mark.parametrize("suffix", ["", "/mcp"])
async def test_the_metadata_needs_no_credential_and_names_the_issuer(
    library: Library, site: Site, suffix: str
) -> None:
    async with connected(library, site.credentials, site.config) as client:
        path = f"/.well-known/oauth-protected-resource{suffix}"
        response = await client.get(path)
        other = await client.get(path + "x")
    assert response.json() == {
        "resource": AUDIENCE,
        "resource_name": "Octavo",
        "authorization_servers": [site.issuer.url],
        "scopes_supported": ["knowledge:read"],
        "bearer_methods_supported": ["header"],
    }
    assert other.status_code == 401


async def test_without_issuers_there_is_no_metadata(library: Library) -> None:
    async with connected(library) as client:
        response = await client.get("/.well-known/oauth-protected-resource/mcp")
    assert response.status_code == 404


async def test_a_token_without_the_scope_is_told_which_one(library: Library, site: Site) -> None:
    response = await site.get(library, site.issuer.token(scope="openid"))
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "knowledge_scope_required"
    assert response.headers["www-authenticate"] == (
        f'Bearer error="insufficient_scope", scope="knowledge:read", resource_metadata="{METADATA}"'
    )


def _call(**arguments: Any) -> dict[str, Any]:
    params = {"name": "search_knowledge", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def test_in_mcp_a_missing_scope_is_403_with_the_contracts_error_inside(
    library: Library, site: Site
) -> None:
    headers = {
        "authorization": f"Bearer {site.issuer.token(scope='openid')}",
        "accept": "application/json",
        "mcp-protocol-version": "2025-11-25",
    }
    async with connected(library, site.credentials, site.config) as client:
        response = await client.post("/mcp", json=_call(query="a"), headers=headers)
    assert response.status_code == 403
    assert 'error="insufficient_scope"' in response.headers["www-authenticate"]
    result = response.json()["result"]
    assert result["isError"]
    assert result["structuredContent"]["error"]["code"] == "knowledge_scope_required"


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_an_mcp_client_with_an_issuers_token_reads(
    library: Library, site: Site, era: Literal["auto", "legacy"]
) -> None:
    async with connected(library, site.credentials, site.config) as http:
        http.headers["authorization"] = f"Bearer {site.issuer.token()}"
        transport = streamable_http_client("http://127.0.0.1:8000/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            result = await client.call_tool("search_knowledge", {"knowledge_item_id": "a"})
    assert not result.is_error
    assert library.callers[-1].teams == {"corp#red", "corp#blue"}


async def test_a_key_service_that_is_down_is_503_and_not_401(library: Library, site: Site) -> None:
    site.issuer.replies["/jwks"] = (500, {}, b"")
    response = await site.get(library, site.issuer.token())
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "knowledge_overloaded"
    assert int(response.headers["retry-after"]) >= 1
    assert "www-authenticate" not in response.headers


async def test_a_key_service_that_goes_down_later_is_not_noticed(
    library: Library, site: Site
) -> None:
    assert (await site.get(library, site.issuer.token())).status_code == 200
    site.issuer.replies["/jwks"] = (500, {}, b"")
    site.clock.now += 1000
    assert (await site.get(library, site.issuer.token(jti="another"))).status_code == 200


@pytest.mark.parametrize("what", ["subject", "id", "hash", "static subject", "static hash"])
async def test_what_is_put_on_the_deny_list_is_refused_within_a_second(
    library: Library, site: Site, what: str
) -> None:
    issued = site.issuer.token(jti="id-1")
    token = site.static if "static" in what else issued
    line = {
        "subject": {"subjects": ["corp#alice"]},
        "id": {"token_ids": ["id-1"]},
        "hash": {"token_hashes": [hash_token(issued)]},
        "static subject": {"subjects": ["alice"]},
        "static hash": {"token_hashes": [hash_token(site.static)]},
    }[what]
    assert (await site.get(library, token)).status_code == 200  # now it is remembered
    site.write(site.denied, yaml.safe_dump(line))
    assert (await site.get(library, token)).status_code == 401
    site.write(site.denied, "{}")
    assert (await site.get(library, token)).status_code == 200


async def test_a_deny_list_that_cannot_be_read_answers_nobody(library: Library, site: Site) -> None:
    site.write(site.denied, "subjects: {")
    seen = [(await site.get(library, each)).status_code for each in (site.static, "wrong")]
    assert seen == [503, 401]


async def test_a_token_file_that_cannot_be_read_does_not_stop_the_issuers(
    library: Library, site: Site
) -> None:
    site.write(site.tokens, "tokens: {")
    tokens = (site.issuer.token(), site.static)
    assert [(await site.get(library, each)).status_code for each in tokens] == [200, 503]


class _Pausing(Library):
    """Answers when it is told to, after somebody did something."""

    def __init__(self) -> None:
        super().__init__(texts={"a": "secret text"})
        self.entered, self.leave = asyncio.Event(), asyncio.Event()

    async def answer(self, arguments: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
        self.entered.set()
        await self.leave.wait()
        return await super().answer(arguments, principal)


@pytest.mark.parametrize("how", ["denied", "removed", "expired", "unconfirmed"])
async def test_a_credential_taken_back_while_the_answer_is_made_gets_nothing(
    site: Site, how: str
) -> None:
    library = _Pausing()
    token = site.static if how == "removed" else site.issuer.token()
    asking = asyncio.create_task(site.get(library, token))
    await library.entered.wait()
    if how == "denied":
        site.write(site.denied, "subjects: ['corp#alice']")
    elif how == "removed":
        site.write(site.tokens, "tokens: []")
    elif how == "expired":
        site.wall.now += 10_000
    else:
        site.write(site.denied, "")
    library.leave.set()
    response = await asking
    assert response.status_code == (503 if how == "unconfirmed" else 401)
    assert "secret" not in response.text


async def test_a_caller_over_its_rate_is_told_in_the_words_of_its_door(
    issuer: Issuer, tmp_path: Path, library: Library
) -> None:
    site = Site(issuer, tmp_path, fairness={"requests_per_s": 0.001, "burst": 2})
    headers = {
        "authorization": f"Bearer {site.static}",
        "accept": "application/json",
        "mcp-protocol-version": "2025-11-25",
    }
    async with connected(library, site.credentials, site.config) as client:
        seen = [await client.post("/mcp", json=_call(query="a"), headers=headers) for _ in range(8)]
        headers["authorization"] = f"Bearer {issuer.token()}"
        other = await client.post("/mcp", json=_call(query="a"), headers=headers)
    errors = [each.json().get("result", {}).get("isError") for each in seen]
    assert [each.status_code for each in seen] == [200] * 4 + [503] * 4
    assert errors == [False, False, True, True, None, None, None, None]
    assert "knowledge_overloaded" in seen[2].text
    assert all(int(each.headers["retry-after"]) >= 1 for each in seen[4:])
    assert len(library.callers) == 3  # two of the flood, one of the other
    assert other.json()["result"]["isError"] is False


async def test_a_body_that_does_not_come_is_given_up_before_it_holds_a_place(
    library: Library, site: Site
) -> None:
    config = parse_config({"serve": {"body_timeout_s": 0.05, "max_ongoing_requests": 1}})
    never = asyncio.Event()

    async def dripping() -> AsyncIterator[bytes]:
        yield b'{"query"'
        await never.wait()

    headers = {"content-type": "application/json", "authorization": f"Bearer {site.static}"}
    async with connected(library, site.credentials, config) as client:
        slow = asyncio.create_task(
            client.post("/v1/search", content=dripping(), headers=headers, timeout=60)
        )
        quick = await client.post("/v1/search", json={"query": "a"}, headers=headers)
        response = await slow
    assert quick.status_code == 200
    assert response.status_code == 408
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("length", ["-1", "1e3", "\u00b2", "9" * 400])
async def test_a_length_that_is_none_is_refused(library: Library, length: str) -> None:
    async with connected(library) as client:
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", length.encode("latin-1")),
        ]
        response = await client.post("/v1/search", content=b"{}", headers=headers)
    assert response.status_code == 413


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.0.2.7", "kb.example", "127.0.0.1.nip.io", "::ffff:0.0.0.0"]
)
def test_nobody_but_this_machine_is_served_without_credentials(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not a loopback address"):
        open_credentials(parse_config({"serve": {"host": host}}), None)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_this_machine_everybody_may_be_anonymous(host: str) -> None:
    assert open_credentials(parse_config({"serve": {"host": host}}), None) is None


def test_issuers_alone_are_credentials(issuer: Issuer) -> None:
    auth = {"issuers": [issuer.config()], "resource_url": AUDIENCE}
    config = parse_config({"serve": {"host": "0.0.0.0"}, "auth": auth})
    assert open_credentials(config, None) is not None


def test_a_deny_list_that_is_missing_is_refused_at_the_start(tmp_path: Path) -> None:
    auth = {"deny_list": str(tmp_path / "missing.yaml")}
    with pytest.raises(ConfigurationError, match="cannot be read"):
        open_credentials(parse_config({"auth": auth}), None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"issuer": "http://login.example"}, "https"),
        ({"issuer": "https://login.example/#x"}, "fragment"),
        ({"issuer": "https://u:p@login.example"}, "user"),
        ({"issuer": "ftp://127.0.0.1"}, "https"),
        ({"jwks_url": "http://10.0.0.1/jwks"}, "https"),
        ({"jwks_url": "file:///etc/passwd"}, "URL"),
        ({"name": "a#b"}, "pattern"),
        ({"name": "Corp"}, "pattern"),
        ({"name": "corp\n"}, "pattern"),
        ({"audience": []}, "at least 1"),
        ({"organization_claim": "tid"}, "go together"),
        ({"jwks": []}, "unknown key"),
    ],
)
def test_an_issuer_that_cannot_be_trusted_is_refused(
    changes: dict[str, object], reason: str
) -> None:
    one = {"name": "corp", "issuer": "https://login.example", "audience": ["a"], **changes}
    auth = {"issuers": [one], "resource_url": AUDIENCE}
    with pytest.raises(ConfigurationError, match=reason):
        parse_config({"auth": auth})


def test_two_issuers_cannot_share_a_name() -> None:
    many = [
        {"name": "corp", "issuer": f"https://{host}.example", "audience": ["a"]} for host in "ab"
    ]
    with pytest.raises(ConfigurationError, match="same name"):
        parse_config({"auth": {"issuers": many, "resource_url": AUDIENCE}})


def test_a_configuration_with_issuers_survives_its_trip_to_a_replica(issuer: Issuer) -> None:
    config = parse_config({"auth": {"issuers": [issuer.config()], "resource_url": AUDIENCE}})
    assert undump_config(dump_config(config)) == config
