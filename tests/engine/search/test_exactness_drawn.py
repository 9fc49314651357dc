"""Drawn corpora in drawn layouts, through real Delta, Lucene and FAISS, against brute force."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.authorization import OPERATOR, Principal
from engine.config import Config
from engine.contract import SearchRequest
from engine.ids import BaseId, ItemId
from engine.local import open_local
from engine.store.revisions import NewRevision
from tests.engine.search.building import Library, small_config
from tests.engine.search.oracle import Oracle, Text, published_texts, seen

WORDS = {
    "en": ("harbor", "lantern", "copper", "the"),
    "de": ("Hafen", "Kupfer", "Lampe", "und"),
    "zh": ("港口", "灯笼", "铜"),
    "und": ("harbor", "zzyx", "qwerty", "🙂"),
}
BASES = ("open", "team", "shut")
ALICE = Principal("alice", scopes=frozenset({"knowledge:read"}))
STRANGER = Principal("stranger", scopes=frozenset({"knowledge:read"}))
READERS = ((OPERATOR, set(BASES)), (ALICE, {"open", "team"}), (STRANGER, {"open"}))


@dataclass(frozen=True, slots=True)
class Drawn:
    """An item: its texts in order of revision, and what becomes of it in the end."""

    base: str
    language: str
    contents: tuple[str, ...]
    fate: str


@dataclass(frozen=True, slots=True)
class Layout:
    """How a generation lies, and how little of it a query looks at first."""

    shards: int
    segments: int
    depth: int
    window: int


@st.composite
def _content(draw: st.DrawFn, language: str) -> str:
    """Draw paragraphs from few words and few lengths, so that exact ties are common."""
    words = draw(st.lists(st.sampled_from(WORDS[language]), min_size=1, max_size=3))
    repeats = draw(st.lists(st.sampled_from([1, 1, 2, 12, 13]), min_size=1, max_size=3))
    return "\n\n".join(" ".join(words * count) for count in repeats)


@st.composite
def items(draw: st.DrawFn) -> Drawn:
    language = draw(st.sampled_from(tuple(WORDS)))
    contents = draw(st.lists(_content(language), min_size=1, max_size=2, unique=True))
    fate = draw(st.sampled_from(["published"] * 4 + ["unpublished", "archived"]))
    return Drawn(draw(st.sampled_from(BASES)), language, tuple(contents), fate)


layouts = st.builds(
    Layout, st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 8)
)


@st.composite
def requests(draw: st.DrawFn) -> SearchRequest:
    words = sorted({word for words in WORDS.values() for word in words} | {"absent"})
    return SearchRequest(
        query=" ".join(draw(st.lists(st.sampled_from(words), min_size=1, max_size=4))),
        base=draw(st.sampled_from([None, None, BaseId("open")])),
        alpha=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
    )


def _revision(at: int, item: Drawn, content: str) -> NewRevision:
    return NewRevision(
        base_id=BaseId(item.base),
        title="note",
        content=content,
        language=item.language,
        source_type="file",
        source_ref="drawn",
        item_id=ItemId(f"item-{at:02d}"),
    )


def _fill(library: Library, corpus: Sequence[Drawn], layout: Layout) -> None:
    """Two generations where an item has two revisions; then items are withdrawn."""
    library.add_base("open")
    library.add_base("team", scope="team", owner="alice", team="blue")
    library.add_base("shut", scope="private", owner="nobody")
    for number in range(max(len(item.contents) for item in corpus)):
        report = library.store.writer.add_revisions(
            [
                _revision(at, item, item.contents[number])
                for at, item in enumerate(corpus)
                if number < len(item.contents)
            ],
            publish=True,
        )
        assert not report.refused
        library.reindex(layout.shards, layout.segments, grow=number > 0)
    writer = library.store.writer
    for at, item in enumerate(corpus):
        if item.fate == "archived":
            writer.archive_item(ItemId(f"item-{at:02d}"))
        elif item.fate == "unpublished":
            writer.unpublish([ItemId(f"item-{at:02d}")])


def _config(root: Path, layout: Layout) -> Config:
    """Return a configuration whose first look is shallower than any that may be configured."""
    config = small_config(root)
    tiny = {"depth": layout.depth, "rank_window": layout.window}
    return config.model_copy(update={"search": config.search.model_copy(update=tiny)})


async def _agree(
    library: Library, layout: Layout, texts: Sequence[Text], asked: Sequence[SearchRequest]
) -> None:
    knowledge = open_local(_config(library.root, layout))
    for request in asked:
        for principal, readable in READERS:
            oracle = Oracle.of(library, texts, readable=readable, window=layout.window)
            for mode in ("hybrid", "lexical", "semantic", "rrf"):
                for limit in {1, layout.window}:
                    wanted = SearchRequest(request.query, request.base, mode, request.alpha, limit)
                    ranking = await knowledge.rank(wanted, principal)
                    assert seen(ranking.results, texts) == oracle.answer(wanted), wanted
                    assert ranking.coverage is None
    await knowledge.close()


def _check(corpus: Sequence[Drawn], layout: Layout, asked: Sequence[SearchRequest]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = Library(Path(folder) / "store")
        _fill(library, corpus, layout)
        asyncio.run(_agree(library, layout, published_texts(library), asked))


corpora = st.lists(items(), min_size=1, max_size=12)
questions = st.lists(requests(), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(corpora, layouts, questions)
def test_any_corpus_in_any_layout_is_ranked_as_brute_force_does(
    corpus: list[Drawn], layout: Layout, asked: list[SearchRequest]
) -> None:
    _check(corpus, layout, asked)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(corpora, layouts, questions)
def test_hundreds_of_corpora_are_ranked_as_brute_force_does(
    corpus: list[Drawn], layout: Layout, asked: list[SearchRequest]
) -> None:
    _check(corpus, layout, asked)
