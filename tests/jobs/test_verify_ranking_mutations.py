"""A verification that cannot fail proves nothing: each of these faults must be seen.

The real engine is changed in one place, as a plausible mistake would change it, and serves; the
unchanged engine agrees under the same conditions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.authorization import OPERATOR, Principal
from engine.index.lexical import LexicalIndex
from engine.index.statistics import FieldStatistics, bm25_exact, upper_bound
from engine.search.coordinator import Coordinator
from engine.search.fusion import RANK_CONSTANT, best_rows, reciprocal_rank_fusion
from engine.search.request import Depth, FieldTerms, Passage, Positions, StatisticsQuery
from engine.search.run import Run
from engine.search.shard import Shard
from engine.search.threshold import Step, decide
from engine.search.visibility import VisibleSegment
from jobs import ranking
from tests.engine.search.building import Library
from tests.jobs.ranked import READER, make_library, verified

QUERIES = (
    "server flood",
    "deploy server token",
    "Anmeldung Fehler Passwort Server",
    "数据库备份恢复",
    "harbour echo",
    "revised server text",
    "server nowhere found",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return make_library(tmp_path_factory.mktemp("mutated") / "store")


@pytest.fixture(autouse=True)
def _shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search so shallow at first that only the certificate makes an answer right."""
    monkeypatch.setattr(Run, "_first_depth", lambda _: Depth(4, 4))


Mutation = Callable[[pytest.MonkeyPatch], None]


def _fields_of_shard(patch: pytest.MonkeyPatch, change: Callable[..., FieldTerms]) -> None:
    """Let a shard score with other statistics than it was given, at both places where it does."""
    for name in ("search", "refine"):
        original: Callable[..., Any] = getattr(Shard, name)

        def changed(
            self: Shard, query: Any, *rest: Any, _original: Callable[..., Any] = original
        ) -> Any:
            fields = {field: change(self, field, terms) for field, terms in query.fields.items()}
            return _original(self, replace(query, fields=fields), *rest)

        patch.setattr(Shard, name, changed)


def _local(self: Shard, field: str, terms: FieldTerms) -> FieldTerms:
    parts = [part.segment.lexical.local_statistics(field, terms.terms) for part in self.segments]
    counts = [sum(part.frequencies.get(term, 0) for part in parts) for term in terms.terms]
    return replace(
        terms,
        passages=max(1, sum(part.passages for part in parts)),
        tokens=max(1, sum(part.tokens for part in parts)),
        document_frequencies=tuple(counts),
    )


def idf_of_each_shard(patch: pytest.MonkeyPatch) -> None:
    _fields_of_shard(patch, _local)


def an_average_length_that_is_wrong(patch: pytest.MonkeyPatch) -> None:
    _fields_of_shard(patch, lambda _, __, terms: replace(terms, tokens=terms.tokens + 1))


def a_score_that_one_side_did_not_return_is_taken_as_0(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "_first_depth", lambda _: Depth(1, 100))  # so that one side lacks many
    patch.setattr(
        LexicalIndex, "score", lambda _, __, ordinals: np.zeros(len(ordinals), np.float32)
    )


def a_fixed_window_instead_of_the_certificate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "_first_depth", lambda _: Depth(60, 60))

    def undeepened(*asked: Any) -> Step:
        return replace(decide(*asked), deepen=frozenset())

    patch.setattr("engine.search.run.decide", undeepened)


def one_swapped_tie(patch: pytest.MonkeyPatch) -> None:
    def swapped(*asked: Any) -> Step:
        step = decide(*asked)
        placed = list(step.placed)
        for at in range(len(placed) - 1):
            if placed[at].score == placed[at + 1].score:
                first, second = placed[at], placed[at + 1]
                placed[at], placed[at + 1] = second, first
                break
        return replace(step, placed=tuple(placed))

    patch.setattr("engine.search.run.decide", swapped)


def hidden_texts_counted_in_the_statistics(patch: pytest.MonkeyPatch) -> None:
    def everything(*asked: Any) -> StatisticsQuery:
        return replace(StatisticsQuery(*asked), readable=None)

    patch.setattr("engine.search.run.StatisticsQuery", everything)


def dead_passages_counted_in_the_statistics(patch: pytest.MonkeyPatch) -> None:
    def count(
        self: Shard, view: object, terms: Mapping[str, Sequence[str]]
    ) -> dict[str, FieldStatistics]:
        found = {}
        for name, wanted in terms.items():
            parts = [p.segment.lexical.local_statistics(name, wanted) for p in self.segments]
            frequencies = {t: sum(p.frequencies.get(t, 0) for p in parts) for t in wanted}
            passages, tokens = sum(p.passages for p in parts), sum(p.tokens for p in parts)
            found[name] = FieldStatistics(passages, tokens, frequencies)
        return found

    patch.setattr(Shard, "count", count)


