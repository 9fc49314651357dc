"""Encoders that tests share: the packaged default, loaded once, and tiny models made on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from engine.config import EncoderConfig
from engine.encoders.encoder import Encoder
from engine.encoders.opening import open_encoder

WORDS = ("query", "passage", ":", "red", "green", "blue", "one", "two", "three", ".")

MakeModel = Callable[..., Path]


@pytest.fixture(scope="session")
def default_encoder() -> Encoder:
    return open_encoder(EncoderConfig())


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Return a function that writes a tiny BERT of random weights, and files beside it."""

    def make(name: str = "tiny", **files: Any) -> Path:
        folder = tmp_path / name
        special = ["<pad>", "<s>", "</s>", "<unk>"]
        vocabulary = {word: code for code, word in enumerate([*special, *WORDS])}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = Whitespace()
        tokenizer.post_processor = TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
        )
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            pad_token="<pad>",
            bos_token="<s>",
            eos_token="</s>",
            unk_token="<unk>",
            model_max_length=64,
        ).save_pretrained(folder)
        torch.manual_seed(7)
        config = transformers.BertConfig(
            vocab_size=len(vocabulary),
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
