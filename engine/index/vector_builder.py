"""Builds the FAISS file of a segment, and measures what an approximate one finds."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from engine.index.vector_codes import (
    TRAINING_ROWS,
    code_error,
    half_codes,
    product_codes,
    scan_product,
    scan_rows,
    write_codes,
)

logger = logging.getLogger(__name__)

Float32 = NDArray[np.float32]

RECALL_DEPTHS = (100, 800)
"""Depths at which recall is measured: a first search, and the rank window in passages."""

RECALL_TARGET = 0.998
"""What an approximate index finds at both depths for its own rows, or it is not used. Queries
missed about twice as much as stored rows did, so that 0.99 of theirs is found."""

_OVER_FETCH = (4, 6, 8, 12, 16, 24, 32)
_MARGIN = 100
_SAMPLE = 100
_SEED = 1


@dataclass(frozen=True, slots=True)
class VectorSettings:
    """How the vectors of a segment are searched.

    Attributes:
        search: `auto` scans exactly up to `exact_limit` vectors and uses compressed codes above.
        exact_limit: vectors.
    """

    search: Literal["auto", "exact", "approximate"] = "auto"
    exact_limit: int = 200_000

    def approximate(self, vectors: int) -> bool:
        """Say whether so many vectors get an approximate index, if one is good enough."""
        if self.search == "auto":
            return vectors > self.exact_limit
        return self.search == "approximate"


@dataclass(frozen=True, slots=True)
class VectorFacts:
    """What a segment says of its FAISS file.

    Attributes:
        approximate: whether it holds compressed codes, else half-precision ones.
        code_error: the largest Euclidean distance between a row and its half-precision code.
        over_fetch: candidates of compressed codes for every place, see `candidates`; else 0.
        recall: of an approximate index, by depth of `RECALL_DEPTHS`: the share of the truly
            nearest rows that were found for rows of the segment itself, a seeded sample. Texts
            that ask are less like the stored ones than these are; benchmarks/vectors.py measures
            those. Empty for an exact one, which finds all.
    """

    approximate: bool
    code_error: float
    over_fetch: int = 0
    recall: tuple[float, ...] = ()

    def candidates(self, places: int) -> int:
        """Return how many candidates of compressed codes are scored again for some places."""
        return self.over_fetch * (places + _MARGIN)


def build_index(path: Path, vectors: Float32, settings: VectorSettings) -> VectorFacts:
    """Write the FAISS index of vectors: the same input gives the same bytes.

    One thread builds, and what is learnt is learnt from a seeded sample. Bytes of compressed codes
    may differ between processors: the learning uses matrix products whose last bits do. Where an
    approximate index was wanted and does not find `RECALL_TARGET`, an exact one is written, and a
    warning says why.

    Args:
        path: the file to write.
        vectors: float32 of shape (n, dimension), unit rows, see `check_vectors`.
        settings: which index to make.

    Raises:
        StorageFullError: no space is left.
        StoreError: the file cannot be written.
    """
    if settings.approximate(len(vectors)):
        made = _compressed(vectors)
        if made is not None:
            index, facts = made
            write_codes(index, path)
            return facts
    index = half_codes(vectors)
    facts = VectorFacts(approximate=False, code_error=code_error(index, vectors))
    write_codes(index, path)
    return facts


def _compressed(vectors: Float32) -> tuple[Any, VectorFacts] | None:
    if len(vectors) < TRAINING_ROWS:
        logger.warning(
            "an exact vector index instead of an approximate one: too few vectors",
            extra={"vectors": len(vectors), "least": TRAINING_ROWS},
        )
        return None
    index = product_codes(vectors, _SEED)
    found = measure_recall(index, vectors)
    for over_fetch, recall in found.items():
        if min(recall) >= RECALL_TARGET:
            return index, VectorFacts(True, 0.0, over_fetch, recall)
    logger.warning(
        "an exact vector index instead of an approximate one: it finds too little",
        extra={"recall": list(recall), "target": RECALL_TARGET, "over_fetch": over_fetch},
    )
    return None


def measure_recall(index: Any, vectors: Float32) -> dict[int, tuple[float, ...]]:
    """Measure what compressed codes find, with rows of the segment as queries.

    Args:
        index: product codes of the vectors.
        vectors: float32 of shape (n, dimension).

    Returns:
        By over-fetch, ascending: recall at each of `RECALL_DEPTHS`, rounded to 4 digits down. Rows
        as near as the last true one count as found: which of equal rows are best is arbitrary.
    """
    count = len(vectors)
    queries = np.random.default_rng(_SEED).choice(count, min(_SAMPLE, count), replace=False)
    depths = [min(depth, count) for depth in RECALL_DEPTHS]
    most = VectorFacts(True, 0.0, _OVER_FETCH[-1]).candidates(max(depths))
    found = np.zeros((len(_OVER_FETCH), len(depths)))
    for row in np.sort(queries):
        query = np.ascontiguousarray(vectors[row])
        truth, _ = scan_rows(vectors, query, max(depths), None)
        _, proposed = scan_product(index, query, min(most, count), None)
        scores = vectors[proposed] @ query
        for place, over_fetch in enumerate(_OVER_FETCH):
            facts = VectorFacts(True, 0.0, over_fetch)
            for column, depth in enumerate(depths):
                seen = scores[: facts.candidates(depth)]
                good = int(np.count_nonzero(seen >= truth[depth - 1] - 1e-6))
                found[place, column] += min(good, depth) / depth
    shares = np.floor(found / len(queries) * 1e4) / 1e4
    return {over: tuple(row) for over, row in zip(_OVER_FETCH, shares.tolist(), strict=True)}
