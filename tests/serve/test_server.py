"""The whole server: Ray Serve, HAProxy, three shard groups, an encoder deployment, tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from engine.authorization import Principal
from engine.config import Config
from engine.ids import ItemId
from engine.local import open_local
from serve import processes
from serve.auth.tokens import make_token
from serve.launcher import Spawned, spawn
from serve.runtime import free_port
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import fill
from tests.serve.listeners import listening_beyond_loopback

pytestmark = [
    pytest.mark.ray,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # a cluster starts in 20 s on an idle machine
]

ALICE = Principal(subject="alice", teams=frozenset({"blue"}), scopes=frozenset({"knowledge:read"}))
ODD_IDS = ["a/b", "a%2Fb", "a b+c?d#e", "ü中😀"]
PAIRS = [f"pair-{number}" for number in range(12)]


@dataclass(frozen=True)
class Running:
    """A running server, its store, and Alice's token."""

    server: Spawned
    library: Library
    config: Config
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def replicas(self) -> set[int]:
        tree = processes.descendants(self.server.pid)
        return {each.pid for each in tree if processes.command(each).startswith("ray::ServeRepl")}


def _pairs(word: str) -> list[tuple[str, str, str]]:
    return [(item, word, f"twin text about marmots, told {word}") for item in PAIRS]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("server")
    library = Library(folder / "store")
    library.add_base("open")
    library.add_base("team", scope="team", owner="bob", team="blue")
    library.add_base("secret", scope="private", owner="bob")
    fill(library, "open", seed=7, count=40)
    fill(library, "team", seed=11, count=20, prefix="team")
    fill(library, "secret", seed=13, count=20, prefix="secret")
    library.add("open", [(item, "Odd", f"an odd id: {item}") for item in ODD_IDS])
    library.add("open", _pairs("before"))
    library.reindex(shards=5)
    token, entry = make_token("alice", teams=["blue"])
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    serve = {"port": free_port(), "groups": 3, "encoder_deployment": True}
    config = small_config(library.root, serve=serve)
    server = spawn(config, tokens, log=folder / "log")
    yield Running(server, library, config, token)
    server.stop()


@pytest.fixture
async def http(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=running.server.url, headers=running.headers, timeout=120
    ) as client:
        yield client


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic", "rrf"])
async def test_three_groups_answer_the_same_bytes_as_one_process(
    running: Running, http: httpx2.AsyncClient, mode: str
) -> None:
    knowledge = open_local(running.config)
    try:
        for query in ("server token", "Anmeldung Fehler", "数据库备份恢复", "ERR_CONN_RESET"):
            arguments = {"query": query, "mode": mode, "max_results": 20}
            expected = await knowledge.answer(arguments, ALICE)
            response = await http.post("/v1/search", json=arguments)
            assert response.json() == expected
            assert expected["results"]
    finally:
        await knowledge.close()


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_an_mcp_client_searches_and_opens_what_it_found(
    running: Running, era: Literal["auto", "legacy"]
) -> None:
    async with (
        httpx2.AsyncClient(headers=running.headers, timeout=120) as http,
        Client(streamable_http_client(running.server.mcp_url, http_client=http), mode=era) as mcp,
    ):
        found = await mcp.call_tool("search_knowledge", {"query": "server token"})
        assert found.structured_content is not None
        first = found.structured_content["results"][0]
        arguments = {
            "knowledge_item_id": first["knowledge_item_id"],
            "knowledge_revision_id": first["knowledge_revision_id"],
            "offset": first["excerpt_offset"],
            "limit_chars": len(first["excerpt"]),
        }
        opened = await mcp.call_tool("search_knowledge", arguments)
    assert opened.structured_content is not None
    assert opened.structured_content["content"] == first["excerpt"]


async def test_a_caller_sees_its_teams_base_and_not_another_ones(http: httpx2.AsyncClient) -> None:
    seen = {}
    for base in ("open", "team", "secret", "missing"):
        arguments = {"query": "server", "knowledge_base_id": base}
        seen[base] = (await http.post("/v1/search", json=arguments)).status_code
    assert seen == {"open": 200, "team": 200, "secret": 404, "missing": 404}


