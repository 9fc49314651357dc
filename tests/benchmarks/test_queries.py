"""Kept vectors of queries: encoded once, the same ever after."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.queries import KeptQueries
from engine.encoders.hashing import HashingEncoder
from jobs.vectorcache import VectorCache

QUERIES = ["how old is the harbour", "", "how old is the harbour", "鲸鱼吃什么"]


def test_a_query_is_encoded_once_and_then_looked_up(tmp_path: Path) -> None:
    plain = HashingEncoder(64, 32)
    expected = plain.encode_queries(QUERIES)
    with closing(VectorCache(tmp_path, plain.fingerprint, plain.dimension)) as cache:
        first, second = KeptQueries(plain, cache), KeptQueries(plain, cache)
        assert first.encode_queries(QUERIES).tobytes() == expected.tobytes()
        assert first.encoded == 3
        assert second.encode_queries(QUERIES[::-1]).tobytes() == expected[::-1].tobytes()
        assert second.encoded == 0
        assert second.encode_queries([]).shape == (0, 64)


def test_all_but_its_queries_is_the_encoder_s(tmp_path: Path) -> None:
    plain = HashingEncoder(64, 32)
    with closing(VectorCache(tmp_path, plain.fingerprint, plain.dimension)) as cache:
        kept = KeptQueries(plain, cache)
        assert (kept.fingerprint, kept.dimension) == (plain.fingerprint, plain.dimension)
        assert kept.max_tokens == plain.max_tokens
        assert kept.count_tokens(["a b c"]) == plain.count_tokens(["a b c"])
        passages = [("title", QUERIES[0])]
        assert np.array_equal(kept.encode_passages(passages), plain.encode_passages(passages))
        assert len(cache) == 0
