"""Every attack gets the answer that it must get, and never an internal error."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import yaml

from engine.config import Config
from engine.local import open_local
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from tests.engine.search.building import Library, small_config
from tests.hostile.attacks import Attack, attacks

pytestmark = pytest.mark.jvm

DEADLINE_S = 30.0
SECRET = "zzsecretzz"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    library = Library(tmp_path_factory.mktemp("hostile") / "store")
    library.add_base("open")
    library.add_base("vault", scope="private", owner="somebody")
    library.add("open", [("seen", "Marmots", "marmots that everybody sees")], revision="r1")
    library.add("open", [(f"more-{at}", "More", f"more text {at}") for at in range(20)])
    library.add("vault", [("hidden", SECRET, f"marmots {SECRET}")], revision="r1")
    library.reindex(2)
    library.add("open", [("draft", SECRET, f"marmots {SECRET}")], revision="r1", publish=False)
    return small_config(library.root, search={"deadline_s": DEADLINE_S})


@asynccontextmanager
async def _connected(config: Config, folder: Path) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    token, entry = make_token("mallory")
    file = folder / "tokens.yaml"
    file.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    knowledge = open_local(config)
    app = build_app(knowledge, config, StaticTokens(file))
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
    ):
        yield client, f"Bearer {token}"
    await knowledge.close()


def _headers(attack: Attack, token: str) -> dict[str, str]:
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    given |= attack.headers or {"authorization": "token"}
    return {name: token if value == "token" else value for name, value in given.items()}


def _codes(text: str) -> set[str]:
    """Return the contract's error codes in an answer of either door."""
    try:
        tree = json.loads(text)
    except ValueError:
        return set()
    found = set()
    for body in (tree, tree.get("result", {}).get("structuredContent", {})):
        error = body.get("error") if isinstance(body, dict) else None
        if isinstance(error, dict) and isinstance(error.get("code"), str):
            found.add(error["code"])
        if isinstance(body, dict) and str(body.get("type", "")).startswith("knowledge_"):
            found.add(body["type"])
    return found


async def _send(client: httpx2.AsyncClient, attack: Attack, token: str) -> httpx2.Response:
    async with asyncio.timeout(DEADLINE_S + 30):
        return await client.request(
            attack.method, attack.path, headers=_headers(attack, token), content=attack.body
        )


def _judge(attack: Attack, response: httpx2.Response) -> list[str]:
    told = f"{attack.name}: {response.status_code} {response.text[:200]}"
    wrong = [told] if response.status_code not in attack.status else []
    if attack.code and attack.code not in _codes(response.text):
        wrong.append(f"not {attack.code}: {told}")
    if SECRET in response.text or "Traceback" in response.text:
        wrong.append(f"leak: {told}")
    return wrong


async def test_every_attack_gets_the_answer_that_it_must_get(
    config: Config, tmp_path: Path
) -> None:
    wrong: list[str] = []
    async with _connected(config, tmp_path) as (client, token):
        for attack in attacks():
            wrong += _judge(attack, await _send(client, attack, token))
        honest = await client.post(
            "/v1/search", json={"query": "marmots"}, headers={"authorization": token}
        )
    assert wrong == []
    assert honest.json()["results"][0]["knowledge_item_id"] == "seen"


async def test_all_attacks_at_once_change_no_answer(config: Config, tmp_path: Path) -> None:
    wrong: list[str] = []
    async with _connected(config, tmp_path) as (client, token):
        for start in range(0, len(attacks()), 32):
            some = attacks()[start : start + 32]
            responses = await asyncio.gather(*(_send(client, one, token) for one in some))
            for attack, response in zip(some, responses, strict=True):
                if response.status_code != 503:  # no place is left for so many at once
                    wrong += _judge(attack, response)
    assert wrong == []


def test_the_attacks_are_many_and_distinct() -> None:
    names = Counter(attack.name for attack in attacks())
    assert [name for name, times in names.items() if times > 1] == []
    assert len(names) >= 60
