"""The modules of a sentence-transformers folder, in the order in which they run.

What this code does not run exactly as sentence-transformers does is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from engine.encoders.documents import read_document, read_mapping
from engine.errors import EncoderError

_OWN = "sentence_transformers."
_AFTER_POOLING = {"Dense", "Normalize", "Dropout"}  # a dropout does nothing outside training
_ACTIVATIONS = {"Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"}


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer and an activation, run on the pooled states.

    Attributes:
        folder: holds the layer's config.json and weights.
        inputs: columns that go in.
        outputs: columns that come out.
        bias: whether a bias is added.
        activation: name of the class in torch.nn.
        normalised: whether the pooled states are scaled to unit length before.
    """

    folder: Path
    inputs: int
    outputs: int
    bias: bool
    activation: str
    normalised: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """What runs: a model, a pooling, then layers.

    Attributes:
        folder: the whole model's folder.
        transformer: holds the model's weights and the tokenizer; `folder` or below.
        pooling: holds the config.json of the pooling; it may be missing.
        dense: the layers, in order. Vectors are scaled to unit length at the end in any case.
        described: whether modules.json says so; else this is what is usual.
    """

    folder: Path
    transformer: Path
    pooling: Path
    dense: tuple[Dense, ...]
    described: bool


def read_chain(folder: Path) -> Chain:
    """Read modules.json: Transformer, Pooling, then any of Dense, Normalize and Dropout.

    A folder without the file is a bare model, with the pooling that 1_Pooling describes, if any.

    Raises:
        EncoderError: a file cannot be read; the modules are others, in another order, outside the
            folder or code of the model's own; or the model is sparse or a reranker.
    """
    _require_vectors(folder)
    document = read_document(folder / "modules.json")
    if document is None:
        return Chain(folder, folder, folder / "1_Pooling", (), described=False)
    modules = [_module(folder, entry) for entry in document] if isinstance(document, list) else []
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise EncoderError(
            f"{folder} runs {', '.join(kinds) or 'no modules'}: only a Transformer, then a Pooling "
            "is supported"
        )
    dense: list[Dense] = []
    normalised = False
    for kind, path in modules[2:]:
        if kind not in _AFTER_POOLING:
            raise EncoderError(f"{folder} needs a module {kind} after Pooling: not supported")
        if kind == "Dense":
            dense.append(_dense(path, normalised=normalised))
        if kind != "Dropout":
            normalised = kind == "Normalize"
    (_, transformer), (_, pooling) = modules[:2]
    return Chain(folder, transformer, pooling, tuple(dense), described=True)


def _require_vectors(folder: Path) -> None:
    kind = read_mapping(folder / "config_sentence_transformers.json").get("model_type")
    if kind not in {None, "SentenceTransformer"}:
        raise EncoderError(f"{folder} is a {kind}: give a model that makes one vector of a text")


def _module(folder: Path, entry: Any) -> tuple[str, Path]:
    """Return the kind and the folder of an entry of modules.json."""
    if not isinstance(entry, dict):
        raise EncoderError(f"{folder / 'modules.json'} has an entry that is not an object")
    kind, path = str(entry.get("type", "")), PurePosixPath(str(entry.get("path", "")))
    if not kind.startswith(_OWN):
        raise EncoderError(
            f"{folder} needs code of its own ({kind or 'no type'} in modules.json), which is never "
            "run: give another model"
        )
    if path.is_absolute() or ".." in path.parts:
        raise EncoderError(f"{folder / 'modules.json'} names a folder outside: {path}")
    return kind.rpartition(".")[2], folder / path


def _dense(folder: Path, *, normalised: bool) -> Dense:
    document = read_mapping(folder / "config.json")
    inputs, outputs = document.get("in_features"), document.get("out_features")
    if not isinstance(inputs, int) or not isinstance(outputs, int):
        raise EncoderError(f"{folder / 'config.json'} does not say in_features and out_features")
    named = document.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = str(named).rpartition(".")[2]
    if not str(named).startswith("torch.nn.") or activation not in _ACTIVATIONS:
        raise EncoderError(f"{folder} has the activation {named}, which is not supported")
    fields = {document.get(key) for key in ("module_input_name", "module_output_name")}
    if document.get("use_residual") or not fields <= {None, "sentence_embedding"}:
        raise EncoderError(f"{folder} is a Dense module with a residual or another input")
    return Dense(
        folder, inputs, outputs, document.get("bias", True) is True, activation, normalised
    )