def _let_everything_out(patch: pytest.MonkeyPatch) -> None:
    """Switch off the coordinator's own last check, which would refuse the answer."""

    async def readable(*_: object) -> bool:
        return True

    patch.setattr(Coordinator, "_still_readable", readable)


def dead_passages_found(patch: pytest.MonkeyPatch) -> None:
    _let_everything_out(patch)
    patch.setattr(VisibleSegment, "_is_live", lambda *_: True)


def ranks_from_0(patch: pytest.MonkeyPatch) -> None:
    def from_0(sides: Sequence[Mapping[int, int]]) -> dict[int, float]:
        return reciprocal_rank_fusion(sides, rank_constant=RANK_CONSTANT - 1)

    patch.setattr("engine.search.threshold.reciprocal_rank_fusion", from_0)


def a_rank_window_cut_short(patch: pytest.MonkeyPatch) -> None:
    original = Run._goal
    patch.setattr(Run, "_goal", lambda self: replace(original(self), window=20))


def an_item_shown_by_the_last_of_equal_passages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "engine.search.threshold.best_rows",
        lambda scores, items, starts: best_rows(scores, items, -starts),
    )


def an_excerpt_of_another_passage(patch: pytest.MonkeyPatch) -> None:
    _let_everything_out(patch)
    original = Shard.hydrate

    def hydrate(self: Shard, text: str, positions: Positions) -> tuple[Passage, ...]:
        first = replace(positions, ordinals=np.zeros_like(positions.ordinals))
        return original(self, text, first)

    patch.setattr(Shard, "hydrate", hydrate)


def no_floor_under_the_cosine(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("engine.search.run.chance_cosine", lambda *_: 0.0)


def words_found_nowhere_left_out_of_the_bound(patch: pytest.MonkeyPatch) -> None:
    def found_only(counts: Mapping[str, int], statistics: FieldStatistics) -> float:
        held = {term: n for term, n in counts.items() if statistics.frequencies.get(term)}
        return upper_bound(held, statistics)

    patch.setattr("engine.search.run.upper_bound", found_only)


def float32_scores_not_refined(patch: pytest.MonkeyPatch) -> None:
    def rounded(*asked: Any) -> Any:
        return bm25_exact(*asked).astype(np.float32).astype(np.float64)

    patch.setattr("engine.search.shard.bm25_exact", rounded)


@dataclass(frozen=True, slots=True)
class Fault:
    """A mutation, how the queries are asked, and how many results of each."""

    inject: Mutation
    mode: str
    principal: Principal = OPERATOR
    max_results: int = 50


FAULTS = (
    Fault(idf_of_each_shard, "lexical"),
    Fault(an_average_length_that_is_wrong, "lexical"),
    Fault(a_score_that_one_side_did_not_return_is_taken_as_0, "hybrid", max_results=10),
    Fault(a_fixed_window_instead_of_the_certificate, "lexical"),
    Fault(a_fixed_window_instead_of_the_certificate, "hybrid"),
    Fault(one_swapped_tie, "lexical"),
    Fault(one_swapped_tie, "semantic"),
    Fault(one_swapped_tie, "hybrid"),
    Fault(one_swapped_tie, "rrf"),
    Fault(hidden_texts_counted_in_the_statistics, "lexical", READER),
    Fault(dead_passages_counted_in_the_statistics, "lexical"),
    Fault(dead_passages_found, "semantic"),
    Fault(ranks_from_0, "rrf"),
    Fault(a_rank_window_cut_short, "rrf"),
    Fault(a_rank_window_cut_short, "hybrid"),
    Fault(an_item_shown_by_the_last_of_equal_passages, "semantic"),
    Fault(an_excerpt_of_another_passage, "lexical"),
    Fault(no_floor_under_the_cosine, "hybrid"),
    Fault(words_found_nowhere_left_out_of_the_bound, "hybrid"),
    Fault(float32_scores_not_refined, "lexical"),
)


@pytest.mark.parametrize("principal", [OPERATOR, READER], ids=["operator", "reader"])
def test_the_unchanged_engine_agrees_however_shallow_it_starts(
    library: Library, tmp_path: Path, principal: Principal
) -> None:
    report = verified(library, tmp_path, QUERIES, principal=principal)
    assert report.findings == []
    assert report.agreed


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=f"{fault.inject.__name__}-{fault.mode}") for fault in FAULTS]
)
def test_a_fault_is_seen(
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
) -> None:
    fault.inject(monkeypatch)
    report = verified(
        library, tmp_path, QUERIES, [fault.mode], fault.principal, max_results=fault.max_results
    )
    assert not report.agreed
    assert report.count("disagree") == len(report.findings) > 0


def test_the_reference_shares_no_function_with_what_is_changed_here() -> None:
    folder = Path(inspect.getfile(ranking)).parent
    text = "".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py")))
    for name in ("engine.search", "engine.index.statistics", "engine.index.lexical"):
        assert f"from {name}" not in text
        assert f"import {name}" not in text
