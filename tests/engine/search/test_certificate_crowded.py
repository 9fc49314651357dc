"""A flood of one item, dead passages and closed bases fill every window; the answer is right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

import orjson
import pytest

from engine.authorization import OPERATOR, Principal
from engine.contract import SearchRequest
from engine.ids import BaseId, ItemId
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.engine.search.building import small_config
from tests.engine.search.oracle import Oracle, Text, seen
from tests.engine.search.planting import Plant, Planted, PlantedLibrary

QUERY = "harbor lantern"
MODES = ("hybrid", "lexical", "semantic", "rrf")
STRANGER = Principal("stranger", scopes=frozenset({"knowledge:read"}))
QUIET, CLOSED, WINDOW, DEPTH = 250, 12, 200, 100

FLOOD = Plant("flood", tuple(Planted(QUERY, 0.9 - 1e-4 * at) for at in range(1_000)))
BEST = Planted(QUERY, 0.95)
"""What every dead or hidden passage is: better than anything that may be found."""


def _quiet(number: int) -> Plant:
    words = f"{QUERY}{' pad' * (1 + number % 50)}"
    near = 0.8 - 0.002 * (number * 7 % QUIET)
    return Plant(f"quiet-{number:03d}", (Planted(words, near),), revision="r2")


def _superseded(number: int) -> Plant:
    return Plant(f"quiet-{number:03d}", (BEST,) * 4, revision="r1")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> PlantedLibrary:
    """Two generations: the segments of the first hold what is dead in the second."""
    library = PlantedLibrary(tmp_path_factory.mktemp("crowded") / "store", query=QUERY)
    library.add_base("open")
    closed = [f"closed-{number:02d}" for number in range(CLOSED)]
    for base in closed:
        library.add_base(base, scope="private", owner="somebody")
    library.plant([FLOOD, *(_superseded(number) for number in range(0, QUIET, 2))])
    library.plant([Plant(f"gone-{number:02d}", (BEST,) * 3) for number in range(60)])
    library.plant([Plant(f"{base}-{at}", (BEST,) * 3, base) for base in closed for at in range(16)])
    library.reindex(2)
    library.plant([_quiet(number) for number in range(QUIET)])
    library.store.writer.unpublish([ItemId(f"gone-{number:02d}") for number in range(60)])
    library.reindex(2, grow=True)
    return library


@pytest.fixture(scope="module")
def layouts(
    grown: PlantedLibrary, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Knowledge]]:
    """The grown generation, and the same knowledge built anew, without anything dead."""
    anew = grown.transplanted(tmp_path_factory.mktemp("anew") / "store")
    anew.reindex(3)
    opened = {
        "grown": open_local(small_config(grown.root)),
        "anew": open_local(small_config(anew.root)),
    }
    yield opened
    for knowledge in opened.values():
        asyncio.run(knowledge.close())


@pytest.fixture(scope="module")
def texts(grown: PlantedLibrary, layouts: Mapping[str, Knowledge]) -> list[Text]:
    """Every live passage of every base."""
    catalog = grown.store.writer.catalog()
    return grown.texts(
        (item, revision)
        for item, revision in grown.plants
        if catalog.current_revision(item, 2) == revision
    )


@pytest.mark.parametrize("mode", MODES)
async def test_a_stranger_gets_the_ranking_of_what_is_alive_and_open(
    grown: PlantedLibrary, layouts: Mapping[str, Knowledge], texts: list[Text], mode: str
) -> None:
    request = SearchRequest(QUERY, mode=mode, max_results=50)
    ranking = await layouts["grown"].rank(request, STRANGER)
    oracle = Oracle.of(grown, texts, readable={"open"})
    assert seen(ranking.results, texts) == oracle.answer(request)
    assert [result.item for result in ranking.results[:1]] == ["flood"]
    assert len(ranking.results) == 50
    assert ranking.effort.rounds > 1


@pytest.mark.parametrize("mode", MODES)
async def test_a_window_of_passages_holds_one_item_or_none(
    grown: PlantedLibrary, texts: list[Text], mode: str
) -> None:
    request = SearchRequest(QUERY, mode=mode, max_results=50)
    allowed = Oracle.of(grown, texts, readable={"open"})
    filtered_before = allowed.rank(allowed.columns(request).windowed(DEPTH), request)
    assert {result.item for result in filtered_before} == {"flood"}
    everybody = Oracle.of(grown, texts)
    unfiltered = everybody.rank(everybody.columns(request).windowed(DEPTH), request)
    assert all(result.item.startswith("closed") for result in unfiltered)


@pytest.mark.parametrize("mode", MODES)
async def test_the_dead_leave_no_trace_in_the_bytes(
    layouts: Mapping[str, Knowledge], mode: str
) -> None:
    arguments = {"query": QUERY, "mode": mode, "max_results": 50}
    for principal in (STRANGER, OPERATOR):
        grown, anew = [
            orjson.dumps(await layouts[name].answer(arguments, principal))
            for name in ("grown", "anew")
        ]
        assert grown == anew


async def test_the_window_of_rrf_holds_its_number_of_items(
    grown: PlantedLibrary, layouts: Mapping[str, Knowledge], texts: list[Text]
) -> None:
    request = SearchRequest(QUERY, mode="rrf", max_results=2 * WINDOW)
    ranking = await layouts["grown"].rank(request, STRANGER)
    assert seen(ranking.results, texts) == (
        Oracle.of(grown, texts, readable={"open"}).answer(request)
    )
    for side in ("lexical_rank", "semantic_rank"):
        ranks = [getattr(result.scores, side) for result in ranking.results]
        assert sorted(rank for rank in ranks if rank is not None) == list(range(1, WINDOW + 1))


@pytest.mark.parametrize("mode", MODES)
async def test_one_base_of_many_keeps_the_scores_of_all_of_them(
    grown: PlantedLibrary, layouts: Mapping[str, Knowledge], texts: list[Text], mode: str
) -> None:
    oracle = Oracle.of(grown, texts)
    for base in ("open", "closed-07"):
        request = SearchRequest(QUERY, base=BaseId(base), mode=mode, max_results=50)
        ranking = await layouts["grown"].rank(request, OPERATOR)
        assert seen(ranking.results, texts) == oracle.answer(request)
