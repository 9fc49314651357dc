"""How a model's states become vectors: pooling, prefixes, window, and the name of that space."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from engine.config import EncoderConfig
from engine.encoders.hashes import file_sha256
from engine.errors import EncoderError

Pooling = Literal["mean", "cls", "last"]

_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_POOLING_NAMES: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}

_SUPPORTED_MODULES = {"Transformer", "Pooling", "Normalize"}

_E5 = re.compile(r"(^|[^a-z0-9])e5([^a-z0-9]|$)")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What turns text into a vector, besides weights and tokenizer."""

    pooling: Pooling
    query_prefix: str
    passage_prefix: str
    max_tokens: int


def read_recipe(folder: Path, family: str, config: EncoderConfig, model_window: int) -> Recipe:
    """Gather the recipe of a model folder; what the configuration names wins.

    Pooling and prefixes come from the files of sentence-transformers (modules.json, the pooling
    module's config.json, config_sentence_transformers.json) where the folder has them; else pooling
    is the mean, and a model whose name says E5 (but not instruct) gets "query: " and "passage: ".

    Args:
        folder: holds the model.
        family: the model's id or path: its name tells the family.
        config: the `encoder` branch of the configuration.
        model_window: most tokens that the model and its tokenizer take.

    Raises:
        EncoderError: a file cannot be read, or asks for something that is not supported here.
    """
    modules = _read(folder / "modules.json")
    pooling = config.pooling if config.pooling != "auto" else _pooling(folder, modules)
    _refuse_other_modules(folder, modules)
    query, passage = _prefixes(folder, family)
    limit = _mapping(folder / "sentence_bert_config.json").get("max_seq_length")
    window = min(config.max_tokens, model_window)
    return Recipe(
        pooling=pooling,
        query_prefix=query if config.query_prefix is None else config.query_prefix,
        passage_prefix=passage if config.passage_prefix is None else config.passage_prefix,
        max_tokens=min(window, limit) if isinstance(limit, int) and limit > 0 else window,
    )


def space_fingerprint(folder: Path, recipe: Recipe) -> str:
    """Name a vector space: SHA-256 over the files and the recipe that shape a vector.

    The device, the number of threads and the batch size have no part in it.

    Raises:
        EncoderError: the folder has no weights or no tokenizer.json.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    tokenizer = folder / "tokenizer.json"
    if not weights or not tokenizer.is_file():
        raise EncoderError(f"{folder} has no weights or no tokenizer.json: give a whole model")
    try:
        files = [[path.name, file_sha256(path)] for path in [*weights, tokenizer]]
    except OSError as error:
        raise EncoderError(f"{folder} cannot be read: {error}") from None
    described = {
        "files": files,
        "pooling": recipe.pooling,
        "query_prefix": recipe.query_prefix,
        "passage_prefix": recipe.passage_prefix,
        "max_tokens": recipe.max_tokens,
        "normalised": True,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path} cannot be read: {error}") from None


def _mapping(path: Path) -> dict[str, Any]:
    document = _read(path)
    return document if isinstance(document, dict) else {}


def _modules(modules: Any) -> list[tuple[str, str]]:
    """Return (kind, path) of each module."""
    listed = modules if isinstance(modules, list) else []
    return [
        (str(module.get("type", "")).rpartition(".")[2], str(module.get("path", "")))
        for module in listed
        if isinstance(module, dict)
    ]


def _refuse_other_modules(folder: Path, modules: Any) -> None:
    for kind, _ in _modules(modules):
        if kind not in _SUPPORTED_MODULES:
            raise EncoderError(f"{folder} needs a module {kind}, which is not supported")


def _pooling(folder: Path, modules: Any) -> Pooling:
    paths = [path for kind, path in _modules(modules) if kind == "Pooling"] or ["1_Pooling"]
    document = _mapping(folder / paths[0] / "config.json")
    named = document.get("pooling_mode")
    asked = {str(named)} if named else set()
    asked |= {key for key, on in document.items() if key.startswith("pooling_mode_") and on is True}
    if not asked:
        return "mean"
    known = [_POOLINGS.get(name) or _POOLING_NAMES.get(name) for name in sorted(asked)]
    if len(known) != 1 or known[0] is None:
        poolings = ", ".join(get_args(Pooling))
        raise EncoderError(
            f"{folder} asks for {' and '.join(sorted(asked))}; set encoder.pooling to one of "
            f"{poolings}, if the model allows it"
        )
    return known[0]


def _prefixes(folder: Path, family: str) -> tuple[str, str]:
    prompts = _mapping(folder / "config_sentence_transformers.json").get("prompts")
    if isinstance(prompts, dict):
        query = prompts.get("query")
        passage = prompts.get("passage", prompts.get("document"))
        if isinstance(query, str) or isinstance(passage, str):
            return query or "", passage or ""
    name = Path(family).name.lower()
    if _E5.search(name) and "instruct" not in name:
        return "query: ", "passage: "
    return "", ""
