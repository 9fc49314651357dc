"""What a folder, or a model id, must hold to be opened; what is refused, and what never runs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError
from tests.engine.encoders.tiny_models import (
    HIDDEN,
    modules,
    opened,
    save_bert,
    save_dense,
    save_tokenizer,
    write_files,
)

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("model.safetensors", b"not safetensors"),
        ("tokenizer.json", b"{}"),
        ("config.json", b"{"),
        ("config.json", b'{"model_type": "no-such-model"}'),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, file: str, data: bytes) -> None:
    folder = save_bert(tmp_path / "tiny")
    (folder / file).write_bytes(data)
    with pytest.raises(EncoderError, match=r"cannot be (loaded|read)") as caught:
        opened(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["/no/such/folder", "./missing", "a/b/c", "~/missing"])
def test_what_is_neither_folder_nor_model_id_is_refused(model: str) -> None:
    with pytest.raises(EncoderError, match="neither a folder nor a model id"):
        open_encoder(EncoderConfig(model=model))


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="on no-such-device"):
        opened(save_bert(tmp_path / "tiny"), device="no-such-device")


def test_weights_that_are_lacking_are_never_filled_at_random(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    weights = load_file(folder / "model.safetensors")
    kept = {key: value for key, value in weights.items() if "pooler" not in key}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    opened(folder)  # the pooler is not used
    lacking = "encoder.layer.1.output.dense.weight"
    kept.pop(lacking)
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=f"lacks 1 of its weights, such as {lacking}"):
        opened(folder)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="has no weights"):
        opened(folder)


def test_a_dense_layer_must_fit_the_model(tmp_path: Path) -> None:
    kinds = modules("Transformer", "Pooling", "Dense")
    folder = save_bert(tmp_path / "tiny", {"modules.json": kinds})
    layer = {"in_features": HIDDEN, "out_features": 4, "bias": False}
    write_files(folder, {"2_Dense/config.json": layer})
    with pytest.raises(EncoderError, match="2_Dense cannot be loaded"):
        opened(folder)
    save_dense(folder / "2_Dense", torch.ones(4, 8), "torch.nn.Tanh", pickled=False)
    with pytest.raises(EncoderError, match="takes 8 columns"):
        opened(folder)
    write_files(folder, {"2_Dense/config.json": layer | {"out_features": 5}})
    with pytest.raises(EncoderError, match="2_Dense cannot be loaded"):
        opened(folder)


def test_segment_numbers_of_a_single_text_are_refused(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    save_tokenizer(folder, "<s>:1 $A:1 </s>:1")
    with pytest.raises(EncoderError, match="numbers segments"):
        opened(folder)


# ------------------------------------------------------------------- code is never run


class Burglar:
    """Unpickled, it writes a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self._mark, "was here")


@pytest.mark.parametrize("place", ["", "2_Dense"])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, place: str) -> None:
    kinds = modules("Transformer", "Pooling", "Dense")
    folder = save_bert(tmp_path / "tiny", {"modules.json": kinds})
    save_dense(folder / "2_Dense", torch.ones(4, HIDDEN), "torch.nn.Tanh", pickled=False)
    mark = tmp_path / "mark"
    (folder / place / "model.safetensors").unlink()
    (folder / place / "pytorch_model.bin").write_bytes(
        pickle.dumps({"weight": Burglar(mark)}, protocol=2)
    )
    with pytest.raises(EncoderError, match="cannot be loaded"):
        opened(folder)
    assert not mark.exists()


def test_plain_pickled_weights_are_read(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    expected = opened(folder).encode_queries(["red"])
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert opened(folder).encode_queries(["red"]).tobytes() == expected.tobytes()


OPEN = """
import sys
from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError

try:
    open_encoder(EncoderConfig(model=sys.argv[1]))
except EncoderError as error:
    print(error)
"""


def run(code: str, *arguments: str, answers: str = "", **environment: str) -> str:
    made = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env=os.environ | environment,
        input=answers,
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_a_model_is_not_run_even_if_somebody_says_yes(tmp_path: Path, name: str) -> None:
    folder = save_bert(tmp_path / "tiny")
    mark = tmp_path / "mark"
    (folder / "mine.py").write_text(f"open({str(mark)!r}, 'w').close()\n", "utf-8")
    document = json.loads((folder / name).read_text("utf-8"))
    code = {"AutoModel": "mine.Model", "AutoTokenizer": ["mine.Tokenizer", None]}
    write_files(folder, {name: document | {"auto_map": code | {"AutoConfig": "mine.Config"}}})
    assert "code of its own" in run(OPEN, str(folder), answers="y\ny\n")
    assert not mark.exists()


# ---------------------------------------------------------------------------- model ids

CACHED = """
import socket, sys

def refuse(*arguments, **named):
    raise OSError("there is no network")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError

try:
    encoder = open_encoder(EncoderConfig(model="org/tiny-e5"))
    print(encoder.fingerprint, encoder.count_tokens([""]))
except EncoderError as error:
    print(error)
"""


def cached(hub: Path, folder: Path) -> Path:
    """Put a model into a Hugging Face cache, as a download leaves it."""
    model, commit = hub / "models--org--tiny-e5", "0" * 40
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(commit, "ascii")
    return Path(shutil.copytree(folder, model / "snapshots" / commit))


def test_a_model_id_is_read_from_the_local_cache_without_a_network(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny-e5")
    snapshot = cached(tmp_path / "hub", folder)
    expected = f"{opened(folder).fingerprint} [4]\n"
    assert run(CACHED, HF_HUB_CACHE=str(tmp_path / "hub")) == expected
    (snapshot / "model.safetensors").unlink()
    said = run(CACHED, HF_HUB_CACHE=str(tmp_path / "hub"))
    assert "org/tiny-e5 has no weights" in said, "a download that broke off is no model"
    assert "Traceback" not in said


def test_loading_leaves_the_libraries_settings_as_they_were(tmp_path: Path) -> None:
    logging: Any = transformers.utils.logging
    before = (logging.get_verbosity(), logging.is_progress_bar_enabled())
    opened(save_bert(tmp_path / "tiny"))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
