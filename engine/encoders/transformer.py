"""Encoders run by transformers and torch: the one door to both."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import huggingface_hub
import numpy as np
import torch
import transformers
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from numpy.typing import NDArray
from safetensors import SafetensorError

from engine.config import EncoderConfig
from engine.encoders.encoder import Vectors, fitting_inputs, unit_rows
from engine.encoders.packaged import packaged_model
from engine.encoders.recipe import Pooling, Recipe, read_recipe, space_fingerprint
from engine.errors import EncoderError
from engine.text.chunking import cut

_MODEL_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")

_FETCHED = ["*.json", "*.txt", "*.model", "model*.safetensors"]


class TransformerEncoder:
    """A bidirectional or causal model whose hidden states are pooled into a unit vector.

    Everything runs in float32. A query is encoded alone and unpadded, at a fixed number of threads,
    so that its vector is the same to the bit on the same kind of machine. Passages are encoded in
    padded batches of similar length.
    """

    def __init__(
        self,
        model: transformers.PreTrainedModel,
        tokenizer: transformers.PreTrainedTokenizerFast,
        recipe: Recipe,
        fingerprint: str,
        config: EncoderConfig,
    ) -> None:
        """Take a loaded model; `open` is the usual way."""
        self._model: Any = model
        self._tokenizer: Any = tokenizer.backend_tokenizer
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._pad = int(tokenizer.pad_token_id or 0)
        self._recipe = recipe
        self._fingerprint = fingerprint
        self._dimension = int(model.config.hidden_size)
        self._threads = config.threads
        self._batch_size = config.batch_size

    @classmethod
    def open(cls, config: EncoderConfig) -> Self:
        """Load the model that a configuration names.

        A folder, or `default`, is read from the disk; of a model id the local Hugging Face cache is
        asked first, and the network only when it has nothing.

        Args:
            config: the `encoder` branch of the configuration.

        Raises:
            EncoderError: it cannot be loaded; one line that says what to do.
        """
        folder = _folder(config.model)
        family = "multilingual-e5-small" if config.model == "default" else config.model
        with _quiet():
            tokenizer = _load_tokenizer(folder, config.model)
            model: Any = _load_model(folder, config.model)
        recipe = read_recipe(folder, family, config, _window(model, tokenizer))
        device = config.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            model = model.to(device).eval()
        except (RuntimeError, AssertionError) as error:
            raise _unloadable(f"{config.model} on {device}", error) from None
        return cls(model, tokenizer, recipe, space_fingerprint(folder, recipe), config)

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 over weights, tokenizer, pooling, prefixes and window."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Return the model's hidden size."""
        return self._dimension

    @property
    def max_tokens(self) -> int:
        """Return the window: the least of the configuration's, the model's and the tokenizer's."""
        return self._recipe.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of passage inputs, prefix and special tokens included."""
        return [len(ids) for ids in self._ids(self._recipe.passage_prefix, texts)]

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries one at a time: float32 (n, dimension), unit rows, in order.

        A query longer than the window is cut into windows as passages are; its vector is the
        normalised mean of their unit vectors.

        Raises:
            EncoderError: a vector is zero or not finite.
        """
        rows = np.zeros((len(queries), self._dimension), np.float64)
        for row, query in enumerate(queries):
            windows = self._query_windows(query)
            states = np.concatenate([self._states([ids]) for ids in windows])
            rows[row] = unit_rows(states, "query").mean(axis=0, dtype=np.float64)
        return unit_rows(rows, "query")

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        """Encode (title, text) pairs: float32 (n, dimension), unit rows, in order.

        Raises:
            EncoderError: a text alone exceeds the window, or a vector is zero or not finite.
        """
        inputs, counts = fitting_inputs(passages, self.count_tokens, self.max_tokens)
        ids = self._ids(self._recipe.passage_prefix, inputs)
        order = sorted(range(len(ids)), key=lambda row: -counts[row])
        rows = np.zeros((len(ids), self._dimension), np.float32)
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            rows[batch] = self._states([ids[row] for row in batch])
        return unit_rows(rows, "passage")

    def _ids(self, prefix: str, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._tokenizer.encode_batch_fast([prefix + text for text in texts])
        return [encoding.ids for encoding in encoded]

    def _query_windows(self, query: str) -> list[list[int]]:
        prefix = self._recipe.query_prefix
        whole = self._ids(prefix, [query])
        if len(whole[0]) <= self.max_tokens:
            return whole
        spans = cut(query, "", self._count_query_tokens, self.max_tokens)
        return self._ids(prefix, [query[span.start : span.end] for span in spans])

    def _count_query_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._ids(self._recipe.query_prefix, texts)]

    @torch.inference_mode()
    def _states(self, batch: list[list[int]]) -> NDArray[np.float32]:
        """Return pooled states, float32 (len(batch), dimension); padded only if lengths differ."""
        if torch.get_num_threads() != self._threads:  # Ray sets OMP_NUM_THREADS, others set this
            torch.set_num_threads(self._threads)
        lengths = [len(ids) for ids in batch]
        longest = max(lengths)
        ids = torch.tensor(
            [row + [self._pad] * (longest - len(row)) for row in batch], device=self._model.device
        )
        kept = torch.arange(longest, device=ids.device) < torch.tensor(
            lengths, device=ids.device
        ).unsqueeze(1)
        states = self._model(input_ids=ids, attention_mask=kept.long()).last_hidden_state
        pooled: NDArray[np.float32] = _pool(states, kept, self._recipe.pooling).cpu().numpy()
        return pooled


def _load_tokenizer(folder: Path, name: str) -> transformers.PreTrainedTokenizerFast:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise _unloadable(name, error) from None
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise EncoderError(f"{name} has no tokenizer.json: give a model that has one")
    return tokenizer


def _load_model(folder: Path, name: str) -> transformers.PreTrainedModel:
    try:
        model: transformers.PreTrainedModel = transformers.AutoModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        raise _unloadable(name, error) from None
    return model


def _pool(states: torch.Tensor, kept: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """Pool states (n, tokens, d) over the tokens that are not padding."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[torch.arange(len(states), device=states.device), kept.sum(dim=1) - 1]
    weights = kept.unsqueeze(2).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1)


def _window(
    model: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerFast
) -> int:
    positions = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if "roberta" in model.config.model_type:  # positions start after the padding index
        positions -= int(model.config.pad_token_id or 0) + 1
    limits = [int(tokenizer.model_max_length)] + ([positions] if positions > 0 else [])
    return min(limits)


def _folder(model: str) -> Path:
    if model == "default":
        return packaged_model()
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if not _MODEL_ID.fullmatch(model):
        raise EncoderError(f"encoder.model {model} is neither a folder nor a model id")
    try:
        return Path(huggingface_hub.snapshot_download(model, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        pass
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=_FETCHED))
    except (OSError, ValueError) as error:
        raise _unloadable(model, error) from None


def _unloadable(model: str, error: Exception) -> EncoderError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return EncoderError(
        f"the encoder {model} cannot be loaded ({lines[0][:200]}): set encoder.model to a folder "
        "with a model, or to default"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice off standard error while a model loads."""
    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
