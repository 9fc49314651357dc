"""The tokenizer of XLM-RoBERTa, described as the tokenizers library reads it."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Places in the vocabulary, in the order of the package's header."""

    begin: int
    end: int
    pad: int
    unknown: int


def describe_tokenizer(
    pieces: Sequence[str], scores: Sequence[float], special: SpecialTokens
) -> dict[str, object]:
    """Return the document of tokenizer.json: nmt_nfkc, words, a unigram model (Kudo, ACL 2018).

    Args:
        pieces: the vocabulary in its order, without `<mask>`, which is appended.
        scores: log probabilities, one per piece.
        special: where begin, end, padding and unknown stand in the vocabulary.
    """
    vocabulary = [*zip(pieces, scores, strict=True), ("<mask>", 0.0)]
    places = {
        "<s>": special.begin,
        "<pad>": special.pad,
        "</s>": special.end,
        "<unk>": special.unknown,
        "<mask>": len(pieces),
    }
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    added = [
        {"id": code, "content": text, "lstrip": text == "<mask>", **flags}
        for text, code in places.items()
    ]
    words = {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": "always",
        "split": True,
    }
    begin, end = ({"SpecialToken": {"id": text, "type_id": 0}} for text in ("<s>", "</s>"))
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    codes = {
        text: {"id": text, "ids": [places[text]], "tokens": [text]} for text in ("<s>", "</s>")
    }
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    charsmap = {"type": "Precompiled", "precompiled_charsmap": _normalizer()}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [charsmap, spaces]},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, words],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, first, end],
            "pair": [begin, first, end, end, second, end],
            "special_tokens": codes,
        },
        "decoder": words,
        "model": {
            "type": "Unigram",
            "unk_id": special.unknown,
            "vocab": [list(entry) for entry in vocabulary],
            "byte_fallback": False,
        },
    }


def _normalizer() -> str:
    """Return sentencepiece's built-in nmt_nfkc rules, base64, taken from a throw-away model.

    XLM-RoBERTa was built with them, and the package does not carry them.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").write_text("hello world abc\n" * 50, "utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"),
            model_prefix=str(folder / "model"),
            vocab_size=20,
            model_type="unigram",
            normalization_rule_name="nmt_nfkc",
            hard_vocab_limit=False,
            minloglevel=2,
        )
        model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined] # made at import
        model.ParseFromString((folder / "model.model").read_bytes())
    return base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
