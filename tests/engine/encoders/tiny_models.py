"""Tiny models of random weights, in the folders that the Hugging Face libraries write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from engine.config import EncoderConfig
from engine.encoders.transformer import TransformerEncoder

WORDS = ("query", "passage", ":", "red", "green", "blue", "one", "two", "three", ".")
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
VOCABULARY = len(SPECIAL) + len(WORDS)
HIDDEN = 16

BERT_TEMPLATE = "<s> $A </s>"


def save_tokenizer(folder: Path, template: str | None = BERT_TEMPLATE, **settings: Any) -> None:
    """Write tokenizer.json and tokenizer_config.json of a tokenizer of whole words.

    Args:
        folder: made if need be.
        template: how special tokens stand around a text; None: there are none.
        settings: of the tokenizer, such as `padding_side`.
    """
    vocabulary = {word: code for code, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    if template is not None:
        tokenizer.post_processor = TemplateProcessing(
            single=template, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    wrap: Any = transformers.PreTrainedTokenizerFast
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = {**names, "model_max_length": 64, **settings}
    wrap(tokenizer_object=tokenizer, **settings).save_pretrained(folder)


def write_files(folder: Path, files: dict[str, Any]) -> None:
    """Write JSON documents: path inside the folder to value."""
    for name, document in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), "utf-8")


def save_bert(folder: Path, files: dict[str, Any] | None = None, **sizes: Any) -> Path:
    """Write a BERT of random weights, always the same, and files beside it."""
    save_tokenizer(folder)
    torch.manual_seed(7)
    config = transformers.BertConfig(**(small() | {"max_position_embeddings": 48} | sizes))
    transformers.BertModel(config).save_pretrained(folder)
    write_files(folder, files or {})
    return folder


def small() -> dict[str, Any]:
    """Return sizes that most configurations know."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def save_qwen3(folder: Path, files: dict[str, Any] | None = None, **sizes: Any) -> Path:
    """Write a causal Qwen3 whose tokenizer pads on the left and appends an end token."""
    save_tokenizer(folder, "$A </s>", padding_side="left")
    torch.manual_seed(7)
    heads = {"num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 48}
    transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**(small() | heads | sizes))
    ).save_pretrained(folder)
    write_files(folder, files or {})
    return folder


def save_dense(folder: Path, weight: torch.Tensor, activation: str, *, pickled: bool) -> None:
    """Write a Dense module without a bias: weight of shape (outputs, inputs)."""
    outputs, inputs = weight.shape
    document = {"in_features": inputs, "out_features": outputs, "bias": False}
    write_files(folder, {"config.json": document | {"activation_function": activation}})
    tensors = {"linear.weight": weight}
    if pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        from safetensors.torch import save_file

        save_file(tensors, folder / "model.safetensors")


def modules(*kinds: str) -> list[dict[str, Any]]:
    """Return a modules.json: the transformer in the root, every other in a folder of its own."""
    return [
        {
            "idx": idx,
            "name": str(idx),
            "path": "" if kind == "Transformer" else f"{idx}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for idx, kind in enumerate(kinds)
    ]


def opened(folder: Path, **settings: Any) -> TransformerEncoder:
    """Open a folder's encoder."""
    return TransformerEncoder.open(EncoderConfig(model=str(folder), **settings))
