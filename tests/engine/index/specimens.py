"""Small segments, and BM25 computed from texts alone: what the tests compare with."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.index.languages import FIELD_CODES
from engine.index.lexical import LexicalIndex
from engine.index.lexical_builder import Lengths, LexicalBuilder
from engine.index.segment import ENTRIES, PASSAGES
from engine.index.segment_builder import SegmentHeader, SegmentRecord, build_segment
from engine.index.statistics import decode_norm, idf
from engine.index.vector import VectorSettings

ENCODER = "f" * 64
DIMENSION = 8


@dataclass(frozen=True, slots=True)
class Text:
    """One item of one passage."""

    item: str
    base: str
    language: str
    title: str
    text: str


def unit_rows(count: int, dimension: int = DIMENSION, seed: int = 0) -> NDArray[np.float32]:
    """Return random unit rows: float32 of shape (count, dimension)."""
    rows = np.random.default_rng(seed).normal(size=(count, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def tables(texts: Sequence[Text]) -> tuple[pa.Table, pa.Table]:
    """Return the passages and entries of a segment."""
    entries = [
        {
            "item_id": text.item,
            "revision_id": f"{text.item}-1",
            "base_id": text.base,
            "title": text.title,
            "language": text.language,
            "source_type": "markdown",
            "source_ref": f"{text.item}.md",
            "content_sha256": hashlib.sha256(text.text.encode()).hexdigest(),
        }
        for text in texts
    ]
    passages = [
        {
            "entry": place,
            "char_start": 0,
            "char_end": len(text.text),
            "text": text.text,
            "text_hash": hashlib.sha256(text.text.encode()).digest()[:16],
        }
        for place, text in enumerate(texts)
    ]
    return (
        pa.Table.from_pylist(passages, schema=PASSAGES),
        pa.Table.from_pylist(entries, schema=ENTRIES),
    )


def make_segment(
    directory: Path, texts: Sequence[Text], settings: VectorSettings | None = None
) -> SegmentRecord:
    """Build a segment of one-passage items with random vectors."""
    passages, entries = tables(texts)
    header = SegmentHeader(0, ENCODER, DIMENSION, settings or VectorSettings())
    return build_segment(directory, passages, entries, unit_rows(len(texts)), header)


def index_words(
    path: Path, passages: Sequence[Sequence[str]], field: str = "text_other"
) -> tuple[LexicalIndex, Lengths]:
    """Index passages given as words that the standard analyzer leaves alone."""
    path.mkdir(parents=True)
    builder = LexicalBuilder(path)
    for words in passages:
        builder.add(FIELD_CODES[field], " ".join(words))
    lengths = builder.finish()
    return LexicalIndex.open(path), lengths


def bm25_of_words(
    passages: Sequence[Sequence[str]],
    norms: Sequence[int],
    query: Sequence[str],
    similarity: tuple[float, float],
) -> list[float]:
    """Score passages by the contract's formula, all of them in one collection, by definition."""
    k1, b = similarity
    held = [words for words in passages if words]
    average = sum(map(len, held)) / len(held) if held else 1.0
    scores = []
    for words, norm in zip(passages, norms, strict=True):
        counts, terms = Counter(words), []
        for term, asked in Counter(query).items():
            frequency = counts[term]
            if frequency:
                holding = sum(term in other for other in held)
                length = decode_norm(norm)
                saturation = k1 * (1.0 - b + b * length / average)
                weight = asked * idf(len(held), holding)
                terms.append(weight * frequency / (frequency + saturation))
        scores.append(math.fsum(terms))
    return scores
