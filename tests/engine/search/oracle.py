"""Brute force over the stored texts, straight from the contract: what a search must answer.

It shares the analyzers, the chunking and the encoder with the product, and nothing that counts,
scores, merges or ranks. Every formula is written in the order of operations that the product's
docstrings name, so that scores can be compared to the last bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.config import IndexConfig
from engine.contract import SearchRequest, SearchResult
from engine.ids import ItemId, RevisionId
from engine.index.analysis import analyze, passage_terms
from engine.index.languages import field_name
from engine.text.chunking import cut
from engine.text.reference import reference_sentences
from tests.engine.search.building import PASSAGE_TOKENS, Library

K1, B = IndexConfig().k1, IndexConfig().b
RANK_CONSTANT = 60

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Text:
    """A live passage as the contract sees it."""

    base: str
    item: str
    start: int
    field: str
    terms: Mapping[str, int]
    length: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class Expected:
    """A result: everything about it that the ranking decides."""

    item: str
    start: int
    score: float
    lexical: float | None
    semantic: float | None
    lexical_rank: int | None
    semantic_rank: int | None


def stored_length(length: int) -> int:
    """Return a length as one byte keeps it: exact below 40, then four significant bits."""
    if length < 40:
        return length
    rest = length - 24
    shift = max(0, rest.bit_length() - 4)
    return 24 + (rest >> shift << shift)


def text_of(
    owner: tuple[str, str], start: int, language: str, words: str, vector: NDArray[np.float32]
) -> Text:
    """Return a passage of an (base, item), given what is indexed of it: title, newline, text."""
    field = field_name(language)
    terms = Counter(passage_terms(field, words))
    length = stored_length(sum(terms.values()))
    return Text(*owner, start, field, terms, length, vector.astype(np.float64))


def texts_of(library: Library, revisions: Iterable[tuple[ItemId, RevisionId]]) -> list[Text]:
    """Cut, analyse and encode stored revisions again, as the library's builder does."""
    store, encoder = library.store, library.encoder
    found: list[Text] = []
    for key in revisions:
        revision = store.revisions.read(*key)
        assert revision is not None
        owner = (revision.base_id, revision.item_id)
        content, title = revision.content, revision.title
        spans = cut(content, title, encoder.count_tokens, PASSAGE_TOKENS)
        parts = [(title, content[span.start : span.end]) for span in spans]
        vectors = encoder.encode_passages(parts)
        for span, (_, part), vector in zip(spans, parts, vectors, strict=True):
            words = f"{title}\n{part}"
            found.append(text_of(owner, span.start, revision.language, words, vector))
    return found


def published_texts(library: Library) -> list[Text]:
    """Return every passage of the desired revision of every published item, of every base."""
    states = library.store.writer.catalog().items()
    return texts_of(
        library,
        [
            (state.item_id, state.desired_revision)
            for state in states
            if state.status == "published" and state.desired_revision is not None
        ],
    )


def sample_of(library: Library) -> Vector:
    """Return the reference sample: float64 of shape (m, dimension)."""
    sample = library.encoder.encode_passages([("", text) for text in reference_sentences()])
    return sample.astype(np.float64)


# ----------------------------------------------------------------------------------- scores


def bm25(texts: Sequence[Text], query: str) -> tuple[list[float], list[float]]:
    """Return BM25 of every passage, and the least upper bound in its field."""
    scores, uppers = [0.0] * len(texts), [0.0] * len(texts)
    for field in sorted({text.field for text in texts}):
        mine = [at for at, text in enumerate(texts) if text.field == field]
        counted = [at for at in mine if texts[at].terms]
        if not counted:
            continue
        average = sum(sum(texts[at].terms.values()) for at in counted) / len(counted)
        weights: dict[str, float] = {}
        for term, qtf in analyze(field, query).items():
            n = sum(term in texts[at].terms for at in counted)
            weights[term] = qtf * math.log(1.0 + (len(counted) - n + 0.5) / (n + 0.5))
        for at in mine:
            uppers[at] = math.fsum(weights.values())
            saturation = K1 * (1.0 - B + B * float(texts[at].length) / average)
            for term, weight in weights.items():
                tf = float(texts[at].terms.get(term, 0))
                scores[at] += weight * (tf / (tf + saturation)) if tf else 0.0
    return scores, uppers


def cosine(one: Vector, other: Vector) -> float:
    """Return the dot product of unit vectors, summed in numpy's fixed pairwise order."""
    return float(np.add.reduce(one * other))


