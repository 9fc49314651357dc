"""The threshold algorithm against brute force over every passage."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.ids import ItemId, ShardId
from engine.search.fusion import RANK_CONSTANT
from engine.search.pool import Pool, gather
from engine.search.request import Depth
from engine.search.threshold import Goal, Placed, Step, decide
from tests.engine.search.corpora import FIELDS, Imagined, answer, corpora

Expected = list[tuple[str, int, float, int | None, int | None]]

MODES = ("hybrid", "lexical", "semantic", "rrf")


def _ordered(passages: Sequence[Imagined], score: Callable[[Imagined], float]) -> list[Imagined]:
    """Return each item's best passage, best item first."""
    best: dict[ItemId, Imagined] = {}
    for passage in sorted(passages, key=lambda one: (-score(one), one.start)):
        best.setdefault(passage.item, passage)
    return sorted(best.values(), key=lambda one: (-score(one), one.item))


def _ranks(ordered: Sequence[Imagined], window: int) -> dict[ItemId, int]:
    return {one.item: rank for rank, one in enumerate(ordered[:window], start=1)}


def _fused(one: Imagined, goal: Goal) -> float:
    lexical = one.lexical / FIELDS[one.field].upper
    room = 1.0 - goal.floor
    semantic = max(0.0, one.semantic - goal.floor) / room if room > 0.0 else 0.0
    return goal.alpha * lexical + (1.0 - goal.alpha) * semantic


def brute_force(passages: Sequence[Imagined], goal: Goal) -> Expected:
    """Rank every passage, straight from the contract."""
    matching = [one for one in passages if one.lexical > 0]
    lexical = _ordered(matching, lambda one: one.lexical)
    semantic = _ordered(passages, lambda one: one.semantic)
    ranks = _ranks(lexical, goal.window), _ranks(semantic, goal.window)
    scores: dict[ItemId, float]
    if goal.mode == "rrf":
        shown = {one.item: one for one in (*semantic, *lexical)}
        for one in semantic:
            mine = [side.get(one.item, goal.window + 1) for side in ranks]
            if mine[1] < mine[0]:
                shown[one.item] = one
        scores = {}
        for side in ranks:
            for item, rank in side.items():
                scores[item] = scores.get(item, 0.0) + 1.0 / (RANK_CONSTANT + rank)
        order = sorted(scores, key=lambda item: (-scores[item], item))
        rows = [(shown[item], scores[item]) for item in order]
    elif goal.mode == "hybrid":
        fused = [one for one in passages if _fused(one, goal) > 0]
        rows = [(o, _fused(o, goal)) for o in _ordered(fused, lambda one: _fused(one, goal))]
    elif goal.mode == "lexical":
        rows = [(one, one.lexical) for one in lexical]
    else:
        rows = [(one, one.semantic) for one in semantic]
    both = goal.mode in {"hybrid", "rrf"}
    return [
        (
            one.item,
            one.start,
            score,
            ranks[0].get(one.item) if both or goal.mode == "lexical" else None,
            ranks[1].get(one.item) if both or goal.mode == "semantic" else None,
        )
        for one, score in rows[: goal.limit]
    ]


def follow(
    passages: Sequence[Imagined],
    goal: Goal,
    depth: Depth,
    rng: random.Random,
    given_up: Collection[ShardId] = (),
) -> tuple[Pool, Step, int]:
    """Follow steps to the end, as the coordinator does."""
    depths = dict.fromkeys({one.shard for one in passages}, depth)
    exact: dict[int, float] = {}
    for rounds in range(1, 200):
        shards = list(depths)
        rng.shuffle(shards)
        found = [answer(passages, shard, depths[shard], rng) for shard in shards]
        pool = gather(found, FIELDS, exact)
        step = decide(pool, goal, given_up)
        if step.final:
            return pool, step, rounds
        for shard in step.deepen:
            depths[shard] = depths[shard].doubled()
        for row in step.refine.tolist():
            exact[int(pool.places()[row])] = passages[pool.ordinals[row]].lexical
    raise AssertionError("the steps do not end")


