"""BM25 in numbers: statistics, the per-segment similarity that makes it global, exact scores.

Lucene's BM25 (Robertson and Zaragoza 2009, without the constant factor k1 + 1; lengths in one
byte). Everything here is float64 and pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

LEXICAL_RELATIVE_ERROR = 2.0**-19
"""Bound of |Lucene's float32 score - `bm25_exact`|, relative to the query's `upper_bound`, for a
segment without an `excess_error`.

Per term, of its weight: three roundings of idf, boost and their product; at most a quarter of the
about ten roundings in tf / (tf + norm), whose sensitivity x / (1 + x)^2 never exceeds 1/4; three of
`w - w / (1 + x)`. That is under 10 units of 2^-24, one more for the sum. The constant allows 32:
half of them for what b' loses, see `excess_error`.
"""


def idf(passages: int, holding: int) -> float:
    """Return Lucene's inverse document frequency, ln(1 + (N - n + 0.5) / (n + 0.5)); above 0.

    Args:
        passages: N, how many passages there are, at least `holding`.
        holding: n, how many hold the term, at least 0.
    """
    return math.log(1.0 + (passages - holding + 0.5) / (holding + 0.5))


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """Counts of one language field over some passages.

    Attributes:
        passages: N, passages with at least one token in the field.
        tokens: T, their tokens.
        frequencies: n(t), passages that hold each term; a missing term is held by none.
    """

    passages: int
    tokens: int
    frequencies: Mapping[str, int] = field(default_factory=dict)

    @property
    def average_length(self) -> float:
        """Return tokens per passage, 1.0 when there is none."""
        return self.tokens / self.passages if self.passages and self.tokens else 1.0

    def idf(self, term: str) -> float:
        """Return the inverse document frequency of a term."""
        return idf(self.passages, self.frequencies.get(term, 0))


def merge_statistics(parts: Iterable[FieldStatistics]) -> FieldStatistics:
    """Add up the statistics of disjoint sets of passages. The order does not matter."""
    passages = tokens = 0
    frequencies: dict[str, int] = {}
    for part in parts:
        passages += part.passages
        tokens += part.tokens
        for term, count in part.frequencies.items():
            frequencies[term] = frequencies.get(term, 0) + count
    return FieldStatistics(passages, tokens, frequencies)


def local_similarity(
    k1: float, b: float, local: FieldStatistics, whole: FieldStatistics
) -> tuple[float, float]:
    """Return k1' and b' with which one Lucene segment scores lengths as the whole would.

    With A = k1 (1 - b) and B = k1 b (T_i / N_i) / (T / N): k1' = A + B, b' = B / (A + B).

    Args:
        k1: saturation, at least 0.
        b: length normalisation, 0..1.
        local: the segment as Lucene sees it, dead and hidden passages included.
        whole: the readable live passages of the generation.

    Returns:
        (k1', b'); (0, 0) when k1 is 0.
    """
    unnormalised = k1 * (1.0 - b)
    normalised = k1 * b * local.average_length / whole.average_length
    total = unnormalised + normalised
    return (total, normalised / total) if total > 0.0 else (0.0, 0.0)


def excess_error(b: float, local: FieldStatistics) -> float:
    """Bound what Lucene's scores in a segment lose because it keeps b' in float32.

    The norm of a passage is k1' (1 - b' + b' dl / avgdl). An error e of b' moves it by the share
    e |dl / avgdl - 1| / (1 - b' + b' dl / avgdl), greatest for the shortest passage, of one token:
    e / (1 - b' + b' / avgdl). That is much where b' is next to 1, in a segment whose passages are
    far longer than the readable ones. A term's score moves by a quarter of the share at most (see
    `LEXICAL_RELATIVE_ERROR`); half of it is taken, for shares that are not small. Longer passages
    than the average move by less than one rounding.

    Args:
        b: b' of `local_similarity`.
        local: the segment as Lucene sees it.

    Returns:
        What to add to `LEXICAL_RELATIVE_ERROR`, relative to the same; 0 where that allows for it.
    """
    lost = abs(float(np.float32(b)) - b) + 2.0**-52
    error = 0.5 * lost / (1.0 - b + b / max(1.0, local.average_length))
    return error if error > LEXICAL_RELATIVE_ERROR / 2.0 else 0.0


def term_boost(local: FieldStatistics, whole: FieldStatistics, term: str) -> float:
    """Return idf(N, n) / idf(N_i, n_i): what turns Lucene's idf of a segment into the whole's."""
    return whole.idf(term) / local.idf(term)


def term_weights(
    query_frequencies: Mapping[str, int], statistics: FieldStatistics, terms: Sequence[str]
) -> Float64:
    """Return qtf(t) * idf(t) for each term: float64 of shape (len(terms),), in their order."""
    return np.array([query_frequencies[t] * statistics.idf(t) for t in terms], dtype=np.float64)


def upper_bound(query_frequencies: Mapping[str, int], statistics: FieldStatistics) -> float:
    """Return the least upper bound of BM25, the sum of qtf(t) * idf(t) over all query terms.

    Terms found nowhere count. Summed exactly (`math.fsum`), so the order of terms cannot matter.
    """
    return math.fsum(count * statistics.idf(term) for term, count in query_frequencies.items())


def bm25_exact(
    frequencies: NDArray[np.integer],
    norms: NDArray[np.uint8],
    weights: Float64,
    average_length: float,
    similarity: tuple[float, float],
) -> Float64:
    """Score passages by BM25 in float64, each by the same operations in the same order.

    Args:
        frequencies: tf, integers of shape (n, terms).
        norms: Lucene's length bytes, uint8 of shape (n,).
        weights: qtf * idf, float64 of shape (terms,), see `term_weights`.
        average_length: T / N over the readable live passages of the generation.
        similarity: (k1, b).

    Returns:
        float64 of shape (n,); 0 for a passage without any of the terms. A row's score depends on
        its own values only.
    """
    k1, b = similarity
    lengths = NORM_LENGTHS[norms].astype(np.float64)
    saturation = k1 * (1.0 - b + b * lengths / average_length)
    scores = np.zeros(len(norms), dtype=np.float64)
    for column, weight in enumerate(weights):
        tf = frequencies[:, column].astype(np.float64)
        found = tf > 0.0
        scores[found] += weight * (tf[found] / (tf[found] + saturation[found]))
    return scores


def _long_to_int4(value: int) -> int:
    bits = value.bit_length()
    if bits < 4:
        return value
    shift = bits - 4
    return ((value >> shift) & 0x07) | ((shift + 1) << 3)


def _int4_to_long(value: int) -> int:
    bits, shift = value & 0x07, (value >> 3) - 1
    return bits if shift == -1 else (bits | 0x08) << shift


_FREE_VALUES = 255 - _long_to_int4(2**31 - 1)


def decode_norm(norm: int) -> int:
    """Return the length that a norm byte stands for (Lucene `SmallFloat.byte4ToInt`).

    Args:
        norm: 0..255, the byte as unsigned.
    """
    if norm < _FREE_VALUES:
        return norm
    return _FREE_VALUES + _int4_to_long(norm - _FREE_VALUES)


NORM_LENGTHS: NDArray[np.int64] = np.array([decode_norm(n) for n in range(256)], dtype=np.int64)
"""`decode_norm` of every byte: int64 of shape (256,)."""
NORM_LENGTHS.flags.writeable = False
