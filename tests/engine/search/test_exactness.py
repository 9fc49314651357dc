"""The served ranking against brute force from the stored texts, straight from the contract."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engine.authorization import OPERATOR
from engine.config import IndexConfig
from engine.index.analysis import analyze
from engine.index.languages import field_name
from engine.search.answering import Knowledge
from engine.text.chunking import cut
from engine.text.reference import reference_sentences
from tests.engine.search.building import PASSAGE_TOKENS, Library
from tests.engine.search.texts import QUERIES

K1, B = IndexConfig().k1, IndexConfig().b
WINDOW = 200


@dataclass(frozen=True)
class Text:
    """A passage as the contract sees it."""

    item: str
    start: int
    field: str
    terms: Mapping[str, int]
    length: int
    vector: np.ndarray[Any, Any]


def _stored_length(length: int) -> int:
    """Return a length as one byte keeps it: exact below 40, then four significant bits."""
    if length < 40:
        return length
    rest = length - 24
    shift = max(0, rest.bit_length() - 4)
    return 24 + (rest >> shift << shift)


@pytest.fixture(scope="module")
def texts(seed_library: Library, layouts: Mapping[str, Knowledge]) -> list[Text]:
    """Every live passage, cut and analysed again from the stored revisions."""
    store, encoder = seed_library.store, seed_library.encoder
    catalog = store.writer.catalog()
    found: list[Text] = []
    for state in catalog.items():
        revision_id = state.desired_revision
        if state.status != "published" or revision_id is None:
            continue
        revision = store.revisions.read(state.item_id, revision_id)
        assert revision is not None
        name = field_name(revision.language)
        for span in cut(revision.content, revision.title, encoder.count_tokens, PASSAGE_TOKENS):
            text = revision.content[span.start : span.end]
            terms = analyze(name, f"{revision.title}\n{text}")
            vector = encoder.encode_passages([(revision.title, text)])[0].astype(np.float64)
            length = _stored_length(sum(terms.values()))
            found.append(Text(state.item_id, span.start, name, terms, length, vector))
    return found


def _bm25(texts: list[Text], query: str) -> tuple[list[float], list[float]]:
    """Return BM25 of every passage, and the least upper bound in its field."""
    lengths = Counter[str]()
    passages = Counter(text.field for text in texts if text.terms)
    for text in texts:
        lengths[text.field] += sum(text.terms.values())
    scores, uppers = [0.0] * len(texts), [0.0] * len(texts)
    for name, count in passages.items():
        terms = analyze(name, query)
        mine = [at for at, text in enumerate(texts) if text.field == name]
        idf = {
            term: math.log(1 + (count - n + 0.5) / (n + 0.5))
            for term in terms
            for n in [sum(term in texts[at].terms for at in mine)]
        }
        average = lengths[name] / count
        for at in mine:
            uppers[at] = sum(qtf * idf[term] for term, qtf in terms.items())
            norm = K1 * (1 - B + B * texts[at].length / average)
            for term, qtf in terms.items():
                tf = texts[at].terms.get(term, 0)
                scores[at] += qtf * idf[term] * tf / (tf + norm)
    return scores, uppers


def _best(texts: list[Text], scores: list[float], least: float) -> list[tuple[str, float]]:
    best: dict[str, float] = {}
    for text, score in zip(texts, scores, strict=True):
        if score > least:
            best[text.item] = max(score, best.get(text.item, -math.inf))
    return sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))


def _expected(library: Library, texts: list[Text], query: str, mode: str) -> list[float]:
    bm25, uppers = _bm25(texts, query)
    vector = library.encoder.encode_queries([query])[0].astype(np.float64)
    cosines = [float(text.vector @ vector) for text in texts]
    if mode == "lexical":
        return [score for _, score in _best(texts, bm25, 0.0)]
    if mode == "semantic":
        return [score for _, score in _best(texts, cosines, -math.inf)]
    if mode == "rrf":
        fused: Counter[str] = Counter()
        for side, least in ((bm25, 0.0), (cosines, -math.inf)):
            for rank, (item, _) in enumerate(_best(texts, side, least)[:WINDOW], start=1):
                fused[item] += 1 / (60 + rank)  # type: ignore[assignment]  # counts reciprocals
        return sorted(fused.values(), reverse=True)
    sample = library.encoder.encode_passages([("", text) for text in reference_sentences()])
    floor = float(np.mean(sample.astype(np.float64) @ vector))
    fused_scores = [
        0.5 * (score / upper if upper else 0.0) + 0.5 * max(0.0, cosine - floor) / (1 - floor)
        for score, upper, cosine in zip(bm25, uppers, cosines, strict=True)
    ]
    return [score for _, score in _best(texts, fused_scores, 0.0)]


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic", "rrf"])
async def test_scores_are_those_of_brute_force_over_the_texts(
    seed_library: Library, layouts: Mapping[str, Knowledge], texts: list[Text], mode: str
) -> None:
    for query in QUERIES:
        arguments = {"query": query, "mode": mode, "max_results": 50}
        answer = await layouts["five"].answer(arguments, OPERATOR)
        scores = [result["scores"]["score"] for result in answer["results"]]
        expected = _expected(seed_library, texts, query, mode)[:50]
        assert scores == pytest.approx(expected, abs=2e-6), query
