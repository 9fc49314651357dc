"""The encoder deployment, as Serve calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from engine.config import Config, EncoderConfig, dump_config
from engine.encoders.encoder import Vectors
from engine.encoders.hashing import HashingEncoder
from engine.errors import EncoderError
from serve import encoder as deployment
from serve.encoder import EncoderDeployment


class Refusing(HashingEncoder):
    """Refuses a query that holds a word."""

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        if any("refused" in query for query in queries):
            raise EncoderError("the vector of query 0 is zero")
        return super().encode_queries(queries)


async def _ask_at_once(
    encoder: EncoderDeployment, queries: Sequence[str]
) -> list[bytes | BaseException]:
    return await asyncio.gather(*map(encoder.encode, queries), return_exceptions=True)


def test_a_query_that_is_refused_fails_alone_among_those_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_refusing(config: EncoderConfig) -> Refusing:
        return Refusing(config.dimension, config.max_tokens)

    monkeypatch.setattr(deployment, "open_encoder", open_refusing)
    monkeypatch.setattr(deployment, "keep_replica_local", lambda: None)  # no Serve here
    config = Config(encoder=EncoderConfig(model="hashing"))
    served = EncoderDeployment(dump_config(config))
    answers = asyncio.run(_ask_at_once(served, ["one", "a refused one", "two"]))
    alone = HashingEncoder(config.encoder.dimension, config.encoder.max_tokens)
    assert isinstance(answers[1], EncoderError)
    for query, answer in (("one", answers[0]), ("two", answers[2])):
        assert isinstance(answer, bytes)
        assert np.array_equal(np.frombuffer(answer, np.float32), alone.encode_queries([query])[0])
