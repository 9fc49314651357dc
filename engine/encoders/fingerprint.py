"""The name of a vector space: a hash over the files and settings that shape a vector."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from engine.encoders.hashes import file_sha256
from engine.encoders.modules import Chain
from engine.encoders.recipe import Recipe
from engine.errors import EncoderError

_VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)
_SHAPING = (
    "added_tokens.json",
    "config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
)


def weight_files(folder: Path) -> list[Path]:
    """Return the files of weights that are loaded from a folder: safetensors where there are any.

    Pickled weights are read by torch's restricted reader, which runs no code.
    """
    return sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def space_fingerprint(chain: Chain, recipe: Recipe, *, packaged: bool = False) -> str:
    """Name a vector space: SHA-256 over the files and the recipe that shape a vector.

    The device, the number of threads, the batch size, the folder's place and the times of its files
    have no part in it. Saving a model again may write other files, hence another space: a name that
    changes once too often is safe.

    Args:
        chain: the folder's modules.
        recipe: what else shapes a vector.
        packaged: the folder is the packaged default. Its configuration is a constant of this code,
            so only weights and tokenizer count.

    Raises:
        EncoderError: the folder has no weights or no tokenizer, or cannot be read.
    """
    folder = chain.transformer
    weights = weight_files(folder)
    vocabularies = [folder / name for name in _VOCABULARIES if (folder / name).is_file()]
    if not weights or not vocabularies:
        raise EncoderError(f"{folder} has no weights or no tokenizer.json: give a whole model")
    try:
        files = _hashes(folder, [*weights, *vocabularies])
        described: dict[str, Any] = {
            "files": files,
            "pooling": recipe.pooling,
            "query_prefix": recipe.query_prefix,
            "passage_prefix": recipe.passage_prefix,
            "max_tokens": recipe.max_tokens,
            "normalised": True,
        }
        if not packaged:
            described |= _particulars(chain, recipe)
    except OSError as error:
        raise EncoderError(f"{folder} cannot be read: {error}") from None
    if recipe.dtype != "float32":
        described["dtype"] = recipe.dtype
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _particulars(chain: Chain, recipe: Recipe) -> dict[str, Any]:
    """Return what the packaged default has only in one way."""
    present = [chain.transformer / name for name in _SHAPING]
    layers = [
        [
            layer.normalised,
            layer.bias,
            layer.activation,
            _hashes(chain.folder, weight_files(layer.folder)),
        ]
        for layer in chain.dense
    ]
    return {
        "configuration": _hashes(chain.transformer, [path for path in present if path.is_file()]),
        "dense": layers,
        "lower_case": recipe.lower_case,
    }


def _hashes(folder: Path, files: list[Path]) -> list[list[str]]:
    return [[path.relative_to(folder).as_posix(), file_sha256(path)] for path in files]
