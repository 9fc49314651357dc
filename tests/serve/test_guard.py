"""Host, Origin and credential, before every route."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
import yaml
from starlette.types import Message

from engine.authorization import Principal
from engine.config import Config, parse_config
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from serve.guard import Names
from tests.serve.conftest import connected
from tests.serve.library import Library

ROUTES = [
    ("POST", "/mcp"),
    ("POST", "/v1/search"),
    ("GET", "/v1/items/a"),
    ("GET", "/openapi.json"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/nowhere"),
]
SECURED = ROUTES[:3]
OPEN = ROUTES[3:6]

INVALID = 'Bearer error="invalid_token", scope="knowledge:read"'

every_route = pytest.mark.parametrize(("method", "path"), ROUTES)


@pytest.fixture
def tokens(tmp_path: Path) -> tuple[str, StaticTokens]:
    token, entry = make_token("alice", teams=["red"], organization="acme")
    path = tmp_path / "tokens.yaml"
    path.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    return token, StaticTokens(path)


def _code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@every_route
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost:80:80", "localhost:x", ""]
)
async def test_another_host_is_misdirected(
    library: Library, method: str, path: str, host: str
) -> None:
    async with connected(library) as client:
        response = await client.request(method, path, headers={"host": host})
    assert _code(response) == (421, "knowledge_invalid_request")


@every_route
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost.evil.example", "http://evil:8000"]
)
async def test_another_origin_is_forbidden(
    library: Library, method: str, path: str, origin: str
) -> None:
    async with connected(library) as client:
        response = await client.request(method, path, headers={"origin": origin})
    assert _code(response) == (403, "knowledge_invalid_request")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]:8000"])
async def test_loopback_names_are_accepted(library: Library, host: str) -> None:
    async with connected(library) as client:
        headers = {"host": host, "origin": "http://localhost:3000"}
        assert (await client.get("/v1/items/a", headers=headers)).status_code == 200


async def test_configured_hosts_and_origins_are_accepted(library: Library) -> None:
    config = parse_config(
        {
            "serve": {
                "host": "0.0.0.0",
                "allowed_hosts": ["KB.Example", "kb.example.org:444"],
                "allowed_origins": ["https://App.example"],
            }
        }
    )
    seen = []
    async with connected(library, config=config) as client:
        for host in ("kb.example", "kb.example:8000", "kb.example.org:444", "kb.example.org:445"):
            headers = {"host": host, "origin": "https://app.example"}
            seen.append((await client.get("/v1/items/a", headers=headers)).status_code)
    assert seen == [200, 200, 200, 421]


def test_the_listening_address_is_accepted() -> None:
    assert "192.0.2.7:*" in Names.of("192.0.2.7", (), ()).hosts


@pytest.mark.parametrize(("method", "path"), SECURED)
@pytest.mark.parametrize(
    ("authorization", "challenge"),
    [
        (None, 'Bearer scope="knowledge:read"'),
        ("Bearer", INVALID),
        ("Bearer wrong", INVALID),
        ("Basic {token}", INVALID),
        ("{token}", INVALID),
        ("Bearer {token}x", INVALID),
    ],
)
async def test_a_missing_or_bad_token_is_answered_401_before_anything_else(
    library: Library,
    tokens: tuple[str, StaticTokens],
    method: str,
    path: str,
    authorization: str | None,
    challenge: str,
) -> None:
    library.enabled = False
    headers = {}
    if authorization is not None:
        headers["authorization"] = authorization.format(token=tokens[0])
    async with connected(library, tokens[1]) as client:
        response = await client.request(method, path, headers=headers)
    assert _code(response) == (401, "knowledge_unauthorized")
    assert response.headers["www-authenticate"] == challenge
    assert library.callers == []


async def test_two_authorization_headers_are_refused(
    library: Library, tokens: tuple[str, StaticTokens]
) -> None:
    headers = [("authorization", f"Bearer {tokens[0]}"), ("authorization", "Bearer other")]
    async with connected(library, tokens[1]) as client:
        response = await client.get("/v1/items/a", headers=headers)
    assert _code(response) == (401, "knowledge_unauthorized")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_a_token_brings_its_principal_to_the_call(
    library: Library, tokens: tuple[str, StaticTokens], scheme: str
) -> None:
    async with connected(library, tokens[1]) as client:
        headers = {"authorization": f"{scheme} {tokens[0]}"}
        response = await client.get("/v1/items/a", headers=headers)
    assert response.status_code == 200
    assert library.callers == [
        Principal(
            subject="alice",
            teams=frozenset({"red"}),
            scopes=frozenset({"knowledge:read"}),
            organization="acme",
        )
    ]


@pytest.mark.parametrize(("method", "path"), OPEN)
async def test_health_and_the_document_need_no_token(
    library: Library, tokens: tuple[str, StaticTokens], method: str, path: str
) -> None:
    async with connected(library, tokens[1]) as client:
        assert (await client.request(method, path)).status_code == 200


@pytest.mark.parametrize("path", ["/mcp", "/v1/search", "/healthz", "/elsewhere"])
async def test_a_websocket_is_refused_without_a_word(
    library: Library, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": path, "headers": [], "query_string": b""}
    await build_app(library, Config())(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert not caplog.records


async def test_a_length_that_takes_thousands_of_digits_is_a_length(library: Library) -> None:
    async with connected(library) as client:
        for zeros in (20, 5000):
            headers = {"content-length": "0" * zeros + "13", "content-type": "application/json"}
            response = await client.post("/v1/search", content=b'{"query":"a"}', headers=headers)
            assert response.status_code == 200
