"""A change of access acts at once on a running cluster: counted, under load, in every mode.

Eight callers ask without a pause while bases change hands, items are taken back and credentials
are withdrawn. An answer to a request that began a second after the change was acknowledged must
show nothing of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from engine.contract import MODES
from engine.ids import BaseId, ItemId, RevisionId
from engine.store.writer import StoreWriter
from serve.auth.tokens import make_token
from serve.launcher import Spawned, spawn
from serve.runtime import free_port
from tests.engine.search.building import Library, small_config

pytestmark = [pytest.mark.ray, pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]

logger = logging.getLogger(__name__)

GRACE_S = 1.0
CALLERS = 8
WARM_UP = 50
CHANGES = 9
OK, REFUSED = 200, 401


@dataclass(frozen=True)
class Site:
    """A running server of two groups, its store, and two tokens that may read everything open."""

    server: Spawned
    library: Library
    folder: Path
    tokens: dict[str, str]
    entries: dict[str, dict[str, Any]]

    def write_tokens(self, *names: str) -> None:
        listed = {"tokens": [self.entries[name] for name in names]}
        (self.folder / "tokens.yaml").write_text(yaml.safe_dump(listed), "utf-8")

    def deny(self, *subjects: str) -> None:
        (self.folder / "deny.yaml").write_text(yaml.safe_dump({"subjects": list(subjects)}))


ITEMS = {
    "loses-team": ("by-team", "team"),
    "loses-scope": ("by-scope", "public"),
    "loses-owner": ("by-owner", "private"),
    "is-archived": ("by-base", "public"),
    "is-unpublished": ("open", "public"),
    "is-withdrawn": ("open", "public"),
    "is-put-away": ("open", "public"),
    "stays": ("open", "public"),
}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path
    library = Library(folder / "store")
    for item, (base, scope) in ITEMS.items():
        if library.store.catalog.poll().base(BaseId(base)) is None:
            owner = "alice" if scope == "private" else "nobody"
            library.add_base(base, scope, owner, "blue" if scope == "team" else None)
        library.add(base, [(item, "Marmots", f"marmots and what {item}")], revision="r1")
    library.add("open", [(f"other-{at}", "Marmots", f"more marmots {at}") for at in range(40)])
    library.reindex(3)
    made = {name: make_token(name, teams=["blue"]) for name in ("alice", "carol", "dave")}
    tokens = {name: token for name, (token, _) in made.items()}
    entries = {name: entry for name, (_, entry) in made.items()}
    (folder / "deny.yaml").write_text("{}", "utf-8")
    config = small_config(
        library.root,
        serve={"port": free_port(), "groups": 2},
        catalog={"poll_s": 0.1, "max_staleness_s": 1.0},
        auth={"deny_list": str(folder / "deny.yaml")},
    )
    running = Site(None, library, folder, tokens, entries)  # type: ignore[arg-type]
    running.write_tokens("alice", "carol", "dave")
    server = spawn(config, folder / "tokens.yaml", log=folder / "log")
    yield Site(server, library, folder, tokens, entries)
    server.stop()


@dataclass(slots=True)
class Watch:
    """What must no longer be seen, from when on, and what was seen all the same.

    Attributes:
        gone: item or caller to the `time.monotonic` from which on it is a leak.
        answers: answers by what they were judged by.
        leaks: what was seen too late.
        wanted: how many answers after all changes are enough.
        warm, enough: set when the changes may begin, and when all was counted.
    """

    wanted: int
    warm: asyncio.Event = field(default_factory=asyncio.Event)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    gone: dict[str, float] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)

    def take_away(self, name: str) -> None:
        self.gone[name] = time.monotonic() + GRACE_S

    def judge(self, begun: float, seen: set[str], caller: str, status: int) -> None:
        late = {name for name, since in self.gone.items() if begun >= since}
        self.answers["after all changes" if len(late) == CHANGES else "before"] += 1
        self.answers[f"status {status}"] += 1
        found = seen & late
        if status == OK and caller in late:
            found.add(caller)
        self.leaks += [f"{name} as {caller}" for name in found]
        if self.answers["before"] >= WARM_UP:
            self.warm.set()
        if self.leaks or self.answers["after all changes"] >= self.wanted:
            self.enough.set()


async def _ask(site: Site, watch: Watch, http: httpx2.AsyncClient, turn: int) -> None:
    caller = ("alice", "alice", "carol", "dave")[turn % 4]
    headers = {"authorization": f"Bearer {site.tokens[caller]}"}
    begun = time.monotonic()
    if turn % 5 == 4:
        item = list(ITEMS)[turn // 5 % len(ITEMS)]
        response = await http.get(f"/v1/items/{item}/revisions/r1", headers=headers)
        seen = {item} if response.status_code == OK else set()
    else:
        mode = MODES[turn % len(MODES)]
        arguments = {"query": "marmots", "mode": mode, "max_results": 50}
        response = await http.post("/v1/search", json=arguments, headers=headers)
        results = response.json().get("results", [])
        seen = {result["knowledge_item_id"] for result in results}
        if response.status_code == OK and "stays" not in seen:
            watch.leaks.append("an answer without what stays")
    watch.judge(begun, seen, caller, response.status_code)


def _changes(site: Site) -> dict[str, Callable[[], object]]:
    writer: StoreWriter = site.library.store.writer
    return {
        "loses-team": lambda: writer.set_base(BaseId("by-team"), team="red"),
        "loses-scope": lambda: writer.set_base(BaseId("by-scope"), scope="private"),
        "loses-owner": lambda: writer.set_base(BaseId("by-owner"), owner="bob"),
        "is-archived": lambda: writer.archive_base(BaseId("by-base")),
        "is-unpublished": lambda: writer.unpublish([ItemId("is-unpublished")]),
        "is-withdrawn": lambda: writer.withdraw(ItemId("is-withdrawn"), RevisionId("r1")),
        "is-put-away": lambda: writer.archive_item(ItemId("is-put-away")),
        "carol": lambda: site.write_tokens("alice", "dave"),
        "dave": lambda: site.deny("dave"),
    }


async def _count(site: Site, answers: int) -> Watch:
    """Ask until so many answers came after all changes; return what was counted."""
    watch, turns = Watch(answers), itertools.count()

    async def caller() -> None:
        again = httpx2.AsyncHTTPTransport(retries=3)
        async with httpx2.AsyncClient(
            base_url=site.server.url, timeout=120, transport=again
        ) as http:
            while not watch.enough.is_set():
                await _ask(site, watch, http, next(turns))

    async def change() -> None:
        await watch.warm.wait()
        for name, act in _changes(site).items():
            await asyncio.to_thread(act)
            watch.take_away(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        for _ in range(CALLERS):
            group.create_task(caller())
    return watch


@pytest.mark.parametrize("answers", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_a_second_after_a_change_no_answer_shows_what_was_taken_back(
    site: Site, answers: int
) -> None:
    watch = await _count(site, answers)
    logger.info("answers: %s", dict(watch.answers))
    assert watch.leaks == []
    assert watch.answers["after all changes"] >= answers
    assert watch.answers["status 200"] > answers / 4
    assert watch.answers["status 401"] > answers / 8
    told = {name for name in watch.answers if name.startswith("status")}
    assert told <= {"status 200", "status 401", "status 404", "status 503"}
