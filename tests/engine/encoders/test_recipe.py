"""Recipes of model folders. No model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EncoderConfig
from engine.encoders.modules import read_chain
from engine.encoders.recipe import Recipe, read_recipe
from engine.errors import EncoderError
from tests.engine.encoders.tiny_models import modules, write_files

PROMPTS = "config_sentence_transformers.json"


def recipe_of(folder: Path, family: str = "m", window: int = 512, **settings: Any) -> Recipe:
    config = EncoderConfig(model="x", **settings)
    return read_recipe(read_chain(folder), family, config, window)


def test_a_bare_folder_has_mean_pooling_and_no_prefixes(tmp_path: Path) -> None:
    assert recipe_of(tmp_path, "org/some-model", 384) == Recipe("mean", "", "", 384)


@pytest.mark.parametrize(
    ("document", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode": ["lasttoken"]}, "last"),
        ({"pooling_mode": "mean", "pooling_mode_cls_token": True}, "mean"),
        ({}, "mean"),
    ],
)
def test_pooling_follows_sentence_transformers(
    tmp_path: Path, document: dict[str, Any], pooling: str
) -> None:
    write_files(tmp_path, {"1_Pooling/config.json": document})
    assert recipe_of(tmp_path).pooling == pooling


@pytest.mark.parametrize("described", [False, True])
def test_a_causal_model_without_a_description_pools_its_last_token(
    tmp_path: Path, described: bool
) -> None:
    write_files(tmp_path, {"config.json": {"architectures": ["MistralForCausalLM"]}})
    if described:
        write_files(tmp_path, {"modules.json": modules("Transformer", "Pooling")})
    assert recipe_of(tmp_path).pooling == ("mean" if described else "last")


def test_the_pooling_module_may_have_another_folder(tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling")
    listed[1]["path"] = "P"
    pooling = {"pooling_mode_cls_token": True}
    write_files(tmp_path, {"modules.json": listed, "P/config.json": pooling})
    assert recipe_of(tmp_path).pooling == "cls"


@pytest.mark.parametrize(
    "document",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode": "weightedmean"},
        {"pooling_mode": ["cls", "mean"]},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
    ],
)
def test_a_pooling_that_is_not_supported_is_refused(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    write_files(tmp_path, {"1_Pooling/config.json": document})
    with pytest.raises(EncoderError, match=r"asks for .*set encoder\.pooling"):
        recipe_of(tmp_path)
    assert recipe_of(tmp_path, pooling="cls").pooling == "cls", "whoever names one, knows"


@pytest.mark.parametrize(
    ("document", "prefixes"),
    [
        ({"prompts": {"query": "Q: ", "document": "D: "}}, ("Q: ", "D: ")),
        ({"prompts": {"query": "Q: "}}, ("Q: ", "")),
        ({"prompts": {"passage": "P: ", "corpus": "C: "}}, ("", "P: ")),
        ({"prompts": {"query": "Q: ", "document": "", "passage": "P: "}}, ("Q: ", "")),
        ({"prompts": {"query": "", "document": ""}}, ("query: ", "passage: ")),
        ({"prompts": {}, "default_prompt_name": None}, ("query: ", "passage: ")),
        ({"prompts": {"a": "A: ", "b": "B: "}, "default_prompt_name": "a"}, ("A: ", "A: ")),
        ({"prompts": {"query": "Q: "}, "default_prompt_name": "query"}, ("Q: ", "")),
        ({"prompts": {"query": 7}}, ("query: ", "passage: ")),
        ({"prompts": ["query"]}, ("query: ", "passage: ")),
        ({}, ("query: ", "passage: ")),
    ],
)
def test_prompts_of_the_folder_win_over_its_name(
    tmp_path: Path, document: dict[str, Any], prefixes: tuple[str, str]
) -> None:
    write_files(tmp_path, {PROMPTS: document})
    recipe = recipe_of(tmp_path, "e5")
    assert (recipe.query_prefix, recipe.passage_prefix) == prefixes


def test_the_configuration_wins_over_all(tmp_path: Path) -> None:
    write_files(tmp_path, {PROMPTS: {"prompts": {"query": "Q: ", "document": "D: "}}})
    recipe = recipe_of(tmp_path, "e5", query_prefix="", passage_prefix="p ", pooling="last")
    assert recipe == Recipe("last", "", "p ", 512)


def test_a_prompt_that_is_not_pooled_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"1_Pooling/config.json": {"include_prompt": False}})
    assert recipe_of(tmp_path).pooling == "mean", "without a prefix there is nothing to leave out"
    with pytest.raises(EncoderError, match="include_prompt"):
        recipe_of(tmp_path, query_prefix="Represent: ")


def test_the_window_is_the_least_of_all(tmp_path: Path) -> None:
    write_files(tmp_path, {"sentence_bert_config.json": {"max_seq_length": 256}})
    assert recipe_of(tmp_path).max_tokens == 256
    assert recipe_of(tmp_path, window=100).max_tokens == 100
    assert recipe_of(tmp_path, max_tokens=64).max_tokens == 64


def test_settings_lie_beside_the_transformer_and_may_have_an_old_name(tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling")
    listed[0]["path"] = "0_Transformer"
    settings = {"max_seq_length": 128, "do_lower_case": True}
    name = "0_Transformer/sentence_distilbert_config.json"
    write_files(tmp_path, {"modules.json": listed, name: settings})
    assert recipe_of(tmp_path) == Recipe("mean", "", "", 128, lower_case=True)


def test_a_model_for_another_task_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"sentence_bert_config.json": {"transformer_task": "fill-mask"}})
    with pytest.raises(EncoderError, match="a model for fill-mask"):
        recipe_of(tmp_path)
