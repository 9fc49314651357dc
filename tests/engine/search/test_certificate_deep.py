"""An item at rank 5,001 on both sides that is first in the fusion: found, where windows miss it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import orjson
import pytest

from engine.authorization import OPERATOR
from engine.contract import SearchRequest
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.engine.search.building import small_config
from tests.engine.search.oracle import Columns, Oracle, Text, seen
from tests.engine.search.planting import Plant, Planted, PlantedLibrary

QUERY = "harbor lantern"
DECOYS = 5_000
TREASURE = Plant("treasure", (Planted(f"{QUERY}{' pad' * 21}", 0.44),))


def _decoy(number: int) -> Plant:
    """Return an item ahead of the treasure on both sides, on each by another passage."""
    words = f"{QUERY}{' pad' * (number % 20)}"
    near = 0.6 - 0.15 * number / DECOYS
    return Plant(f"decoy-{number:04d}", (Planted(words, -0.2), Planted("quiet water", near)))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> PlantedLibrary:
    library = PlantedLibrary(tmp_path_factory.mktemp("deep") / "store", query=QUERY)
    library.add_base("open")
    library.plant([TREASURE, *(_decoy(number) for number in range(DECOYS))])
    return library


@pytest.fixture(scope="module")
def layouts(
    library: PlantedLibrary, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Knowledge]]:
    """The corpus in one segment, and in three shards of two segments."""
    split = library.transplanted(tmp_path_factory.mktemp("split") / "store")
    library.reindex(1)
    split.reindex(3, segments=2)
    opened = {
        "one": open_local(small_config(library.root)),
        "split": open_local(small_config(split.root)),
    }
    yield opened
    for knowledge in opened.values():
        asyncio.run(knowledge.close())


@pytest.fixture(scope="module")
def texts(library: PlantedLibrary, layouts: Mapping[str, Knowledge]) -> list[Text]:
    return library.texts(library.plants)


@pytest.fixture(scope="module")
def columns(library: PlantedLibrary, texts: list[Text]) -> Columns:
    return Oracle.of(library, texts).columns(SearchRequest(QUERY))


def test_the_treasure_is_last_on_both_sides_and_first_in_the_fusion(
    library: PlantedLibrary, texts: list[Text], columns: Columns
) -> None:
    everything = Oracle.of(library, texts, window=DECOYS + 1)
    first = everything.rank(columns, SearchRequest(QUERY))[0]
    assert first.item == TREASURE.item
    assert (first.lexical_rank, first.semantic_rank) == (DECOYS + 1, DECOYS + 1)


@pytest.mark.parametrize("layout", ["one", "split"])
async def test_the_product_finds_it_by_deepening(
    library: PlantedLibrary,
    layouts: Mapping[str, Knowledge],
    texts: list[Text],
    columns: Columns,
    layout: str,
) -> None:
    request = SearchRequest(QUERY, max_results=50)
    ranking = await layouts[layout].rank(request, OPERATOR)
    assert seen(ranking.results, texts) == Oracle.of(library, texts).rank(columns, request)
    assert ranking.results[0].item == TREASURE.item
    assert ranking.effort.rounds > 1
    assert ranking.effort.candidates == len(texts)  # nothing less is a proof here


@pytest.mark.parametrize("window", [100, 1_000, DECOYS])
def test_a_fixed_window_misses_it(
    library: PlantedLibrary, texts: list[Text], columns: Columns, window: int
) -> None:
    oracle, request = Oracle.of(library, texts), SearchRequest(QUERY)
    naive = oracle.rank(columns.windowed(window), request)
    assert TREASURE.item not in {result.item for result in naive}
    whole = oracle.rank(columns.windowed(DECOYS + 1), request)
    assert whole[0].item == TREASURE.item


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic", "rrf"])
async def test_every_layout_gives_the_same_bytes(
    layouts: Mapping[str, Knowledge], mode: str
) -> None:
    arguments = {"query": QUERY, "mode": mode, "max_results": 50}
    one, split = [
        orjson.dumps(await layouts[name].answer(arguments, OPERATOR)) for name in ("one", "split")
    ]
    assert one == split


@pytest.mark.parametrize("mode", ["lexical", "semantic", "rrf"])
async def test_modes_of_one_side_and_of_ranks_are_those_of_brute_force(
    library: PlantedLibrary,
    layouts: Mapping[str, Knowledge],
    texts: list[Text],
    columns: Columns,
    mode: str,
) -> None:
    request = SearchRequest(QUERY, mode=mode, max_results=50)
    ranking = await layouts["split"].rank(request, OPERATOR)
    assert seen(ranking.results, texts) == Oracle.of(library, texts).rank(columns, request)
