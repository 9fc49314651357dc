"""An encoder without a model, for tests: texts that share words and letters come out similar."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.encoders.encoder import Vectors, fitting_inputs, unit_rows

_VERSION = "hashing-1"

_CJK = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af"
_TOKEN = re.compile(rf"[{_CJK}]|[^\W{_CJK}]{{1,8}}|[^\w\s]")
_FEATURE_WORD = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+|[^\w\s]")
_GRAM_CHARS = 3
_WORD_WEIGHT = 3.0
_FEATURE_CHARS = 64
_REMEMBERED_WORDS = 50_000


_ROOT_UNIT = 256
"""Roots of counts are rounded to this fraction, so that sums are exact in float64."""

_SHARED = 0.1
"""Share of a vector's length that every vector has in common."""


def _pieces(text: str) -> list[str]:
    words: list[str] = _FEATURE_WORD.findall(text.casefold())
    if all(len(word) <= _FEATURE_CHARS for word in words):
        return words
    return [
        word[start : start + _FEATURE_CHARS]
        for word in words
        for start in range(0, len(word), _FEATURE_CHARS)
    ]


class HashingEncoder:
    """Hashes words and their character trigrams into signed buckets.

    A token is a CJK character, up to eight letters or digits of a word, or a single other
    character that is not blank: defined so that cutting and windows can be tested. Vectors do not
    depend on the process, the platform or PYTHONHASHSEED (CRC-32 of UTF-8 bytes). The square root
    of counts dampens repetition; a constant part keeps every vector away from zero, so any two
    texts have a small positive cosine, as those of E5 have a large one.
    """

    def __init__(self, dimension: int = 256, max_tokens: int = 512) -> None:
        """Make an encoder of `dimension` columns and a window of `max_tokens`."""
        self._dimension = dimension
        self._max_tokens = max_tokens
        self._features: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        described = f"{_VERSION} dimension={dimension} max_tokens={max_tokens}"
        self._fingerprint = hashlib.sha256(described.encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of its parameters."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Return the number of columns of a vector."""
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """Return the window in tokens."""
        return self._max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count tokens; there is no prefix, and there are no special tokens."""
        return [len(_TOKEN.findall(text)) for text in texts]

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries of any length: float32 (n, dimension), unit rows, in order."""
        return self._encode(queries, "query")

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        """Encode (title, text) pairs: float32 (n, dimension), unit rows, in order.

        Raises:
            EncoderError: a text alone exceeds the window.
        """
        inputs, _ = fitting_inputs(passages, self.count_tokens, self._max_tokens)
        return self._encode(inputs, "passage")

    def _encode(self, texts: Sequence[str], what: str) -> Vectors:
        """Sum whole numbers only, so that neither order nor neighbours can change a bit."""
        vocabulary: dict[str, int] = {}
        codes: list[int] = []
        sizes = np.zeros(len(texts), np.int64)
        for row, text in enumerate(texts):
            pieces = _pieces(text)
            codes.extend([vocabulary.setdefault(piece, len(vocabulary)) for piece in pieces])
            sizes[row] = len(pieces)
        rows = np.zeros((len(texts), self._dimension), np.float64)
        if vocabulary:
            places = np.repeat(np.arange(len(texts)), sizes) * len(vocabulary) + np.array(codes)
            pairs, counts = np.unique(places, return_counts=True)
            self._add(rows, list(vocabulary), pairs, counts)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows[:, 0] = np.where(lengths > 0.0, _SHARED * lengths, 1.0)
        return unit_rows(rows, what)

    def _add(
        self,
        rows: NDArray[np.float64],
        vocabulary: list[str],
        pairs: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> None:
        """Add the features of each (row, word) pair, dampened by the root of its count."""
        found = [self._word(word) for word in vocabulary]
        buckets = np.concatenate([buckets for buckets, _ in found])
        weights = np.concatenate([weights for _, weights in found])
        sizes = np.fromiter((len(buckets) for buckets, _ in found), np.int64, len(found))
        starts = np.cumsum(sizes) - sizes
        owner, word = np.divmod(pairs, len(vocabulary))
        each = sizes[word]
        ends = np.cumsum(each)
        taken = np.arange(ends[-1]) - np.repeat(ends - each - starts[word], each)
        cells = np.repeat(owner * self._dimension, each) + buckets[taken]
        roots = np.rint(np.sqrt(counts) * _ROOT_UNIT)
        values = weights[taken] * np.repeat(roots, each)
        rows += np.bincount(cells, values, minlength=rows.size).reshape(rows.shape)

    def _word(self, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        known = self._features.get(word)
        if known is None:
            known = self._hashed(word)
            if len(self._features) < _REMEMBERED_WORDS:
                self._features[word] = known
        return known

    def _hashed(self, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        size = 2 if word[0] >= "\u2e80" else _GRAM_CHARS
        padded = word if size == 2 else f"^{word}$"
        grams = [padded[start : start + size] for start in range(len(padded) - size + 1)]
        if size == 2:
            grams.extend(word)
        codes = [zlib.crc32(b"w" + word.encode("utf-8", "surrogatepass"))]
        codes.extend(zlib.crc32(b"g" + gram.encode("utf-8", "surrogatepass")) for gram in grams)
        hashed = np.array(codes, np.int64)
        buckets = 1 + (hashed >> 1) % (self._dimension - 1)
        weights = np.where(hashed & 1, 1.0, -1.0)
        weights[0] *= _WORD_WEIGHT
        return buckets, weights
