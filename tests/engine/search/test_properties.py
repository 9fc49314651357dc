"""What must hold of any ranking: pages, alpha, ranks, and the degenerate cases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.authorization import OPERATOR
from engine.contract import SearchRequest, SearchResult
from engine.ids import BaseId, ItemId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.search.fusion import hybrid_scores, lexical_parts, semantic_parts
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import QUERIES

MODES = ("hybrid", "lexical", "semantic", "rrf")
ALPHAS = tuple(step / 8 for step in range(9))
EVERYTHING = 10_000
LANGUAGES = 5
"""The corpus gives item number n the language n % 5; ties are English."""


async def _ranked(
    knowledge: Knowledge, query: str, mode: str, alpha: float = 0.5
) -> tuple[SearchResult, ...]:
    request = SearchRequest(query, mode=mode, alpha=alpha, max_results=EVERYTHING)
    return (await knowledge.rank(request, OPERATOR)).results


# ------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize("mode", MODES)
async def test_every_page_size_gives_the_head_of_the_largest(
    layouts: Mapping[str, Knowledge], mode: str
) -> None:
    arguments = {"query": "deploy server token", "mode": mode}
    whole = await layouts["two"].answer({**arguments, "max_results": 50}, OPERATOR)
    assert len(whole["results"]) == 50
    for size in range(1, 50):
        page = await layouts["two"].answer({**arguments, "max_results": size}, OPERATOR)
        assert orjson.dumps(page["results"]) == orjson.dumps(whole["results"][:size])


# ------------------------------------------------------------------------------------- alpha


@dataclass(frozen=True, slots=True)
class Weighed:
    """The hybrid scores of one query at every alpha.

    Attributes:
        scores: item to score by alpha, 0 where it is not returned; the same items at each.
        single: the items that every mode and weight shows by the same passage, if at all.
    """

    scores: Mapping[float, Mapping[ItemId, float]]
    single: frozenset[ItemId]

    @property
    def pairs(self) -> list[tuple[ItemId, ItemId]]:
        """Return the ordered pairs of different items that have one passage to show."""
        return list(permutations(sorted(self.single), 2))


async def _weigh(knowledge: Knowledge, query: str) -> Weighed:
    runs = {alpha: await _ranked(knowledge, query, "hybrid", alpha) for alpha in ALPHAS}
    others = [await _ranked(knowledge, query, mode) for mode in ("lexical", "semantic")]
    starts: dict[ItemId, set[int]] = {}
    for run in (*runs.values(), *others):
        for result in run:
            starts.setdefault(result.item, set()).add(result.excerpt_offset)
    items = {result.item for run in runs.values() for result in run}
    scores: dict[float, dict[ItemId, float]] = {}
    for alpha, run in runs.items():
        scores[alpha] = dict.fromkeys(items, 0.0) | {r.item: r.scores.score for r in run}
    return Weighed(scores, frozenset(item for item in items if len(starts[item]) == 1))


@pytest.fixture(scope="module", params=[QUERIES[1], QUERIES[3]])
def weighed(request: pytest.FixtureRequest, layouts: Mapping[str, Knowledge]) -> Weighed:
    """Two queries, each in a language of its own."""
    return asyncio.run(_weigh(layouts["two"], request.param))


def test_a_score_is_convex_in_alpha_and_of_one_passage_linear_to_the_last_bit(
    weighed: Weighed,
) -> None:
    scores = weighed.scores
    assert len(weighed.single) > 10
    for alpha in ALPHAS:
        for item in scores[alpha]:
            line = alpha * scores[1.0][item] + (1.0 - alpha) * scores[0.0][item]
            assert scores[alpha][item] <= line
            if item in weighed.single:
                assert scores[alpha][item] == line


def test_who_is_better_on_both_sides_is_never_behind(weighed: Weighed) -> None:
    scores = weighed.scores
    better = [
        (one, other)
        for one, other in weighed.pairs
        if all(scores[end][one] >= scores[end][other] for end in (0.0, 1.0))
    ]
    assert len(better) > 50
    for one, other in better:
        assert all(scores[alpha][one] >= scores[alpha][other] for alpha in ALPHAS)


def test_more_weight_for_words_never_turns_a_lead_of_the_better_words_round(
    weighed: Weighed,
) -> None:
    scores, rounding = weighed.scores, 2.0**-50
    turned = 0
    for one, other in weighed.pairs:
        if scores[1.0][one] > scores[1.0][other]:
            leads = [scores[alpha][one] - scores[alpha][other] for alpha in ALPHAS]
            first = next(at for at, lead in enumerate(leads) if lead > rounding)
            assert all(lead > -rounding for lead in leads[first:])
            turned += first > 0
    assert turned > 10  # pairs that more weight for words did turn round, once


def _language(item: str) -> int:
    tail = item.rsplit("-", 1)[-1]
    return int(tail) % LANGUAGES if tail.isdigit() and "tie" not in item else 0


def _orders_like(fused: Sequence[SearchResult], alone: Sequence[SearchResult]) -> bool:
    """Say whether both name the same items in the same order, but where fused scores are equal."""
    place = {result.item: at for at, result in enumerate(alone)}
    return {result.item for result in fused} == set(place) and all(
        place[before.item] < place[after.item] or before.scores.score == after.scores.score
        for before, after in pairwise(fused)
    )


@pytest.mark.parametrize("query", QUERIES)
async def test_alpha_one_orders_like_lexical_within_each_language(
    layouts: Mapping[str, Knowledge], query: str
) -> None:
    fused = await _ranked(layouts["skewed"], query, "hybrid", 1.0)
    alone = await _ranked(layouts["skewed"], query, "lexical")
    for language in range(LANGUAGES):
        assert _orders_like(
            [result for result in fused if _language(result.item) == language],
            [result for result in alone if _language(result.item) == language],
        )


@pytest.mark.parametrize("query", QUERIES)
async def test_alpha_zero_orders_like_semantic_above_chance(
    layouts: Mapping[str, Knowledge], query: str
) -> None:
    fused = await _ranked(layouts["skewed"], query, "hybrid", 0.0)
    alone = await _ranked(layouts["skewed"], query, "semantic")
    assert _orders_like(fused, alone[: len(fused)])
    if len(fused) < len(alone):  # the rest is below what chance gives, so below all that is in
        rest = alone[len(fused)].scores.score
        assert all(rest < (result.scores.semantic or 0.0) for result in fused)


parts = st.floats(0.0, 1.0)


@given(st.tuples(parts, parts), st.tuples(parts, parts), parts)
def test_fused_scores_are_monotone_in_both_parts_at_every_alpha(
    one: tuple[float, float], other: tuple[float, float], alpha: float
) -> None:
    high, low = (
        hybrid_scores(np.array([pick(one[0], other[0])]), np.array([pick(one[1], other[1])]), alpha)
        for pick in (max, min)
    )
    assert high[0] >= low[0]


@given(st.lists(st.floats(0.0, 50.0), min_size=1), st.floats(1.0, 50.0), st.floats(-1.0, 1.5))
def test_scaling_never_turns_an_order_round(
    scores: list[float], bound: float, floor: float
) -> None:
    column = np.sort(np.array(scores))
    assert (np.diff(lexical_parts(column, np.full(len(column), bound))) >= 0.0).all()
    assert (np.diff(semantic_parts(column / 50.0, floor)) >= 0.0).all()


# ------------------------------------------------------------------------------------- ranks


@pytest.mark.parametrize("query", QUERIES)
async def test_with_rank_n_in_every_rank_before_it_is_in(
    layouts: Mapping[str, Knowledge], query: str
) -> None:
    """Neural-search #1703, on the served ranking: no side loses a better rank than it shows."""
    fused = await _ranked(layouts["many"], query, "rrf")
    for side in ("lexical", "semantic"):
        alone = [result.item for result in await _ranked(layouts["many"], query, side)]
        ranks = {
            rank: result.item
            for result in fused
            if (rank := getattr(result.scores, f"{side}_rank")) is not None
        }
        assert ranks == dict(enumerate(alone[:200], start=1))
    for at in range(len(fused) - 1):
        assert fused[at].scores.score >= fused[at + 1].scores.score


