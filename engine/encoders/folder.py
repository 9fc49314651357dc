"""Where a model lies on this machine, and what a model folder may not ask for."""

from __future__ import annotations

import re
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

from engine.encoders.documents import read_mapping
from engine.encoders.packaged import packaged_model
from engine.errors import EncoderError

_MODEL_ID = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")

_FETCHED = ["*.json", "*.txt", "*.model", "model*.safetensors", "*/model*.safetensors"]


def model_folder(model: str) -> Path:
    """Return the folder of `default`, of a folder, or of a model id.

    Of a model id the local Hugging Face cache is asked first, and the network only where the cache
    has no whole model. Only safetensors are fetched, never pickles or code.

    Raises:
        EncoderError: there is no such folder, or the model cannot be fetched.
        StorageFullError: no space is left to convert the default.
    """
    if model == "default":
        return packaged_model()
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if not _MODEL_ID.fullmatch(model):
        raise EncoderError(f"encoder.model {model} is neither a folder nor a model id")
    try:
        cached = Path(huggingface_hub.snapshot_download(model, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        cached = None
    if cached is not None and any(cached.rglob("model*.safetensors")):
        return cached
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=_FETCHED))
    except (OSError, ValueError) as error:
        raise unloadable(model, error) from None


def require_plain(folder: Path, model: str) -> None:
    """Refuse a folder that only code of its own, or an adapter, makes complete.

    Args:
        folder: holds config.json.
        model: what to call it.

    Raises:
        EncoderError: it asks for one of these; code of a model is never run.
    """
    for name, classes in (
        ("config.json", {"AutoConfig", "AutoModel"}),
        ("tokenizer_config.json", {"AutoTokenizer"}),
    ):
        asked = read_mapping(folder / name).get("auto_map")
        if isinstance(asked, dict) and classes & asked.keys():
            raise EncoderError(
                f"{model} asks for code of its own (auto_map in {name}), which is never run: give "
                "another model, or a folder without auto_map if transformers itself knows the model"
            )
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(f"{model} is an adapter: merge it into its model, and give that folder")


def unloadable(model: str, error: Exception) -> EncoderError:
    """Return the error of a model that cannot be loaded: one line that says what to do."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return EncoderError(
        f"the encoder {model} cannot be loaded ({lines[0][:200]}): set encoder.model to a folder "
        "with a model, or to default"
    )
