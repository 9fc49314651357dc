"""The HTTP door, over the reference library."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import pytest

from engine.authorization import ANONYMOUS, Principal
from engine.config import Config
from engine.contract import HTTP_STATUS, SEARCH_KNOWLEDGE_SCHEMA
from engine.errors import OverloadedError, StoreError
from serve.openapi import document
from tests.serve.conftest import connected
from tests.serve.library import Library

JSON = {"content-type": "application/json"}


def _error(response: httpx2.Response) -> tuple[int, str]:
    body = response.json()
    assert body["type"] in {"knowledge_error", "knowledge_unavailable"}
    return response.status_code, body["error"]["code"]


async def _post(client: httpx2.AsyncClient, body: bytes) -> httpx2.Response:
    return await client.post("/v1/search", content=body, headers=JSON)


async def test_a_search_takes_the_contracts_parameters(library: Library) -> None:
    async with connected(library) as client:
        response = await client.post("/v1/search", json={"query": "a", "max_results": "3"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"type": "knowledge_search", "results": []}


async def test_an_addressed_read_may_be_posted_too(library: Library) -> None:
    async with connected(library) as client:
        response = await client.post("/v1/search", json={"knowledge_item_id": "a", "offset": 7})
    assert response.json()["content"] == "789"


async def test_an_item_is_read_in_a_window(library: Library) -> None:
    async with connected(library) as client:
        response = await client.get("/v1/items/a?offset=2&limit_chars=3&knowledge_base_id=")
    body = response.json()
    assert (body["content"], body["content_offset"], body["content_limit"]) == ("234", 2, 3)


async def test_a_revision_is_read_by_its_own_path(library: Library) -> None:
    async with connected(library) as client:
        found = await client.get("/v1/items/a/revisions/r1")
        missing = await client.get("/v1/items/a/revisions/r2")
    assert found.json()["knowledge_revision_id"] == "r1"
    assert _error(missing) == (404, "knowledge_resource_unavailable")


@pytest.mark.parametrize(
    ("path", "text"),
    [("x%2Fy", "slash"), ("x%252Fy", "percent"), ("%C3%BC", "umlaut"), ("%61", "0123456789")],
)
async def test_ids_in_paths_are_decoded_exactly_once(
    library: Library, path: str, text: str
) -> None:
    async with connected(library) as client:
        response = await client.get(f"/v1/items/{path}")
    assert response.json()["content"] == text


async def test_content_is_sent_as_utf8_without_escapes() -> None:
    text = "Größe 漢字 😀 e\u0301\r\n"
    async with connected(Library(texts={"a": text})) as client:
        response = await client.get("/v1/items/a")
    assert response.json()["content"] == text
    assert "漢字 😀" in response.content.decode("utf-8")


@pytest.mark.parametrize("path", ["%", "%2", "%zz", "a%", "%ff", "%C3"])
async def test_a_broken_percent_encoding_is_an_invalid_request(library: Library, path: str) -> None:
    async with connected(library) as client:
        request = client.build_request("GET", "/v1/items/a")
        request.url = httpx2.URL(request.url, raw_path=b"/v1/items/" + path.encode())
        response = await client.send(request)
    assert _error(response) == (400, "knowledge_invalid_request")


@pytest.mark.parametrize(
    "query",
    [
        "limit_chars=0",
        "offset=-1",
        "offset=x",
        "nonsense=1",
        "offset=1&offset=2",
        "query=a",
        "knowledge_item_id=b",
        "offset=%ff",
        "knowledge_base_id=" + "b" * 257,
    ],
)
async def test_a_bad_query_parameter_is_an_invalid_request(library: Library, query: str) -> None:
    async with connected(library) as client:
        response = await client.get(f"/v1/items/a?{query}")
    assert _error(response) == (400, "knowledge_invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff",
        b'{"query": NaN}',
        b'{"alpha": Infinity, "query": "a"}',
        b'{"alpha": -Infinity, "query": "a"}',
        b'{"query": "a", "query": "b"}',
        b'{"query": "a", "\\u0071uery": "b"}',
        b'{"query": {"a": 1, "a": 2}}',
        b'{"query": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"offset": ' + b"9" * 5000 + b', "knowledge_item_id": "a"}',
        b'{"query": "a"} {}',
        b'{"quary": "a"}',
        b'{"query": 1}',
    ],
)
async def test_a_body_that_is_not_one_strict_json_object_is_an_invalid_request(
    library: Library, body: bytes
) -> None:
    async with connected(library) as client:
        assert _error(await _post(client, body)) == (400, "knowledge_invalid_request")


async def test_a_line_break_in_a_path_is_an_invalid_id(library: Library) -> None:
    async with connected(library) as client:
        response = await client.get("/v1/items/a%0Ab")
    assert _error(response) == (400, "knowledge_invalid_request")
    assert response.json()["error"]["parameter"] == "knowledge_item_id"


async def test_a_lone_surrogate_in_an_id_is_an_invalid_request(library: Library) -> None:
    async with connected(library) as client:
        response = await _post(client, b'{"knowledge_item_id": "\\ud800"}')
    assert _error(response) == (400, "knowledge_invalid_request")


async def test_a_switched_off_runtime_is_said_before_the_form_is_judged(library: Library) -> None:
    library.enabled = False
    async with connected(library) as client:
        responses = [
            await _post(client, b"{"),
            await client.get("/v1/items/a?nonsense=1"),
            await client.post("/v1/search", json={"query": "a"}),
        ]
    assert [_error(each) for each in responses] == [(503, "knowledge_runtime_disabled")] * 3
    assert [each.json()["type"] for each in responses] == ["knowledge_unavailable"] * 3
    assert all(int(each.headers["retry-after"]) >= 1 for each in responses)


async def test_a_missing_scope_is_said_before_the_form_is_judged(library: Library) -> None:
    class NoScope:
        async def principal(self, token: str) -> Principal | None:
            return Principal(subject=token)

    async with connected(library, NoScope()) as client:
        headers = {**JSON, "authorization": "Bearer alice"}
        response = await client.post("/v1/search", content=b"{", headers=headers)
    assert _error(response) == (403, "knowledge_scope_required")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/search", "POST"),
        ("DELETE", "/v1/search", "POST"),
        ("POST", "/v1/items/a", "GET"),
        ("PUT", "/v1/items/a/revisions/r1", "GET"),
        ("POST", "/healthz", "GET"),
    ],
)
async def test_another_method_is_refused_with_the_allowed_one(
    library: Library, method: str, path: str, allowed: str
) -> None:
    async with connected(library) as client:
        response = await client.request(method, path)
    assert _error(response) == (405, "knowledge_invalid_request")
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/items/", "/v1/items/a/", "/v1/items/a/b", "/v1/items//revisions/r"]
)
async def test_an_unknown_path_is_not_found(library: Library, path: str) -> None:
    async with connected(library) as client:
        response = await client.get(path)
    assert _error(response) == (404, "knowledge_invalid_request")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_another_content_type_is_refused(library: Library, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    async with connected(library) as client:
        response = await client.post("/v1/search", content=b'{"query": "a"}', headers=headers)
    assert _error(response) == (415, "knowledge_invalid_request")


async def test_a_content_type_may_name_its_charset(library: Library) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    async with connected(library) as client:
        response = await client.post("/v1/search", content=b'{"query": "a"}', headers=headers)
    assert response.status_code == 200


async def _pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 64):
        yield b" " * 64


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_before_it_is_parsed(
    library: Library, small: Config, chunked: bool
) -> None:
    content: bytes | AsyncIterator[bytes] = _pieces(2048) if chunked else b" " * 2048
    async with connected(library, config=small) as client:
        response = await client.post("/v1/search", content=content, headers=JSON)
    assert _error(response) == (413, "knowledge_invalid_request")
    assert library.callers == []


async def test_a_body_at_the_limit_is_read(library: Library, small: Config) -> None:
    body = b'{"query": "a"}'.ljust(1024)
    async with connected(library, config=small) as client:
        assert (await _post(client, body)).status_code == 200


@pytest.mark.parametrize(
    "failure", [RuntimeError("secret path /root/x"), StoreError("secret path /root/x"), KeyError()]
)
async def test_a_fault_of_ours_shows_an_id_that_is_in_the_logs_and_nothing_else(
    library: Library, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    library.failure = failure
    with caplog.at_level(logging.ERROR, "serve"):
        async with connected(library) as client:
            response = await client.post("/v1/search", json={"query": "private words"})
    assert _error(response) == (500, "knowledge_internal")
    assert "secret" not in response.text
    (record,) = [each for each in caplog.records if each.name == "serve.door"]
    assert f"internal fault {vars(record)['fault']}" == response.json()["error"]["message"]
    assert "private words" not in caplog.text


async def test_an_overload_says_when_to_ask_again(library: Library) -> None:
    library.failure = OverloadedError("busy", retry_after_s=2.5)
    async with connected(library) as client:
        response = await client.post("/v1/search", json={"query": "a"})
    assert _error(response) == (503, "knowledge_overloaded")
    assert response.headers["retry-after"] == "3"


async def test_more_requests_than_the_limit_are_shed(small: Config) -> None:
    class Waiting(Library):
        def __init__(self) -> None:
            super().__init__()
            self.entered, self.leave = asyncio.Event(), asyncio.Event()

        async def answer(
            self, arguments: Mapping[str, Any], principal: Principal
        ) -> dict[str, Any]:
            self.entered.set()
            await self.leave.wait()
            return await super().answer(arguments, principal)

    waiting = Waiting()
    async with connected(waiting, config=small) as client:
        first = asyncio.create_task(client.post("/v1/search", json={"query": "a"}))
        await waiting.entered.wait()
        second = await client.post("/v1/search", json={"query": "a"})
        waiting.leave.set()
        assert (await first).status_code == 200
        third = await client.post("/v1/search", json={"query": "a"})
    assert _error(second) == (503, "knowledge_overloaded")
    assert third.status_code == 200


async def test_health_and_readiness_are_apart(library: Library) -> None:
    async with connected(library) as client:
        seen = [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]
        library.is_ready = False
        seen += [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]
        library.failure = OverloadedError("stale")
        seen += [(await client.get(path)).status_code for path in ("/healthz", "/readyz")]
    assert seen == [200, 200, 200, 503, 200, 503]


async def test_without_credentials_everybody_is_anonymous(library: Library) -> None:
    async with connected(library) as client:
        headers = {"authorization": "Bearer whatever"}
        await client.get("/v1/items/a", headers=headers)
    assert library.callers == [ANONYMOUS]


async def test_the_openapi_document_is_served(library: Library) -> None:
    async with connected(library) as client:
        response = await client.get("/openapi.json")
    assert response.json() == document()


def test_the_openapi_document_names_every_parameter_and_every_code() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["Arguments"] == SEARCH_KNOWLEDGE_SCHEMA
    assert schemas["Error"]["properties"]["error"]["properties"]["code"]["enum"] == [*HTTP_STATUS]


def test_every_reference_of_the_openapi_document_resolves() -> None:
    tree = document()
    names = {
        part.partition('"')[0]
        for part in json.dumps(tree).split('"$ref": "#/components/schemas/')[1:]
    }
    assert names
    assert names <= set(tree["components"]["schemas"])
