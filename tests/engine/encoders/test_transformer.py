"""Encoding by tiny models of random weights; transformers itself is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

from engine.config import EncoderDtype
from engine.errors import EncoderError
from tests.engine.encoders.tiny_models import (
    HIDDEN,
    modules,
    opened,
    save_bert,
    save_dense,
    save_qwen3,
    save_tokenizer,
    small,
    write_files,
)


def hidden_states(folder: Path, ids: list[int]) -> NDArray[np.float32]:
    """Return the last hidden states of one text alone, as transformers gives them."""
    model: Any = transformers.AutoModel.from_pretrained(folder)
    with torch.inference_mode():
        states = model.eval()(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    assert isinstance(states, np.ndarray)
    return states


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = vector / np.linalg.norm(vector)
    return scaled


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
@pytest.mark.parametrize("save", [save_bert, save_qwen3])
def test_states_are_pooled_as_asked(
    tmp_path: Path, save: Callable[[Path], Path], pooling: str
) -> None:
    folder = save(tmp_path / "tiny")
    ids = [1, 7, 8, 9, 2] if save is save_bert else [7, 8, 9, 2]
    states = hidden_states(folder, ids)
    expected = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
    encoder = opened(folder, pooling=pooling)
    made = encoder.encode_passages([("red", "green blue"), ("", "one"), ("", "one two three .")])
    assert np.allclose(made[0], unit(expected), atol=1e-5)
    assert np.allclose(encoder.encode_queries(["red green blue"])[0], unit(expected), atol=1e-5)


@pytest.mark.parametrize("save", [save_bert, save_qwen3])
def test_padding_does_not_move_a_passage_and_order_is_kept(
    tmp_path: Path, save: Callable[[Path], Path]
) -> None:
    encoder = opened(save(tmp_path / "tiny"), batch_size=3)
    passages = [("", "one " * length) for length in (9, 1, 40, 3, 22, 1, 17)]
    together = encoder.encode_passages(passages)
    alone = np.concatenate([encoder.encode_passages([passage]) for passage in passages])
    assert np.allclose(together, alone, atol=1e-5)
    assert together.dtype == np.float32
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_query_vector_is_the_same_to_the_bit_among_other_queries(
    tmp_path: Path, dtype: EncoderDtype
) -> None:
    encoder = opened(save_bert(tmp_path / "tiny"), dtype=dtype)
    queries = ["red", "green blue one two three", "red green"]
    together = encoder.encode_queries(queries)
    for row, query in enumerate(queries):
        assert encoder.encode_queries([query]).tobytes() == together[row].tobytes()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_smaller_dtype_gives_nearly_the_same_vectors(tmp_path: Path, dtype: EncoderDtype) -> None:
    folder = save_bert(tmp_path / "tiny")
    texts = ["red", "green blue one", "three ."]
    exact, rough = (opened(folder, dtype=d).encode_queries(texts) for d in ("float32", dtype))
    assert rough.dtype == np.float32
    assert rough.tobytes() != exact.tobytes()
    assert (exact * rough).sum(axis=1).min() > 0.99
    assert np.allclose(np.linalg.norm(rough, axis=1), 1.0, atol=1e-6)


def test_prefixes_count_and_tell_queries_from_passages(tmp_path: Path) -> None:
    encoder = opened(save_bert(tmp_path / "tiny-e5"))
    assert encoder.count_tokens(["", "red green"]) == [4, 6]
    query, passage = encoder.encode_queries(["red"])[0], encoder.encode_passages([("", "red")])[0]
    assert not np.allclose(query, passage, atol=1e-3)
    assert opened(save_bert(tmp_path / "tiny")).count_tokens(["", "red green"]) == [2, 4]


# ------------------------------------------------------------------------------- windows


def save_roberta(folder: Path) -> Path:
    """Write a model of the kind whose first position is the padding's plus one."""
    save_tokenizer(folder)
    torch.manual_seed(7)
    sizes = small() | {"max_position_embeddings": 48, "pad_token_id": 1, "bos_token_id": 0}
    transformers.CamembertModel(transformers.CamembertConfig(**sizes)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("save", "window"), [(save_bert, 48), (save_qwen3, 48), (save_roberta, 46)]
)
def test_the_window_is_what_the_positions_allow(
    tmp_path: Path, save: Callable[[Path], Path], window: int
) -> None:
    encoder = opened(save(tmp_path / "tiny"))
    assert encoder.max_tokens == window
    text = "red " * (window - encoder.count_tokens([""])[0])
    assert encoder.count_tokens([text]) == [window]
    assert np.isfinite(encoder.encode_passages([("", text)])).all()


def test_a_passage_beyond_the_window_is_refused_never_cut(tmp_path: Path) -> None:
    encoder = opened(save_bert(tmp_path / "tiny"))
    with pytest.raises(EncoderError, match="passage 0 has 49 tokens"):
        encoder.encode_passages([("", "red " * 47)])
    fits = encoder.encode_passages([("blue " * 90, "red " * 46), ("", "red " * 46)])
    assert np.allclose(fits[0], fits[1], atol=1e-6), "the title gave way"


def test_every_part_of_a_long_query_counts(tmp_path: Path) -> None:
    encoder = opened(save_bert(tmp_path / "tiny"))
    head = "red " * 46
    whole = encoder.encode_queries([head + "blue " * 46])[0]
    parts = encoder.encode_queries([head, "blue " * 46])
    mean = parts.mean(axis=0)
    assert np.allclose(whole, mean / np.linalg.norm(mean), atol=1e-5)
    assert not np.allclose(whole, parts[0], atol=1e-3)


