"""The hashing encoder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.encoders.hashing import HashingEncoder
from engine.errors import EncoderError

ENCODER = HashingEncoder()


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=60)), max_size=8))
def test_vectors_are_unit_rows_and_do_not_depend_on_neighbours(
    passages: list[tuple[str, str]],
) -> None:
    vectors = ENCODER.encode_passages(passages)
    assert vectors.shape == (len(passages), 256)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)
    for row, passage in enumerate(passages):
        assert ENCODER.encode_passages([passage]).tobytes() == vectors[row].tobytes()


@pytest.mark.parametrize("seed", ["0", "1", "77"])
def test_vectors_are_the_same_in_every_process(seed: str) -> None:
    code = (
        "import hashlib; from engine.encoders.hashing import HashingEncoder as H; "
        "print(hashlib.sha256(H().encode_queries(['Über 漢字 and e\\u0301', 'b']).tobytes())"
        ".hexdigest())"
    )
    made = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    here = ENCODER.encode_queries(["Über 漢字 and e\u0301", "b"]).tobytes()
    assert made.stdout.strip() == hashlib.sha256(here).hexdigest()


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("river ferries", "A ferry crosses the river.", "Bread is baked at dawn."),
        ("Häuser am See", "Das Haus steht am See.", "Der Zug hat Verspätung."),
        ("太阳能电池", "屋顶上的太阳能电池板", "博物馆新开了一个展厅"),
        ("日本語の文章", "これは日本語の文章です", "昨日は雨が降った"),
    ],
)
def test_texts_that_share_words_are_nearer_than_others(query: str, near: str, far: str) -> None:
    vector = ENCODER.encode_queries([query])[0]
    similar, other = ENCODER.encode_passages([("", near), ("", far)]) @ vector
    assert similar > other


def test_tokens_are_cjk_characters_word_pieces_and_marks() -> None:
    texts = ["two words", "漢字 かな", "internationally", "a,b!", " \n", "x" * 100_000]
    assert ENCODER.count_tokens(texts) == [2, 4, 2, 4, 0, 12_500]


def test_the_fingerprint_names_the_parameters() -> None:
    assert HashingEncoder(64).fingerprint == HashingEncoder(64).fingerprint
    made = [HashingEncoder(64), HashingEncoder(65), HashingEncoder(64, 128)]
    assert len({encoder.fingerprint for encoder in made}) == 3


def test_a_text_longer_than_the_window_is_refused_and_a_title_is_shortened() -> None:
    small = HashingEncoder(64, max_tokens=16)
    with pytest.raises(EncoderError, match="passage 1 has 17 tokens"):
        small.encode_passages([("", "fine"), ("Title", "w " * 17)])
    vectors = small.encode_passages([("many words in a title " * 9, "w " * 16), ("", "w " * 16)])
    assert vectors[0].tobytes() == vectors[1].tobytes()


def test_a_query_may_have_any_length() -> None:
    assert HashingEncoder(64, max_tokens=16).encode_queries(["w " * 4_000]).shape == (1, 64)


def test_no_texts_give_no_rows() -> None:
    assert ENCODER.encode_queries([]).shape == (0, 256)
    assert ENCODER.encode_passages([]).shape == (0, 256)
