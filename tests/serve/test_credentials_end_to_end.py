"""`octavo serve` with an issuer's tokens, a token file, a deny list and the audit trail."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from engine.ids import ItemId
from serve import processes
from serve.auth.tokens import make_token
from serve.launcher import Spawned, spawn
from serve.runtime import free_port
from tests.engine.search.building import Library, small_config
from tests.serve.auth.issuer import AUDIENCE, Issuer, running_issuer
from tests.serve.listeners import listening_beyond_loopback

pytestmark = [
    pytest.mark.ray,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # a cluster starts in 20 s on an idle machine
]


@dataclass(frozen=True)
class Site:
    """A running server on the IPv6 loopback address, its issuer and its files."""

    server: Spawned
    issuer: Issuer
    folder: Path
    static: str

    def issued(self, **changes: Any) -> str:
        now = int(time.time())
        return self.issuer.token(**{"iat": now, "exp": now + 600, **changes})

    def records(self) -> list[dict[str, Any]]:
        text = (self.folder / "audit.jsonl").read_text("utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def write(self, name: str, tree: dict[str, Any]) -> None:
        (self.folder / name).write_text(yaml.safe_dump(tree), "utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("credentials")
    library = Library(folder / "store")
    library.add_base("open")
    library.add_base("local", scope="team", owner="nobody", team="red")
    library.add_base("corp", scope="team", owner="nobody", team="corp#red")
    library.add_base("mine", scope="private", owner="corp#alice")
    for base in ("open", "local", "corp", "mine"):
        library.add(base, [(f"in-{base}", "Marmots", f"a text about marmots in {base}")])
    library.reindex()
    static, entry = make_token("alice", teams=["red"])
    (folder / "tokens.yaml").write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    (folder / "deny.yaml").write_text("{}", "utf-8")
    with running_issuer() as issuer:
        auth = {
            "issuers": [issuer.config()],
            "resource_url": AUDIENCE,
            "deny_list": str(folder / "deny.yaml"),
        }
        config = small_config(
            library.root,
            serve={"host": "::1", "port": free_port()},
            auth=auth,
            audit={"destination": str(folder / "audit.jsonl")},
        )
        server = spawn(config, folder / "tokens.yaml", log=folder / "log")
        yield Site(server, issuer, folder, static)
        server.stop()


async def _found(site: Site, token: str) -> tuple[int, set[str]]:
    headers = {"authorization": f"Bearer {token}"}
    again = httpx2.AsyncHTTPTransport(retries=5)  # the proxy may be taking up its routes
    client = httpx2.AsyncClient(base_url=site.server.url, timeout=120, transport=again)
    async with client as http, asyncio.timeout(120):
        while True:
            response = await http.post("/v1/search", json={"query": "marmots"}, headers=headers)
            if response.status_code != 503:  # a busy machine: nothing is decided, ask again
                break
    results = response.json().get("results", [])
    return response.status_code, {each["knowledge_item_id"] for each in results}


async def test_each_caller_sees_what_its_issuer_and_its_teams_allow(site: Site) -> None:
    assert await _found(site, site.static) == (200, {"in-open", "in-local"})
    assert await _found(site, site.issued()) == (200, {"in-open", "in-corp", "in-mine"})
    assert await _found(site, site.issued(sub="bob", groups=[])) == (200, {"in-open"})


async def test_tokens_that_are_not_valid_are_refused(site: Site) -> None:
    now = int(time.time())
    bad = [
        "x",
        site.issued(aud="https://elsewhere.example"),
        site.issued(exp=now - 60),
        site.issued(iss="https://elsewhere.example"),
        site.issued()[:-4] + "AAAA",
    ]
    assert [(await _found(site, each))[0] for each in bad] == [401] * len(bad)


async def test_the_metadata_is_found_through_the_proxy(site: Site) -> None:
    async with httpx2.AsyncClient(base_url=site.server.url, timeout=60) as http:
        refused = await http.post("/mcp", json={})
        document = await http.get("/.well-known/oauth-protected-resource/mcp")
    assert refused.status_code == 401
    assert "resource_metadata=" in refused.headers["www-authenticate"]
    assert document.json()["authorization_servers"] == [site.issuer.url]


async def test_a_denied_subject_is_refused_without_a_restart(site: Site) -> None:
    token = site.issued(sub="mallory")
    assert (await _found(site, token))[0] == 200
    await asyncio.to_thread(site.write, "deny.yaml", {"subjects": ["corp#mallory"]})
    async with asyncio.timeout(60):
        while (await _found(site, token))[0] != 401:
            continue
    assert (await _found(site, site.issued()))[0] == 200


async def test_every_request_is_in_the_audit_trail_by_its_id(site: Site) -> None:
    headers = {"authorization": f"Bearer {site.issued()}"}
    async with httpx2.AsyncClient(base_url=site.server.url, timeout=60) as http:
        response = await http.get(f"/v1/items/{ItemId('in-mine')}", headers=headers)
    wanted = response.headers["octavo-request-id"]
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60):  # it is written once the answer is out
        while not found:
            records = await asyncio.to_thread(site.records)
            found = [each for each in records if each["request"] == wanted]
    (record,) = found
    assert (record["subject"], record["kind"], record["outcome"]) == ("corp#alice", "read", "ok")
    assert record["answered"][0]["knowledge_base_id"] == "mine"


def test_nothing_but_the_ipv6_loopback_address_is_reached(site: Site) -> None:
    tree = processes.descendants(site.server.pid)
    assert site.server.url.startswith("http://[::1]:")
    assert listening_beyond_loopback(tree) == set()
