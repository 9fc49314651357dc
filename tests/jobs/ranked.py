"""A store made to catch wrong rankings, and the command that looks for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from engine.authorization import OPERATOR, READ_SCOPE, Principal
from engine.config import Config
from engine.contract import MODES
from engine.ids import BaseId, ItemId, RevisionId, ShardId
from jobs.verify_queries import QueryLine, read_queries
from jobs.verify_ranking import RankingOrder, RankingReport, verify_ranking
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import QUERIES, fill

QUIET = Console(stderr=True, quiet=True)
SHARDS = 3
FLOOD = " ".join(f"the server flood {at} never ends and says server." for at in range(280))
ECHO = "\n\n".join(["an echo of the harbour server comes back " * 5] * 4)
READER = Principal("dora", frozenset({"blue"}), frozenset({READ_SCOPE}))
STRANGER = Principal("stranger", scopes=frozenset({READ_SCOPE}))

QUESTIONS = (*QUERIES, "server flood", "harbour echo", "revised server", "withheld secret server")


def place(item: ItemId, shards: int) -> ShardId:
    """Put the flood and one language in the last shard, ties in the first, the rest between."""
    if "tie" in item or shards == 1:
        return ShardId(0)
    if item == "flood" or (item[-3:].isdigit() and int(item[-3:]) % 5 == 1):
        return ShardId(shards - 1)
    return ShardId(shards - 2)


def make_library(root: Path) -> Library:
    """Make a store of four bases, five languages, three shards and two segments a shard.

    It holds a flood of passages of one item, equal passages of one item, ties, second revisions,
    withdrawn, unpublished and archived items, an archived base, and texts that only some may read.
    """
    library = Library(root)
    library.add_base("open")
    library.add_base("team", scope="team", owner="alice", team="blue")
    library.add_base("secret", scope="private", owner="carol")
    library.add_base("closed")
    fill(library, "open", seed=7, count=60)
    fill(library, "team", seed=11, count=20, prefix="team")
    fill(library, "secret", seed=13, count=20, prefix="secret")
    fill(library, "closed", seed=17, count=10, prefix="closed")
    library.add("open", [("flood", "Flood", FLOOD), ("echo", "Echo", ECHO)])
    library.add("open", [("gone", "server", "a server that is gone " * 9)], revision="first")
    library.reindex(SHARDS, segments=2, place=place)
    changed = [(f"item-{at:03d}", "server", f"revised server text {at}") for at in range(0, 50, 5)]
    library.add("open", changed)
    library.reindex(SHARDS, segments=2, place=place, grow=True)
    writer = library.store.writer
    writer.unpublish([ItemId("item-051"), ItemId("item-002")])
    writer.archive_item(ItemId("item-tie-03"))
    writer.withdraw(ItemId("gone"), RevisionId("first"))
    writer.archive_base(BaseId("closed"))
    return library


def config_of(library: Library) -> Config:
    """Return the configuration of the store: the smallest depth, so that deepening is needed."""
    return small_config(library.root, search={"deadline_s": 120.0, "depth": 50})


def verified(
    library: Library,
    folder: Path,
    queries: Iterable[str] = QUESTIONS,
    modes: Sequence[str] = MODES,
    principal: Principal = OPERATOR,
    **arguments: Any,
) -> RankingReport:
    """Verify the ranking of a store with some queries."""
    lines = _lines(folder, queries, modes, {"max_results": 50, **arguments})
    return verify_ranking(config_of(library), RankingOrder(lines, principal), QUIET)


def verified_there(
    library: Library,
    folder: Path,
    queries: Iterable[str],
    principal: Principal,
    server: tuple[str, str],
) -> RankingReport:
    """Verify the ranking of a running server, given as its address and a token."""
    lines = _lines(folder, queries, MODES, {"max_results": 50})
    return verify_ranking(config_of(library), RankingOrder(lines, principal, *server), QUIET)


def _lines(
    folder: Path, queries: Iterable[str], modes: Sequence[str], defaults: Mapping[str, Any]
) -> tuple[QueryLine, ...]:
    path = folder / "queries.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in queries), "utf-8")
    return read_queries(path, modes, defaults)
