"""Recipes of model folders, and the names of vector spaces. No model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.config import EncoderConfig
from engine.encoders.recipe import Recipe, read_recipe, space_fingerprint
from engine.errors import EncoderError

PLAIN = EncoderConfig(model="x")


def write(folder: Path, name: str, document: Any) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document), "utf-8")


def test_a_bare_folder_has_mean_pooling_and_no_prefixes(tmp_path: Path) -> None:
    assert read_recipe(tmp_path, "org/some-model", PLAIN, 384) == Recipe("mean", "", "", 384)


@pytest.mark.parametrize(
    "family", ["intfloat/multilingual-e5-small", "e5-base-v2", "/models/E5_large", "org/my-e5"]
)
def test_e5_models_get_their_prefixes(tmp_path: Path, family: str) -> None:
    recipe = read_recipe(tmp_path, family, PLAIN, 512)
    assert (recipe.query_prefix, recipe.passage_prefix) == ("query: ", "passage: ")


@pytest.mark.parametrize(
    "family", ["intfloat/e5-mistral-7b-instruct", "gte5-small", "e5/other", "bge-m3"]
)
def test_other_models_get_none(tmp_path: Path, family: str) -> None:
    assert read_recipe(tmp_path, family, PLAIN, 512).query_prefix == ""


@pytest.mark.parametrize(
    ("document", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "cls"),
        ({}, "mean"),
    ],
)
def test_pooling_follows_sentence_transformers(
    tmp_path: Path, document: dict[str, Any], pooling: str
) -> None:
    write(tmp_path, "1_Pooling/config.json", document)
    assert read_recipe(tmp_path, "m", PLAIN, 512).pooling == pooling


def test_the_pooling_module_may_have_another_folder(tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "2_P"}]
    write(tmp_path, "modules.json", modules)
    write(tmp_path, "2_P/config.json", {"pooling_mode_cls_token": True})
    assert read_recipe(tmp_path, "m", PLAIN, 512).pooling == "cls"


def test_prompts_win_over_the_name_and_the_configuration_over_both(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "Q: ", "document": "D: "}}
    write(tmp_path, "config_sentence_transformers.json", prompts)
    recipe = read_recipe(tmp_path, "e5", PLAIN, 512)
    assert (recipe.query_prefix, recipe.passage_prefix) == ("Q: ", "D: ")
    config = EncoderConfig(model="x", query_prefix="", passage_prefix="p ", pooling="last")
    assert read_recipe(tmp_path, "e5", config, 512) == Recipe("last", "", "p ", 512)


def test_the_window_is_the_least_of_all(tmp_path: Path) -> None:
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 256})
    assert read_recipe(tmp_path, "m", PLAIN, 512).max_tokens == 256
    assert read_recipe(tmp_path, "m", PLAIN, 100).max_tokens == 100
    assert read_recipe(tmp_path, "m", EncoderConfig(model="x", max_tokens=64), 512).max_tokens == 64


def test_a_pooling_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode_max_tokens": True})
    with pytest.raises(EncoderError, match=r"pooling_mode_max_tokens.*set encoder\.pooling"):
        read_recipe(tmp_path, "m", PLAIN, 512)


def test_a_module_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    modules = [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]
    write(tmp_path, "modules.json", modules)
    with pytest.raises(EncoderError, match="module Dense"):
        read_recipe(tmp_path, "m", PLAIN, 512)


def test_a_broken_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[{", "utf-8")
    with pytest.raises(EncoderError, match=r"modules\.json cannot be read"):
        read_recipe(tmp_path, "m", PLAIN, 512)


def test_whatever_shapes_a_vector_changes_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights, tokenizer = tmp_path / "model.safetensors", tmp_path / "tokenizer.json"
    weights.write_bytes(b"weights")
    tokenizer.write_bytes(b"tokens")
    recipes = [
        Recipe("mean", "q", "p", 512),
        Recipe("cls", "q", "p", 512),
        Recipe("mean", "", "p", 512),
        Recipe("mean", "q", "", 512),
        Recipe("mean", "q", "p", 256),
    ]
    made = [space_fingerprint(tmp_path, recipe) for recipe in recipes]
    assert made[0] == space_fingerprint(tmp_path, recipes[0])
    weights.write_bytes(b"other weights")
    made.append(space_fingerprint(tmp_path, recipes[0]))
    weights.write_bytes(b"weights")
    tokenizer.write_bytes(b"other tokens")
    made.append(space_fingerprint(tmp_path, recipes[0]))
    assert len(set(made)) == len(made)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no weights"):
        space_fingerprint(tmp_path, Recipe("mean", "", "", 512))