def shown(pool: Pool, placed: Sequence[Placed]) -> Expected:
    return [
        (
            pool.item_ids[pool.items[one.row]],
            int(pool.starts[one.row]),
            one.score,
            one.lexical_rank,
            one.semantic_rank,
        )
        for one in placed
    ]


@st.composite
def goals(draw: st.DrawFn) -> Goal:
    window = draw(st.integers(1, 8))
    return Goal(
        mode=draw(st.sampled_from(MODES)),
        limit=draw(st.integers(1, window)),
        window=window,
        alpha=draw(st.sampled_from([0.0, 1e-300, 0.25, 0.5, 1.0])),
        floor=draw(st.sampled_from([-0.5, 0.0, 0.25, 1.0, 1.25])),
    )


@settings(max_examples=200, deadline=None)
@given(corpora(), goals(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_following_the_steps_gives_the_ranking_of_brute_force(
    passages: list[Imagined], goal: Goal, depth: int, rng: random.Random
) -> None:
    pool, step, _ = follow(passages, goal, Depth(depth, depth), rng)
    assert shown(pool, step.placed) == brute_force(passages, goal)
    if goal.mode != "semantic":
        assert not pool.inexact[[one.row for one in step.placed]].any()


@settings(max_examples=60, deadline=None)
@given(corpora(), goals(), st.randoms(use_true_random=False))
def test_a_short_answer_is_the_head_of_a_long_one(
    passages: list[Imagined], goal: Goal, rng: random.Random
) -> None:
    short, step, _ = follow(passages, goal, Depth(1, 1), rng)
    wide = Goal(goal.mode, goal.window, goal.window, goal.alpha, goal.floor)
    long, whole, _ = follow(passages, wide, Depth(3, 3), rng)
    assert shown(short, step.placed) == shown(long, whole.placed)[: goal.limit]


@settings(max_examples=100, deadline=None)
@given(corpora(), goals(), st.integers(1, 3), st.sets(st.integers(0, 3)), st.randoms())
def test_shards_given_up_count_with_what_they_returned_and_the_others_in_full(
    passages: list[Imagined], goal: Goal, depth: int, lost: set[int], rng: random.Random
) -> None:
    given_up = {ShardId(shard) for shard in lost}
    pool, step, _ = follow(passages, goal, Depth(depth, depth), rng, given_up)
    known = [one for one in passages if one.shard not in given_up]
    for shard in sorted(given_up):
        returned = answer(passages, shard, Depth(depth, depth), rng)
        known += [passages[at] for at in sorted(returned.ordinals.tolist())]
    assert shown(pool, step.placed) == brute_force(known, goal)


@settings(max_examples=40, deadline=None)
@given(corpora(), goals(), st.randoms(use_true_random=False))
def test_a_final_ranking_is_the_same_at_every_depth(
    passages: list[Imagined], goal: Goal, rng: random.Random
) -> None:
    rankings = [
        shown(pool, step.placed)
        for pool, step, _ in (follow(passages, goal, Depth(at, at), rng) for at in (1, 3, 50))
    ]
    assert rankings == [rankings[0]] * len(rankings)


def _planted(count: int) -> list[Imagined]:
    """Return a corpus whose best item by both sides together is far down on each of them."""
    places = [1.0 - at / (4 * count) for at in range(count)]
    homes = [ShardId(at % 2) for at in range(count)]
    lexical = [
        Imagined(ItemId(f"lexical-{at:05d}"), 0, homes[at], "text_en", 8.0 * place, 0.0, 0.0)
        for at, place in enumerate(places)
    ]
    semantic = [
        Imagined(ItemId(f"semantic-{at:05d}"), 0, homes[at], "text_en", 0.0, place, 0.0)
        for at, place in enumerate(places)
    ]
    both = Imagined(ItemId("both"), 0, ShardId(0), "text_en", 8.0 * 0.7, 0.7, 0.0)
    return [*lexical, *semantic, both]


def test_an_item_deep_on_both_sides_that_is_first_in_the_fusion_is_found() -> None:
    passages = _planted(2_000)
    goal = Goal("hybrid", 3, 200)
    rng = random.Random(1)
    pool, step, rounds = follow(passages, goal, Depth(100, 100), rng)
    assert shown(pool, step.placed)[0][0] == "both"
    assert rounds > 1
    naive = [answer(passages, ShardId(shard), Depth(100, 100), rng) for shard in (0, 1)]
    windowed = decide(gather(naive, FIELDS, {}), goal, given_up=[ShardId(0), ShardId(1)])
    assert "both" not in {item for item, *_ in shown(gather(naive, FIELDS, {}), windowed.placed)}


@pytest.mark.parametrize("mode", MODES)
def test_many_passages_of_one_item_do_not_hide_the_others(mode: str) -> None:
    flood = [
        Imagined(ItemId("flood"), start, ShardId(0), "text_en", 7.0, 0.9, 0.0)
        for start in range(1_000)
    ]
    rest = [
        Imagined(ItemId(f"quiet-{at}"), 0, ShardId(0), "text_en", 2.0, 0.5, 0.0) for at in range(20)
    ]
    goal = Goal(mode, 10, 200)
    pool, step, _ = follow([*flood, *rest], goal, Depth(100, 100), random.Random(2))
    assert shown(pool, step.placed) == brute_force([*flood, *rest], goal)
    assert len(step.placed) == 10


@pytest.mark.parametrize("mode", MODES)
def test_a_match_fainter_than_the_error_of_its_score_counts(mode: str) -> None:
    # A term that nearly every passage holds, beside rare ones: less than float32's error.
    faint = Imagined(ItemId("faint"), 0, ShardId(0), "text_en", 4e-4, 0.25, 0.0)
    other = Imagined(ItemId("other"), 0, ShardId(0), "text_en", 0.0, 0.5, 0.0)
    goal = Goal(mode, 1, 200)
    pool, step, _ = follow([faint, other], goal, Depth(1, 1), random.Random(4))
    assert shown(pool, step.placed) == brute_force([faint, other], goal)


def test_what_a_shard_left_out_counts_with_the_error_of_its_float() -> None:
    error = FIELDS["text_en"].error
    shallow = Imagined(ItemId("shallow"), 0, ShardId(0), "text_en", 4.0, 0.5, -0.5)
    # Its true score is the higher one; as computed in float32 it is the lower one.
    deep = Imagined(ItemId("deep"), 0, ShardId(0), "text_en", 4.0 + error / 4, 0.5, -1.0)
    goal, passages = Goal("lexical", 1, 1), [shallow, deep]
    first = answer(passages, ShardId(0), Depth(1, 1), random.Random(5))
    place = int(gather([first], FIELDS, {}).places()[0])
    pool = gather([first], FIELDS, {place: shallow.lexical})
    assert decide(pool, goal).deepen == {0}
    final, step, _ = follow(passages, goal, Depth(1, 1), random.Random(5))
    assert shown(final, step.placed) == brute_force(passages, goal)
    assert step.placed[0].row == final.ordinals.tolist().index(1)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_at_all_gives_an_empty_final_ranking(mode: str) -> None:
    step = decide(gather([], FIELDS, {}), Goal(mode, 10, 200))
    assert step.final
    assert step.placed == ()


def test_a_shard_given_up_is_not_asked_again() -> None:
    passages = _planted(50)
    found = [answer(passages, ShardId(s), Depth(1, 1), random.Random(3)) for s in (0, 1)]
    pool = gather(found, FIELDS, {})
    goal = Goal("hybrid", 10, 200)
    assert decide(pool, goal).deepen == {0, 1}
    assert decide(pool, goal, given_up=[ShardId(1)]).deepen == {0}


def test_scores_of_a_shard_that_reports_an_excess_error_are_believed_less() -> None:
    passage = Imagined(ItemId("one"), 0, ShardId(0), "text_en", 4.0, 0.5, 0.0)
    other = replace(passage, item=ItemId("other"), lexical=3.0)
    plain = answer([passage, other], ShardId(0), Depth(1, 1), random.Random(6))
    excess = replace(plain, excess_errors={"text_en": 1 / 8})
    known = FIELDS["text_en"]
    for found, error in ((plain, known.error), (excess, known.error + known.upper / 8)):
        pool = gather([found], FIELDS, {})
        assert pool.low.tolist() == [4.0 - error]
        assert pool.high.tolist() == [4.0 + error]
        assert pool.lexical_bounds() == {0: 4.0 + error}