@pytest.mark.parametrize("length", [45, 46, 47, 92, 200])
def test_a_word_anywhere_in_a_query_moves_its_vector(tmp_path: Path, length: int) -> None:
    encoder = opened(save_bert(tmp_path / "tiny"))
    words = ["red"] * length
    plain = encoder.encode_queries([" ".join(words)])[0]
    for place in {0, length // 2, length - 1}:
        changed = [*words[:place], "three", *words[place + 1 :]]
        assert not np.array_equal(encoder.encode_queries([" ".join(changed)])[0], plain), place


def test_a_text_without_tokens_has_a_vector(tmp_path: Path) -> None:
    assert np.isfinite(opened(save_bert(tmp_path / "tiny")).encode_queries([""])).all()
    folder = save_qwen3(tmp_path / "bare")
    save_tokenizer(folder, template=None)
    encoder = opened(folder)
    expected = unit(hidden_states(folder, [2])[0])
    assert np.allclose(encoder.encode_queries([""])[0], expected, atol=1e-5)
    assert np.allclose(encoder.encode_passages([("", "")])[0], expected, atol=1e-5)


def test_threads_are_as_configured_whatever_else_sets_them(tmp_path: Path) -> None:
    encoder = opened(save_bert(tmp_path / "tiny"), threads=2)
    torch.set_num_threads(1)
    encoder.encode_queries(["red"])
    assert torch.get_num_threads() == 2


# ----------------------------------------------------------------------- layers and tokenizers


@pytest.mark.parametrize("pickled", [False, True])
def test_dense_layers_run_in_their_order(tmp_path: Path, pickled: bool) -> None:
    kinds = ("Transformer", "Pooling", "Normalize", "Dense", "Dense", "Normalize")
    folder = save_bert(tmp_path / "tiny", {"modules.json": modules(*kinds)})
    torch.manual_seed(3)
    first, second = torch.randn(32, HIDDEN), torch.randn(8, 32)
    save_dense(folder / "3_Dense", first, "torch.nn.modules.activation.Tanh", pickled=pickled)
    save_dense(folder / "4_Dense", second, "torch.nn.modules.linear.Identity", pickled=pickled)
    encoder = opened(folder)
    pooled = unit(hidden_states(folder, [1, 7, 2]).mean(axis=0))
    expected = second.numpy() @ np.tanh(first.numpy() @ pooled)
    assert encoder.dimension == 8
    assert np.allclose(encoder.encode_queries(["red"])[0], unit(expected), atol=1e-5)


def test_texts_are_lower_cased_where_the_folder_says_so(tmp_path: Path) -> None:
    plain = opened(save_bert(tmp_path / "plain"))
    settings = {"sentence_bert_config.json": {"do_lower_case": True}}
    lower = opened(save_bert(tmp_path / "lower", settings))
    red = plain.encode_queries(["red"])[0]
    assert not np.allclose(plain.encode_queries(["RED"])[0], red, atol=1e-3), "an unknown word"
    assert np.array_equal(lower.encode_queries(["RED"])[0], red)


def test_the_encoder_of_an_encoder_decoder_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    save_tokenizer(folder, "$A </s>")
    torch.manual_seed(7)
    sizes = {"d_model": HIDDEN, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    config: Any = transformers.T5Config
    whole: Any = transformers.T5Model(config(vocab_size=20, **sizes))
    whole.eval()
    whole.save_pretrained(folder)
    with torch.inference_mode():
        states = whole.encoder(input_ids=torch.tensor([[7, 2]])).last_hidden_state[0].numpy()
    encoder = opened(folder)
    assert encoder.max_tokens == 64, "no positions: the tokenizer's limit"
    assert np.allclose(encoder.encode_queries(["red"])[0], unit(states.mean(axis=0)), atol=1e-5)


# -------------------------------------------------------------- vectors that are no vectors


def test_weights_that_are_not_finite_are_found_at_the_first_vector(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    model: Any = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[7] = float("nan")
    model.save_pretrained(folder)
    encoder = opened(folder)
    assert encoder.encode_queries(["green"]).shape == (1, HIDDEN)
    with pytest.raises(EncoderError, match="not finite for query 0"):
        encoder.encode_queries(["red"])
    with pytest.raises(EncoderError, match="not finite for passage 1"):
        encoder.encode_passages([("", "green"), ("", "red")])


def test_a_dtype_too_small_for_a_model_is_found_at_the_first_vector(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    model: Any = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[-1].output.LayerNorm.bias += 1e5  # float16 ends at 65,504
    model.save_pretrained(folder)
    assert np.isfinite(opened(folder).encode_queries(["red"])).all()
    with pytest.raises(EncoderError, match="not finite for query 0"):
        opened(folder, dtype="float16").encode_queries(["red"])


def test_zero_vectors_are_refused_by_name(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    write_files(folder, {"modules.json": modules("Transformer", "Pooling", "Dense")})
    save_dense(folder / "2_Dense", torch.zeros(4, HIDDEN), "torch.nn.Identity", pickled=False)
    encoder = opened(folder)
    with pytest.raises(EncoderError, match="a zero vector for query 0"):
        encoder.encode_queries(["red"])
    with pytest.raises(EncoderError, match="a zero vector for passage 0"):
        encoder.encode_passages([("", "red")])
