"""Encoders run by transformers and torch: the one door to both."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from numpy.typing import NDArray
from safetensors import SafetensorError

from engine.config import EncoderConfig
from engine.encoders.encoder import Vectors, fitting_inputs, unit_rows
from engine.encoders.fingerprint import space_fingerprint, weight_files
from engine.encoders.folder import model_folder, require_plain, unloadable
from engine.encoders.modules import Chain, Dense, read_chain
from engine.encoders.recipe import Pooling, Recipe, read_recipe
from engine.errors import EncoderError
from engine.text.chunking import cut

_LOADING = (
    OSError,
    ValueError,
    KeyError,
    ImportError,
    RuntimeError,
    SafetensorError,
    pickle.UnpicklingError,  # code in a pickle, which is not run
    EOFError,
)


class TransformerEncoder:
    """A bidirectional or causal model whose hidden states are pooled into a unit vector.

    The model runs in the configured dtype, and what follows in float32. A query is encoded alone
    and unpadded, at a fixed number of threads, so that its vector is the same to the bit on the
    same kind of machine. Passages are encoded in batches of similar length, padded on the right
    whatever the tokenizer says: a token then has the same position as in a text alone.
    """

    def __init__(
        self,
        network: _Network,
        tokenizer: transformers.PreTrainedTokenizerFast,
        fingerprint: str,
        config: EncoderConfig,
    ) -> None:
        """Take a loaded model; `open` is the usual way."""
        self._network = network
        self._tokenizer: Any = tokenizer.backend_tokenizer
        self._pad = int(tokenizer.pad_token_id or 0)
        self._blank = int(tokenizer.eos_token_id or self._pad)
        self._recipe = network.recipe
        self._fingerprint = fingerprint
        self._threads = config.threads
        self._batch_size = config.batch_size

    @classmethod
    def open(cls, config: EncoderConfig) -> Self:
        """Load the model that a configuration names.

        A folder, or `default`, is read from the disk; of a model id the local Hugging Face cache is
        asked first, and the network only when it has nothing. Code of a model is never run.

        Args:
            config: the `encoder` branch of the configuration.

        Raises:
            EncoderError: it cannot be loaded, or asks for what is not supported; one line that says
                what to do.
        """
        packaged = config.model == "default"
        chain = read_chain(model_folder(config.model))
        name = config.model
        if packaged:
            name = f"default in {chain.folder} (made anew once that folder is removed)"
        require_plain(chain.transformer, name)
        with _quiet():
            tokenizer = _load_tokenizer(chain.transformer, name)
            model: Any = _load_model(chain.transformer, name, getattr(torch, config.dtype))
        family = "multilingual-e5-small" if packaged else config.model
        recipe = read_recipe(chain, family, config, _window(model, tokenizer))
        _prepare_tokenizer(tokenizer, recipe, name)
        network = _Network(model, chain, recipe)
        network.move(name, config.device)
        fingerprint = space_fingerprint(chain, recipe, packaged=packaged)
        return cls(network, tokenizer, fingerprint, config)

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 over weights, tokenizer, pooling, prefixes, window and dtype."""
        return self._fingerprint

    @property
    def dimension(self) -> int:
        """Return the columns of the last layer: the model's hidden size, or a Dense module's."""
        return self._network.dimension

    @property
    def max_tokens(self) -> int:
        """Return the window: the least of the configuration's, the model's and the tokenizer's."""
        return self._recipe.max_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of passage inputs, prefix and special tokens included; at least 1."""
        return [len(ids) for ids in self._ids(self._recipe.passage_prefix, texts)]

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries one at a time: float32 (n, dimension), unit rows, in order.

        A query longer than the window is cut into windows as passages are; its vector is the
        normalised mean of their unit vectors.

        Raises:
            EncoderError: a vector is zero or not finite.
        """
        rows = np.zeros((len(queries), self.dimension), np.float64)
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
        rows = np.zeros((len(ids), self.dimension), np.float32)
        for start in range(0, len(order), self._batch_size):
            batch = order[start : start + self._batch_size]
            rows[batch] = self._states([ids[row] for row in batch])
        return unit_rows(rows, "passage")

    def _ids(self, prefix: str, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text. One without any gets the end token, or the padding."""
        encoded = self._tokenizer.encode_batch_fast([prefix + text for text in texts])
        return [encoding.ids or [self._blank] for encoding in encoded]

    def _query_windows(self, query: str) -> list[list[int]]:
        prefix = self._recipe.query_prefix
        whole = self._ids(prefix, [query])
        if len(whole[0]) <= self.max_tokens:
            return whole
        spans = cut(query, "", self._count_query_tokens, self.max_tokens)
        return self._ids(prefix, [query[span.start : span.end] for span in spans])

    def _count_query_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self._ids(self._recipe.query_prefix, texts)]

    def _states(self, batch: list[list[int]]) -> NDArray[np.float32]:
        """Return pooled states, float32 (len(batch), dimension); padded only if lengths differ."""
        if torch.get_num_threads() != self._threads:  # Ray sets OMP_NUM_THREADS, others set this
            torch.set_num_threads(self._threads)
        longest = max(len(ids) for ids in batch)
        padded = [ids + [self._pad] * (longest - len(ids)) for ids in batch]
        return self._network.run(padded, [len(ids) for ids in batch])


class _Network:
    """A model, its pooling and the layers behind it."""

    def __init__(self, model: transformers.PreTrainedModel, chain: Chain, recipe: Recipe) -> None:
        """Load the layers behind a loaded model.

        Raises:
            EncoderError: a layer cannot be loaded, or does not fit what comes before.
        """
        self.recipe = recipe
        self.dimension = int(model.config.hidden_size)
        self._model: Any = model
        self._layers = [(layer.normalised, _load_dense(layer)) for layer in chain.dense]
        for layer in chain.dense:
            if layer.inputs != self.dimension:
                raise EncoderError(f"{layer.folder} takes {layer.inputs} columns: wrong model")
            self.dimension = layer.outputs

    def move(self, name: str, device: str) -> None:
        """Put everything on a device; `auto`: a GPU where there is one.

        Raises:
            EncoderError: there is no such device, or it has no room.
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self._model = self._model.to(device).eval()
            self._layers = [(scaled, layer.to(device).eval()) for scaled, layer in self._layers]
        except (RuntimeError, AssertionError) as error:
            raise unloadable(f"{name} on {device}", error) from None

    @torch.inference_mode()
    def run(self, padded: list[list[int]], lengths: list[int]) -> NDArray[np.float32]:
        """Return what comes out: float32 (len(padded), dimension), of any length.

        Args:
            padded: token ids, padded on the right to one length.
            lengths: how many of each are no padding, at least 1.
        """
        ids = torch.tensor(padded, device=self._model.device)
        kept = torch.arange(ids.shape[1], device=ids.device) < torch.tensor(
            lengths, device=ids.device
        ).unsqueeze(1)
        states = self._model(input_ids=ids, attention_mask=kept.long()).last_hidden_state
        pooled = _pool(states.float(), kept, self.recipe.pooling)
        for scaled, layer in self._layers:
            pooled = layer(torch.nn.functional.normalize(pooled) if scaled else pooled)
        made: NDArray[np.float32] = pooled.cpu().numpy()
        return made


def _pool(states: torch.Tensor, kept: torch.Tensor, pooling: Pooling) -> torch.Tensor:
    """Pool states (n, tokens, d) over the tokens that are not padding."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[torch.arange(len(states), device=states.device), kept.sum(dim=1) - 1]
    weights = kept.unsqueeze(2).to(states.dtype)
    return (states * weights).sum(dim=1) / weights.sum(dim=1)


# ---------------------------------------------------------------------------------- loading


def _load_tokenizer(folder: Path, name: str) -> transformers.PreTrainedTokenizerFast:
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise unloadable(name, error) from None
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerFast):
        raise EncoderError(f"{name} has no tokenizer.json: give a model that has one")
    return tokenizer


def _prepare_tokenizer(
    tokenizer: transformers.PreTrainedTokenizerFast, recipe: Recipe, name: str
) -> None:
    """Switch off cutting and padding, which are done here, and lower-case where asked."""
    backend: Any = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    if recipe.lower_case:
        lower = tokenizers.normalizers.Lowercase()
        rest = [] if backend.normalizer is None else [backend.normalizer]
        backend.normalizer = tokenizers.normalizers.Sequence([lower, *rest])
    if any(backend.encode("a").type_ids):
        raise EncoderError(f"{name} numbers segments of a single text, which is not supported")


def _load_model(folder: Path, name: str, dtype: torch.dtype) -> transformers.PreTrainedModel:
    """Load a model for inference; of one with encoder and decoder, the encoder."""
    weights = weight_files(folder)
    if not weights:
        raise EncoderError(f"{name} has no weights (model.safetensors): give a whole model")
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    auto: Any = transformers.AutoModel
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **options)
        if config.is_encoder_decoder:
            auto = transformers.AutoModelForTextEncoding
        options |= {"dtype": dtype, "use_safetensors": weights[0].suffix == ".safetensors"}
        model, found = auto.from_pretrained(folder, output_loading_info=True, **options)
    except _LOADING as error:
        raise unloadable(name, error) from None
    if not isinstance(getattr(model.config, "hidden_size", None), int):
        raise EncoderError(f"{name} is no text encoder: its configuration has no hidden_size")
    # What a file lacks is filled at random. Only the pooler may be lacking: it is not used.
    lacking = sorted(key for key in found["missing_keys"] if "pooler" not in key.split("."))
    if lacking:
        raise EncoderError(f"{name} lacks {len(lacking)} of its weights, such as {lacking[0]}")
    model.config.use_cache = False
    loaded: transformers.PreTrainedModel = model
    return loaded


def _load_dense(layer: Dense) -> torch.nn.Module:
    """Load a linear layer and its activation, float32."""
    linear = torch.nn.Linear(layer.inputs, layer.outputs, bias=layer.bias)
    files = weight_files(layer.folder)
    try:
        if not files:
            raise OSError("it has no weights")
        if files[0].suffix == ".safetensors":
            weights = safetensors.torch.load_file(files[0])
        else:
            weights = torch.load(files[0], map_location="cpu", weights_only=True)
        linear.load_state_dict({key.removeprefix("linear."): weights[key] for key in weights})
    except Exception as error:  # noqa: BLE001 (torch.load raises what a damaged pickle raises)
        raise unloadable(str(layer.folder), error) from None
    return torch.nn.Sequential(linear, getattr(torch.nn, layer.activation)())


def _window(
    model: transformers.PreTrainedModel, tokenizer: transformers.PreTrainedTokenizerFast
) -> int:
    """Return the most tokens that a model and its tokenizer take."""
    limits = [int(tokenizer.model_max_length)]
    positions = int(getattr(model.config, "max_position_embeddings", 0) or 0)
    if positions > 0:
        limits.append(positions - _reserved_positions(model))
    return min(limits)


def _reserved_positions(model: transformers.PreTrainedModel) -> int:
    """Return how many positions no token gets: RoBERTa and its kind start after the padding's."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


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
