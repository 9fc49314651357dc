"""The explanation route: for whoever was given its scope, and for nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
import yaml

from engine.authorization import OPERATE_SCOPE, READ_SCOPE
from engine.config import Config
from engine.contract import render_search
from engine.errors import OverloadedError
from serve.auth.tokens import StaticTokens, make_token
from serve.mcp_door import TOOL
from tests.serve.conftest import connected
from tests.serve.library import Library

QUERY = {"query": "a"}


def _tokens(
    folder: Path, scopes: Sequence[str] | None = None
) -> tuple[dict[str, str], StaticTokens]:
    """Return the header of a token and the file that knows it; None: the scopes of the default."""
    token, entry = make_token("alice") if scopes is None else make_token("alice", scopes=scopes)
    path = folder / "tokens.yaml"
    path.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    return {"authorization": f"Bearer {token}"}, StaticTokens(path)


def _error(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


@pytest.mark.parametrize("scopes", [[READ_SCOPE, OPERATE_SCOPE], ["knowledge:*"], ["*"]])
async def test_an_operator_is_shown_the_search_and_its_answer(
    library: Library, tmp_path: Path, scopes: list[str]
) -> None:
    header, tokens = _tokens(tmp_path, scopes)
    async with connected(library, tokens) as client:
        response = await client.post("/v1/explain", json=QUERY, headers=header)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    body = response.json()
    assert body["type"] == "knowledge_explanation"
    assert body["answer"] == render_search(())


async def test_a_token_made_by_default_may_search_and_not_explain(
    library: Library, tmp_path: Path
) -> None:
    header, tokens = _tokens(tmp_path)
    async with connected(library, tokens) as client:
        searched = await client.post("/v1/search", json=QUERY, headers=header)
        explained = await client.post("/v1/explain", json=QUERY, headers=header)
    assert searched.status_code == 200
    assert _error(explained) == (403, "knowledge_scope_required")
    assert OPERATE_SCOPE in explained.json()["error"]["message"]


async def test_the_scope_of_operators_does_not_let_anybody_read(
    library: Library, tmp_path: Path
) -> None:
    header, tokens = _tokens(tmp_path, [OPERATE_SCOPE])
    async with connected(library, tokens) as client:
        for path in ("/v1/search", "/v1/explain"):
            response = await client.post(path, json=QUERY, headers=header)
            assert _error(response) == (403, "knowledge_scope_required")


async def test_an_unauthenticated_server_explains_nothing(library: Library) -> None:
    async with connected(library) as client:
        response = await client.post("/v1/explain", json=QUERY)
    assert _error(response) == (403, "knowledge_scope_required")


async def test_no_explanation_without_a_valid_credential(library: Library, tmp_path: Path) -> None:
    _, tokens = _tokens(tmp_path, ["*"])
    async with connected(library, tokens) as client:
        for header in ({}, {"authorization": "Bearer octavo_other"}):
            response = await client.post("/v1/explain", json=QUERY, headers=header)
            assert _error(response) == (401, "knowledge_unauthorized")
            assert response.headers["www-authenticate"].startswith("Bearer")
    assert library.callers == []


async def test_a_base_that_is_not_there_for_the_caller_is_unavailable(
    library: Library, tmp_path: Path
) -> None:
    header, tokens = _tokens(tmp_path, ["knowledge:*"])
    async with connected(library, tokens) as client:
        body = {**QUERY, "knowledge_base_id": "other"}
        response = await client.post("/v1/explain", json=body, headers=header)
    assert _error(response) == (404, "knowledge_resource_unavailable")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "knowledge_invalid_request"),
        (b'{"knowledge_item_id": "a"}', "knowledge_invalid_request"),
        (b'{"query": "a", "explain": true}', "knowledge_invalid_request"),
        (b"{}", "knowledge_query_required"),
    ],
)
async def test_what_cannot_be_explained_is_refused_and_only_operators_hear_why(
    library: Library, tmp_path: Path, body: bytes, code: str
) -> None:
    (tmp_path / "reader").mkdir()
    reader, readers = _tokens(tmp_path / "reader")
    header, tokens = _tokens(tmp_path, ["knowledge:*"])
    json_type = {"content-type": "application/json"}
    async with connected(library, tokens) as client:
        response = await client.post("/v1/explain", content=body, headers=header | json_type)
    assert _error(response) == (400, code)
    async with connected(library, readers) as client:
        response = await client.post("/v1/explain", content=body, headers=reader | json_type)
    assert _error(response) == (403, "knowledge_scope_required")


async def test_limits_and_failures_are_those_of_a_search(
    library: Library, tmp_path: Path, small: Config
) -> None:
    header, tokens = _tokens(tmp_path, ["knowledge:*"])
    async with connected(library, tokens, small) as client:
        got = await client.get("/v1/explain", headers=header)
        plain = await client.post("/v1/explain", content=b"{}", headers=header)
        long = {"query": "a" * 2000}
        large = await client.post("/v1/explain", json=long, headers=header)
        library.failure = OverloadedError("stale", 2.5)
        busy = await client.post("/v1/explain", json=QUERY, headers=header)
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert (plain.status_code, large.status_code) == (415, 413)
    assert (_error(busy), busy.headers["retry-after"]) == ((503, "knowledge_overloaded"), "3")


def test_agents_are_not_offered_explanations() -> None:
    assert "explain" not in TOOL.model_dump_json()
