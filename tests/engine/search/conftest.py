"""One corpus in several layouts, each open in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from engine.ids import ItemId, ShardId
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import FLOOD, fill


def _skewed(item: ItemId, shards: int) -> ShardId:
    """Put the flood and every fifth item (one language) in the last shard, ties in the first."""
    if "tie" in item:
        return ShardId(0)
    if item == "flood" or (item[-3:].isdigit() and int(item[-3:]) % 5 == 1):
        return ShardId(shards - 1)
    return ShardId(1)


@pytest.fixture(scope="session")
def seed_library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """A store with two bases; some items have a second revision, some are withdrawn again."""
    library = Library(tmp_path_factory.mktemp("seed") / "store")
    library.add_base("open")
    library.add_base("team", scope="team", owner="alice", team="blue")
    fill(library, "open", seed=7, count=80)
    fill(library, "team", seed=11, count=30, prefix="team")
    library.add("open", [("flood", "Flood", FLOOD)])
    library.reindex(shards=2)
    changed = [(f"item-{at:03d}", "server", f"revised server text {at}") for at in range(0, 50, 5)]
    library.add("open", changed)
    library.add("open", [("late", "Late", "a late item about the server")])
    writer = library.store.writer
    writer.unpublish([ItemId("item-051"), ItemId("item-002")])
    writer.archive_item(ItemId("item-tie-03"))
    return library


@pytest.fixture(scope="session")
def layouts(
    seed_library: Library, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Knowledge]]:
    """The same knowledge in every layout."""
    root: Path = tmp_path_factory.mktemp("layouts")
    libraries = {
        name: seed_library.copy(root / name) for name in ("one", "two", "five", "skewed", "many")
    }
    grown = seed_library.copy(root / "grown")
    libraries["one"].reindex(1)
    libraries["two"].reindex(2)
    libraries["five"].reindex(5)
    libraries["skewed"].reindex(3, place=_skewed)
    libraries["many"].reindex(1, segments=6)
    grown.reindex(2, grow=True)
    libraries["grown"] = grown
    opened = {name: open_local(small_config(one.root)) for name, one in libraries.items()}
    yield opened
    for knowledge in opened.values():
        asyncio.run(knowledge.close())