@dataclass(frozen=True, slots=True)
class Columns:
    """One query over some passages: every score that the contract names, by passage.

    Attributes:
        texts: the passages.
        lexical: BM25.
        semantic: the cosine.
        hybrid: the fused score.
    """

    texts: Sequence[Text]
    lexical: Sequence[float]
    semantic: Sequence[float]
    hybrid: Sequence[float]

    def side(self, name: str) -> list[int]:
        """Return each item's best passage on a side (equal: smallest offset), best item first."""
        scores = {"lexical": self.lexical, "semantic": self.semantic, "hybrid": self.hybrid}[name]
        least = -math.inf if name == "semantic" else 0.0
        found: dict[str, int] = {}
        for at in sorted(range(len(scores)), key=lambda at: (-scores[at], self.texts[at].start)):
            if scores[at] > least:
                found.setdefault(self.texts[at].item, at)
        return sorted(found.values(), key=lambda at: (-scores[at], self.texts[at].item))

    def only(self, kept: Iterable[int]) -> Columns:
        """Return the same of some passages."""
        rows = sorted(kept)
        return Columns(
            [self.texts[at] for at in rows],
            [self.lexical[at] for at in rows],
            [self.semantic[at] for at in rows],
            [self.hybrid[at] for at in rows],
        )

    def windowed(self, window: int) -> Columns:
        """Return what engines with a fixed window see: the best passages of each side, joined.

        Generously: a passage in one window has both its scores, and hidden passages took no place.
        """
        kept: set[int] = set()
        for scores in (self.lexical, self.semantic):
            kept |= set(sorted(range(len(scores)), key=lambda at: -scores[at])[:window])
        return self.only(kept)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Every passage that one caller may read, and the reference sample.

    Attributes:
        texts: the passages; statistics count all of them.
        sample: float64 of shape (m, dimension).
        encode: a query to its vector.
        window: the rank window.
    """

    texts: Sequence[Text]
    sample: Vector
    encode: Callable[[str], NDArray[np.float32]]
    window: int = 200

    @staticmethod
    def of(
        library: Library,
        texts: Sequence[Text],
        *,
        readable: Collection[str] | None = None,
        window: int = 200,
    ) -> Oracle:
        """Return what a caller who may read some bases, or all, must be answered."""
        seen = [text for text in texts if readable is None or text.base in readable]
        encoder = library.encoder
        return Oracle(
            seen, sample_of(library), lambda query: encoder.encode_queries([query])[0], window
        )

    def columns(self, request: SearchRequest) -> Columns:
        """Score every passage of the request's base, by statistics over all bases."""
        vector = self.encode(request.query).astype(np.float64)
        lexical, uppers = bm25(self.texts, request.query)
        semantic = [cosine(text.vector, vector) for text in self.texts]
        floor = math.fsum(cosine(row, vector) for row in self.sample) / len(self.sample)
        hybrid = [
            request.alpha * (score / upper if upper > 0.0 else 0.0)
            + (1.0 - request.alpha) * _beyond(near, floor)
            for score, upper, near in zip(lexical, uppers, semantic, strict=True)
        ]
        bases = [text.base for text in self.texts]
        kept = [at for at, base in enumerate(bases) if request.base in (None, base)]
        return Columns(self.texts, lexical, semantic, hybrid).only(kept)

    def answer(self, request: SearchRequest) -> list[Expected]:
        """Return the ranking of a request, to the last bit."""
        return self.rank(self.columns(request), request)

    def rank(self, columns: Columns, request: SearchRequest) -> list[Expected]:
        """Rank passages as the request wants, and cut."""
        mode, texts = request.mode, columns.texts
        sides = {name: columns.side(name) for name in ("lexical", "semantic")}
        ranks = {
            name: {texts[at].item: rank for rank, at in enumerate(side[: self.window], start=1)}
            for name, side in sides.items()
        }
        if mode == "rrf":
            shown = self._fused_ranks(texts, sides)
        else:
            scores: Sequence[float] = getattr(columns, mode)
            shown = [(at, scores[at]) for at in columns.side(mode)]
        lexical, semantic = mode != "semantic", mode != "lexical"
        return [
            Expected(
                item=texts[at].item,
                start=texts[at].start,
                score=score,
                lexical=columns.lexical[at] if lexical else None,
                semantic=columns.semantic[at] if semantic else None,
                lexical_rank=ranks["lexical"].get(texts[at].item) if lexical else None,
                semantic_rank=ranks["semantic"].get(texts[at].item) if semantic else None,
            )
            for at, score in shown[: request.max_results]
        ]

    def _fused_ranks(
        self, texts: Sequence[Text], sides: Mapping[str, Sequence[int]]
    ) -> list[tuple[int, float]]:
        fused: dict[str, float] = {}
        shown: dict[str, tuple[int, int]] = {}
        for side in (sides["lexical"], sides["semantic"]):
            for rank, at in enumerate(side[: self.window], start=1):
                item = texts[at].item
                fused[item] = fused.get(item, 0.0) + 1.0 / (RANK_CONSTANT + rank)
                if item not in shown or rank < shown[item][0]:  # equal: the lexical side shows it
                    shown[item] = (rank, at)
        order = sorted(fused, key=lambda item: (-fused[item], item))
        return [(shown[item][1], fused[item]) for item in order]


def _beyond(near: float, floor: float) -> float:
    return max(near - floor, 0.0) / (1.0 - floor) if floor < 1.0 else 0.0


def seen(results: Iterable[SearchResult], texts: Iterable[Text]) -> list[Expected]:
    """Return results of the product, unrounded, as the oracle writes them.

    Args:
        results: as `Knowledge.rank` returns them.
        texts: every live passage; the one that an excerpt lies in is the last to start before it.
    """
    starts: dict[str, list[int]] = {}
    for text in texts:
        starts.setdefault(text.item, []).append(text.start)
    return [
        Expected(
            item=result.item,
            start=max(at for at in starts[result.item] if at <= result.excerpt_offset),
            score=result.scores.score,
            lexical=result.scores.lexical,
            semantic=result.scores.semantic,
            lexical_rank=result.scores.lexical_rank,
            semantic_rank=result.scores.semantic_rank,
        )
        for result in results
    ]