@pytest.mark.parametrize("path", ["/mcp", "/v1/search", "/v1/items/item-000"])
async def test_without_a_token_nothing_is_answered(running: Running, path: str) -> None:
    async with httpx2.AsyncClient(base_url=running.server.url, timeout=60) as client:
        response = await client.request("GET" if "items" in path else "POST", path, json={})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == 'Bearer scope="knowledge:read"'


@pytest.mark.parametrize("item", ODD_IDS)
async def test_odd_ids_survive_the_proxy(http: httpx2.AsyncClient, item: str) -> None:
    escaped = "".join(f"%{byte:02X}" for byte in item.encode())
    response = await http.get(f"/v1/items/{escaped}")
    assert response.json()["knowledge_item_id"] == item
    assert response.json()["content"] == f"an odd id: {item}"


async def test_a_withdrawn_item_disappears_without_a_new_generation(
    running: Running, http: httpx2.AsyncClient
) -> None:
    arguments = {"query": "odd id", "max_results": 50}
    before = (await http.post("/v1/search", json=arguments)).json()["results"]
    assert ODD_IDS[2] in {each["knowledge_item_id"] for each in before}
    running.library.store.writer.unpublish([ItemId(ODD_IDS[2])])
    async with asyncio.timeout(30):
        while (await http.post("/v1/search", json=arguments)).json()["results"] == before:
            continue
    after = (await http.post("/v1/search", json=arguments)).json()["results"]
    assert ODD_IDS[2] not in {each["knowledge_item_id"] for each in after}
    assert len(after) == len(before) - 1 or len(after) == 50


async def test_the_runtime_switch_acts_on_the_running_server(
    running: Running, http: httpx2.AsyncClient
) -> None:
    switch = running.library.store.runtime
    switch.set(False)
    async with asyncio.timeout(30):
        while (await http.post("/v1/search", json={"query": "a"})).status_code == 200:
            continue
    response = await http.post("/v1/search", json={"query": "a"})
    assert (response.status_code, response.json()["type"]) == (503, "knowledge_unavailable")
    switch.set(True)
    async with asyncio.timeout(30):
        while (await http.post("/v1/search", json={"query": "a"})).status_code == 503:
            continue


async def _titles(http: httpx2.AsyncClient) -> frozenset[str]:
    arguments = {"query": "marmots", "mode": "lexical", "max_results": len(PAIRS)}
    response = await http.post("/v1/search", json=arguments)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert "coverage" not in body
    assert [each["knowledge_item_id"] for each in body["results"]] == sorted(PAIRS)
    return frozenset(each["title"] for each in body["results"])


async def test_a_new_generation_is_taken_up_without_a_restart_or_a_failed_request(
    running: Running, http: httpx2.AsyncClient
) -> None:
    replicas = running.replicas()
    assert await _titles(http) == {"before"}
    running.library.add("open", _pairs("after"))
    commit = asyncio.create_task(asyncio.to_thread(running.library.reindex, 5, grow=True))
    seen: list[frozenset[str]] = []
    async with asyncio.timeout(120):
        while not seen or seen[-1] != {"after"}:
            seen.append(await _titles(http))
    await commit
    seen += [await _titles(http) for _ in range(20)]
    assert set(seen) == {frozenset({"before"}), frozenset({"after"})}, "an answer mixed generations"
    assert seen == sorted(seen, key=lambda titles: titles == {"after"}), "an answer went back"
    assert running.replicas() == replicas
    assert len(replicas) == 5  # ingress, three groups, encoder


def test_nothing_listens_beyond_the_loopback_interface(running: Running) -> None:
    tree = processes.descendants(running.server.pid)
    names = {processes.command(each) for each in tree}
    assert {"raylet", "gcs_server", "haproxy"} <= names
    assert listening_beyond_loopback(tree) == set()


def test_a_stop_is_clean_and_leaves_no_process_and_no_fault(running: Running) -> None:
    tree = processes.descendants(running.server.pid)
    assert tree
    assert running.server.stop() == 0
    assert processes.living(tree) == frozenset()
    log = running.library.root / "logs" / "serve.jsonl"
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    assert [line for line in lines if "fault" in json.loads(line)] == []