# -------------------------------------------------------------------------------- degenerate


@pytest.fixture(scope="module")
def degenerate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Knowledge]:
    """Bases of one item, of equal items, and of none."""
    library = Library(tmp_path_factory.mktemp("degenerate") / "store")
    for base in ("single", "equal", "void"):
        library.add_base(base)
    library.add("single", [("only", "Note", "copper lantern")])
    library.add("equal", [(f"twin-{at}", "Note", "harbor lantern") for at in (2, 0, 1)])
    library.reindex(2)
    knowledge = open_local(small_config(library.root))
    yield knowledge
    asyncio.run(knowledge.close())


async def _in_base(
    knowledge: Knowledge, base: str, query: str, mode: str
) -> tuple[SearchResult, ...]:
    request = SearchRequest(query, base=BaseId(base), mode=mode, max_results=50)
    return (await knowledge.rank(request, OPERATOR)).results


@pytest.mark.parametrize("mode", MODES)
async def test_a_single_hit_has_a_score_of_its_own_not_one_by_decree(
    degenerate: Knowledge, mode: str
) -> None:
    (only,) = await _in_base(degenerate, "single", "copper", mode)
    scores = only.scores
    assert only.item == "only"
    if mode == "rrf":
        assert scores.score == 1 / 61 + 1 / 61
    elif mode == "hybrid":
        assert 0.0 < scores.score < 1.0
    else:
        assert scores.score == getattr(scores, mode)


@pytest.mark.parametrize("mode", MODES)
async def test_equal_items_have_equal_scores_and_the_order_of_their_ids(
    degenerate: Knowledge, mode: str
) -> None:
    found = await _in_base(degenerate, "equal", "harbor", mode)
    assert [result.item for result in found] == ["twin-0", "twin-1", "twin-2"]
    for result, rank in zip(found, (1, 2, 3), strict=True):
        if mode == "rrf":
            assert result.scores.score == 1 / (60 + rank) + 1 / (60 + rank)
        else:
            assert result.scores.score == found[0].scores.score
        assert {result.scores.lexical_rank, result.scores.semantic_rank} <= {rank, None}


async def test_an_empty_lexical_side_leaves_the_semantic_order(degenerate: Knowledge) -> None:
    for query in ("absent", "the of", "!?"):
        assert await _in_base(degenerate, "equal", query, "lexical") == ()
        alone = await _in_base(degenerate, "equal", query, "semantic")
        fused = await _in_base(degenerate, "equal", query, "rrf")
        assert [result.item for result in fused] == [result.item for result in alone]
        for rank, result in enumerate(fused, start=1):
            assert result.scores.score == 1 / (60 + rank)
            assert (result.scores.lexical, result.scores.lexical_rank) == (0.0, None)
        for result in await _in_base(degenerate, "equal", query, "hybrid"):
            assert (result.scores.lexical, result.scores.lexical_rank) == (0.0, None)


@pytest.mark.parametrize("mode", MODES)
async def test_two_empty_sides_give_no_result_and_no_error(
    degenerate: Knowledge, mode: str
) -> None:
    assert await _in_base(degenerate, "void", "harbor lantern", mode) == ()
