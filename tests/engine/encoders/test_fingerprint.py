"""Names of vector spaces: changed by all that shapes a vector, and by nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.encoders.fingerprint import space_fingerprint
from engine.encoders.modules import read_chain
from engine.encoders.recipe import Recipe
from engine.encoders.transformer import TransformerEncoder
from engine.errors import EncoderError
from tests.engine.encoders.tiny_models import (
    HIDDEN,
    modules,
    opened,
    save_bert,
    save_dense,
    write_files,
)

RECIPE = Recipe("mean", "q", "p", 512)
LOWER = {"do_lower_case": True}


def with_dense(folder: Path) -> Path:
    write_files(folder, {"modules.json": modules("Transformer", "Pooling", "Dense")})
    weight = torch.eye(HIDDEN)[:4].contiguous()
    save_dense(folder / "2_Dense", weight, "torch.nn.Identity", pickled=False)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with every kind of file that shapes a vector."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json", "vocab.txt", "merges.txt"):
        (folder / name).write_bytes(name.encode())
    layer = {"in_features": 8, "out_features": 4}
    write_files(
        folder,
        {
            "config.json": {"hidden_act": "gelu"},
            "tokenizer_config.json": {"add_eos_token": False},
            "special_tokens_map.json": {},
            "modules.json": modules("Transformer", "Pooling", "Dense", "Normalize"),
            "2_Dense/config.json": layer,
        },
    )
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"dense")
    return folder


def name_of(folder: Path, recipe: Recipe = RECIPE) -> str:
    return space_fingerprint(read_chain(folder), recipe)


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, pooling="cls"),
        replace(RECIPE, query_prefix=""),
        replace(RECIPE, passage_prefix=""),
        replace(RECIPE, query_prefix="p", passage_prefix="q"),
        replace(RECIPE, max_tokens=256),
        replace(RECIPE, lower_case=True),
        replace(RECIPE, dtype="float16"),
        replace(RECIPE, dtype="bfloat16"),
    ],
    ids=str,
)
def test_every_part_of_the_recipe_changes_the_name(folder: Path, other: Recipe) -> None:
    assert name_of(folder, other) != name_of(folder)


@pytest.mark.parametrize(
    "file",
    [
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
        "merges.txt",
        "config.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "2_Dense/model.safetensors",
    ],
)
def test_every_file_that_shapes_a_vector_changes_the_name(folder: Path, file: str) -> None:
    before = name_of(folder)
    path = folder / file
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    assert name_of(folder) != before
    path.write_bytes(content)
    assert name_of(folder) == before


@pytest.mark.parametrize(
    "change",
    [
        {"2_Dense/config.json": {"in_features": 8, "out_features": 4, "bias": False}},
        {
            "2_Dense/config.json": {
                "in_features": 8,
                "out_features": 4,
                "activation_function": "torch.nn.modules.linear.Identity",
            }
        },
        {"modules.json": modules("Transformer", "Pooling", "Normalize")},
    ],
)
def test_the_layers_change_the_name(folder: Path, change: dict[str, object]) -> None:
    before = name_of(folder)
    write_files(folder, change)
    assert name_of(folder) != before


def test_scaling_before_a_layer_changes_the_name(folder: Path) -> None:
    before = name_of(folder)
    listed = modules("Transformer", "Pooling", "Dense", "Normalize")
    listed.insert(2, {"type": "sentence_transformers.models.Normalize", "path": "N"})
    write_files(folder, {"modules.json": listed})
    assert name_of(folder) != before


@pytest.mark.parametrize("file", ["README.md", "onnx/model.safetensors", "optimizer.safetensors"])
def test_other_files_have_no_part_in_it(folder: Path, file: str) -> None:
    before = name_of(folder)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(b"else")
    assert name_of(folder) == before


def test_place_and_times_of_the_files_have_no_part_in_it(folder: Path, tmp_path: Path) -> None:
    before = name_of(folder)
    moved = Path(shutil.copytree(folder, tmp_path / "another name"))
    for path in moved.rglob("*"):
        os.utime(path, ns=(1, 1))
    assert name_of(moved) == before


def test_weights_swapped_under_the_same_size_and_time_are_noticed(folder: Path) -> None:
    before = name_of(folder)
    weights = folder / "model.safetensors"
    status = weights.stat()
    weights.write_bytes(weights.read_bytes()[::-1])
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert weights.stat().st_mtime_ns == status.st_mtime_ns
    assert name_of(folder) != before


def test_pickled_weights_count_only_where_they_are_loaded(folder: Path) -> None:
    before = name_of(folder)
    (folder / "pytorch_model.bin").write_bytes(b"old")
    assert name_of(folder) == before
    (folder / "model.safetensors").unlink()
    assert name_of(folder) != before


@pytest.mark.parametrize("missing", [["model.safetensors"], ["tokenizer.json", "vocab.txt"]])
def test_a_folder_without_weights_or_vocabulary_is_refused(
    folder: Path, missing: list[str]
) -> None:
    (folder / "merges.txt").unlink()
    for name in missing:
        (folder / name).unlink()
    with pytest.raises(EncoderError, match="no weights"):
        name_of(folder)


def test_device_threads_and_batch_size_have_no_part_in_it(tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "tiny")
    plain = opened(folder, threads=2).fingerprint
    assert opened(folder, threads=1).fingerprint == plain
    assert opened(folder, batch_size=7).fingerprint == plain
    assert opened(folder, device="cpu").fingerprint == plain


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: opened(folder, pooling="cls"),
        lambda folder: opened(folder, query_prefix="red "),
        lambda folder: opened(folder, passage_prefix="red "),
        lambda folder: opened(folder, max_tokens=32),
        lambda folder: opened(folder, dtype="bfloat16"),
        lambda folder: opened(save_bert(folder, hidden_act="relu")),
        lambda folder: opened(save_bert(folder, {"sentence_bert_config.json": LOWER})),
        lambda folder: opened(with_dense(folder)),
    ],
)
def test_what_moves_a_vector_of_a_real_model_changes_its_name(
    tmp_path: Path, change: Callable[[Path], TransformerEncoder]
) -> None:
    encoder = opened(save_bert(tmp_path / "tiny"))
    assert change(tmp_path / "tiny").fingerprint != encoder.fingerprint
