"""Module chains of sentence-transformers folders. No model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.encoders.modules import Chain, Dense, read_chain
from engine.errors import EncoderError
from tests.engine.encoders.tiny_models import modules, write_files

TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"


def dense(inputs: int, outputs: int, **more: Any) -> dict[str, Any]:
    return {"in_features": inputs, "out_features": outputs, "bias": True, **more}


def test_a_folder_without_the_file_is_a_bare_model(tmp_path: Path) -> None:
    expected = Chain(tmp_path, tmp_path, tmp_path / "1_Pooling", (), described=False)
    assert read_chain(tmp_path) == expected


def test_modules_may_lie_in_folders_of_any_name(tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling", "Normalize")
    listed[0]["path"], listed[1]["path"] = "0_Transformer", "P"
    write_files(tmp_path, {"modules.json": listed})
    chain = read_chain(tmp_path)
    assert (chain.transformer, chain.pooling) == (tmp_path / "0_Transformer", tmp_path / "P")


def test_the_module_paths_of_newer_versions_are_known(tmp_path: Path) -> None:
    prefix = "sentence_transformers"
    kinds = [
        (f"{prefix}.base.modules.transformer.Transformer", ""),
        (f"{prefix}.sentence_transformer.modules.pooling.Pooling", "1_Pooling"),
        (f"{prefix}.base.modules.dense.Dense", "2_Dense"),
        (f"{prefix}.sentence_transformer.modules.normalize.Normalize", "3_Normalize"),
    ]
    listed = [{"type": kind, "path": path} for kind, path in kinds]
    layer = dense(8, 4, activation_function=IDENTITY)
    write_files(tmp_path, {"modules.json": listed, "2_Dense/config.json": layer})
    expected = Dense(tmp_path / "2_Dense", 8, 4, bias=True, activation="Identity", normalised=False)
    assert read_chain(tmp_path).dense == (expected,)


@pytest.mark.parametrize(
    ("kinds", "normalised"),
    [
        (("Dense",), [False]),
        (("Normalize", "Dense", "Normalize"), [True]),
        (("Normalize", "Dropout", "Dense"), [True]),
        (("Dense", "Dropout", "Dense"), [False, False]),
        (("Normalize", "Dense", "Dense"), [True, False]),
    ],
)
def test_states_are_scaled_where_the_modules_say_so(
    tmp_path: Path, kinds: tuple[str, ...], normalised: list[bool]
) -> None:
    listed = modules("Transformer", "Pooling", *kinds)
    layers = {f"{m['path']}/config.json": dense(8, 8) for m in listed if "Dense" in m["path"]}
    write_files(tmp_path, {"modules.json": listed, **layers})
    chain = read_chain(tmp_path)
    assert [layer.normalised for layer in chain.dense] == normalised
    assert {layer.activation for layer in chain.dense} == {"Tanh"}, "the default of its library"


@pytest.mark.parametrize(
    "kinds",
    [
        ("Pooling", "Transformer"),
        ("Transformer",),
        ("Transformer", "Normalize"),
        ("Transformer", "Dense", "Pooling"),
        ("StaticEmbedding", "Normalize"),
        ("CLIPModel",),
        ("WordEmbeddings", "Pooling"),
        ("Router",),
        ("Transformer", "WeightedLayerPooling", "Pooling"),
        ("BERT", "Pooling"),
        (),
    ],
)
def test_other_modules_and_orders_are_refused(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    write_files(tmp_path, {"modules.json": modules(*kinds)})
    with pytest.raises(EncoderError, match="only a Transformer, then a Pooling"):
        read_chain(tmp_path)


@pytest.mark.parametrize("kind", ["LayerNorm", "Pooling", "Transformer", "LSTM", "WordWeights"])
def test_other_modules_after_the_pooling_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    write_files(tmp_path, {"modules.json": modules("Transformer", "Pooling", kind)})
    with pytest.raises(EncoderError, match=f"module {kind} after Pooling"):
        read_chain(tmp_path)


@pytest.mark.parametrize(
    "kind", ["custom_st.Transformer", "modeling.Pooling", "sentence_transformers_x.Pooling", ""]
)
def test_a_module_of_the_models_own_code_is_refused(tmp_path: Path, kind: str) -> None:
    listed = modules("Transformer", "Pooling")
    listed[0]["type"] = kind
    write_files(tmp_path, {"modules.json": listed})
    with pytest.raises(EncoderError, match=r"code of its own .* never run"):
        read_chain(tmp_path)


@pytest.mark.parametrize("path", ["../elsewhere", "/etc", "a/../../b"])
def test_a_module_outside_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    listed = modules("Transformer", "Pooling")
    listed[1]["path"] = path
    write_files(tmp_path, {"modules.json": listed})
    with pytest.raises(EncoderError, match="a folder outside"):
        read_chain(tmp_path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "in_features"),
        (dense(8, 8, activation_function="builtins.exec"), "builtins.exec"),
        (dense(8, 8, activation_function="torch.nn.Softmax"), r"torch\.nn\.Softmax"),
        (dense(8, 8, activation_function="os.path.torch.nn.Tanh"), "not supported"),
        (dense(8, 8, use_residual=True), "residual"),
        (dense(8, 8, module_input_name="token_embeddings"), "another input"),
    ],
)
def test_a_dense_module_that_is_not_supported_is_refused(
    tmp_path: Path, document: dict[str, Any], message: str
) -> None:
    listed = modules("Transformer", "Pooling", "Dense")
    write_files(tmp_path, {"modules.json": listed, "2_Dense/config.json": document})
    with pytest.raises(EncoderError, match=message):
        read_chain(tmp_path)


@pytest.mark.parametrize("kind", ["SparseEncoder", "CrossEncoder", "MultiVectorEncoder"])
def test_a_model_that_makes_no_vectors_is_refused(tmp_path: Path, kind: str) -> None:
    write_files(tmp_path, {"config_sentence_transformers.json": {"model_type": kind}})
    with pytest.raises(EncoderError, match=f"is a {kind}"):
        read_chain(tmp_path)


@pytest.mark.parametrize("text", ["[{", "\xff", "[" * 100_000])
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text, "latin-1")
    with pytest.raises(EncoderError, match=r"modules\.json cannot be read"):
        read_chain(tmp_path)


def test_an_entry_that_is_no_object_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {"modules.json": ["Transformer"]})
    with pytest.raises(EncoderError, match="not an object"):
        read_chain(tmp_path)
