"""Well-known model families, by the files that their repositories on the Hugging Face hub hold.

The documents are those files; only sizes and versions that nothing reads are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.config import EncoderConfig
from engine.encoders.folder import require_plain
from engine.encoders.modules import read_chain
from engine.encoders.recipe import Recipe, read_recipe
from engine.errors import EncoderError
from tests.engine.encoders.tiny_models import modules, write_files

PROMPTS = "config_sentence_transformers.json"
WEB_SEARCH = "Instruct: Given a web search query, retrieve relevant passages that answer the query"
REPRESENT = "Represent this sentence for searching relevant passages: "


def pooling(mode: str, dimension: int) -> dict[str, Any]:
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    flags = {f"pooling_mode_{name}": name == mode for name in modes}
    return {"word_embedding_dimension": dimension, **flags, "include_prompt": True}


def dense(inputs: int, outputs: int, activation: str, *, bias: bool) -> dict[str, Any]:
    return {
        "in_features": inputs,
        "out_features": outputs,
        "bias": bias,
        "activation_function": f"torch.nn.modules.{activation}",
    }


def prompts(**named: str) -> dict[str, Any]:
    return {"prompts": named, "default_prompt_name": None}


def limit(tokens: int, *, lower: bool = False) -> dict[str, Any]:
    return {"max_seq_length": tokens, "do_lower_case": lower}


PLAIN = modules("Transformer", "Pooling", "Normalize")
WITH_DENSE = modules("Transformer", "Pooling", "Dense", "Normalize")


@dataclass(frozen=True)
class Family:
    """A model id, its files, and what must be read from them."""

    model: str
    files: dict[str, Any]
    recipe: Recipe
    dense: list[tuple[int, int, bool, str]] = field(default_factory=list)


FAMILIES = [
    Family(
        "sentence-transformers/all-MiniLM-L6-v2",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("mean_tokens", 384),
            "sentence_bert_config.json": limit(256),
        },
        Recipe("mean", "", "", 256),
    ),
    Family(
        "intfloat/multilingual-e5-large",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("mean_tokens", 1024),
            "sentence_bert_config.json": limit(512),
        },
        Recipe("mean", "query: ", "passage: ", 512),
    ),
    Family(
        "intfloat/multilingual-e5-large-instruct",
        {"modules.json": PLAIN, "1_Pooling/config.json": pooling("mean_tokens", 1024)},
        Recipe("mean", f"{WEB_SEARCH}\nQuery: ", "", 512),
    ),
    Family(
        "intfloat/e5-mistral-7b-instruct",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("lasttoken", 4096),
            PROMPTS: prompts(
                web_search_query=f"{WEB_SEARCH}\nQuery: ",
                sts_query="Instruct: Retrieve semantically similar text.\nQuery: ",
                bitext_query="Instruct: Retrieve parallel sentences.\nQuery: ",
            ),
            "sentence_bert_config.json": limit(4096),
        },
        Recipe("last", f"{WEB_SEARCH}\nQuery: ", "", 4096),
    ),
    Family(
        "BAAI/bge-small-en-v1.5",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("cls_token", 384),
            PROMPTS: {"__version__": {"sentence_transformers": "2.2.2"}},
            "sentence_bert_config.json": limit(512, lower=True),
        },
        Recipe("cls", REPRESENT, "", 512, lower_case=True),
    ),
    Family(
        "BAAI/bge-large-zh-v1.5",
        {"modules.json": PLAIN, "1_Pooling/config.json": pooling("cls_token", 1024)},
        Recipe("cls", "为这个句子生成表示以用于检索相关文章：", "", 512),
    ),
    Family(
        "BAAI/bge-m3",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("cls_token", 1024),
            "sentence_bert_config.json": limit(8192),
        },
        Recipe("cls", "", "", 8192),
    ),
    Family(
        "BAAI/bge-multilingual-gemma2",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("lasttoken", 3584),
            PROMPTS: prompts(
                web_search_query="<instruct>Given a web search query, retrieve relevant passages "
                "that answer the query.\n<query>"
            ),
        },
        Recipe(
            "last",
            "<instruct>Given a web search query, retrieve relevant passages that answer the query."
            "\n<query>",
            "",
            512,
        ),
    ),
    Family(
        "thenlper/gte-base",
        {"modules.json": PLAIN, "1_Pooling/config.json": pooling("mean_tokens", 768)},
        Recipe("mean", "", "", 512),
    ),
    Family(
        "nomic-ai/modernbert-embed-base",
        {"modules.json": PLAIN, "1_Pooling/config.json": pooling("mean_tokens", 768)},
        Recipe("mean", "search_query: ", "search_document: ", 512),
    ),
    Family(
        "Qwen/Qwen3-Embedding-0.6B",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("lasttoken", 1024),
            PROMPTS: prompts(query=f"{WEB_SEARCH}\nQuery:", document=""),
        },
        Recipe("last", f"{WEB_SEARCH}\nQuery:", "", 512),
    ),
    Family(
        "google/embeddinggemma-300m",
        {
            "modules.json": modules("Transformer", "Pooling", "Dense", "Dense", "Normalize"),
            "1_Pooling/config.json": pooling("mean_tokens", 768),
            "2_Dense/config.json": dense(768, 3072, "linear.Identity", bias=False),
            "3_Dense/config.json": dense(3072, 768, "linear.Identity", bias=False),
            PROMPTS: prompts(
                query="task: search result | query: ",
                document="title: none | text: ",
                Clustering="task: clustering | query: ",
            ),
            "sentence_bert_config.json": limit(2048),
        },
        Recipe("mean", "task: search result | query: ", "title: none | text: ", 2048),
        [(768, 3072, False, "Identity"), (3072, 768, False, "Identity")],
    ),
    Family(
        "Snowflake/snowflake-arctic-embed-l",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("cls_token", 1024),
            PROMPTS: prompts(query=REPRESENT),
            "sentence_bert_config.json": limit(512),
        },
        Recipe("cls", REPRESENT, "", 512),
    ),
    Family(
        "Snowflake/snowflake-arctic-embed-l-v2.0",
        {
            "modules.json": PLAIN,
            "1_Pooling/config.json": pooling("cls_token", 1024),
            PROMPTS: prompts(query="query: "),
        },
        Recipe("cls", "query: ", "", 512),
    ),
    Family(
        "sentence-transformers/LaBSE",
        {
            "modules.json": WITH_DENSE,
            "1_Pooling/config.json": pooling("cls_token", 768),
            "2_Dense/config.json": dense(768, 768, "activation.Tanh", bias=True),
            "sentence_bert_config.json": limit(256),
        },
        Recipe("cls", "", "", 256),
        [(768, 768, True, "Tanh")],
    ),
    Family(
        "sentence-transformers/distiluse-base-multilingual-cased-v1",
        {
            "modules.json": modules("Transformer", "Pooling", "Dense"),
            "1_Pooling/config.json": pooling("mean_tokens", 768),
            "2_Dense/config.json": dense(768, 512, "activation.Tanh", bias=True),
            "sentence_bert_config.json": limit(128),
        },
        Recipe("mean", "", "", 128),
        [(768, 512, True, "Tanh")],
    ),
    Family(
        "sentence-transformers/gtr-t5-xl",
        {
            "modules.json": WITH_DENSE,
            "1_Pooling/config.json": pooling("mean_tokens", 768),
            "2_Dense/config.json": dense(1024, 768, "linear.Identity", bias=False),
            "sentence_bert_config.json": limit(512),
        },
        Recipe("mean", "", "", 512),
        [(1024, 768, False, "Identity")],
    ),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model)
def test_a_well_known_family_is_read_as_its_authors_meant(tmp_path: Path, family: Family) -> None:
    write_files(tmp_path, family.files)
    chain = read_chain(tmp_path)
    recipe = read_recipe(chain, family.model, EncoderConfig(max_tokens=32768), 32768)
    window = family.recipe.max_tokens
    if "sentence_bert_config.json" not in family.files:
        assert recipe.max_tokens == 32768
        recipe = read_recipe(chain, family.model, EncoderConfig(max_tokens=window), 32768)
    assert recipe == family.recipe
    layers = [(layer.inputs, layer.outputs, layer.bias, layer.activation) for layer in chain.dense]
    assert layers == family.dense


@pytest.mark.parametrize(
    ("model", "prefixes"),
    [
        ("/models/E5_large", ("query: ", "passage: ")),
        ("org/my-e5", ("query: ", "passage: ")),
        ("e5/other", ("", "")),
        ("gte5-small", ("", "")),
        ("snowflake-arctic-embed-m-v2.0", ("query: ", "")),
        ("snowflake-arctic-embed-m-v1.5", (REPRESENT, "")),
        ("models/nomic-embed-text-v1.5", ("search_query: ", "search_document: ")),
        ("Qwen3-Embedding-4B", (f"{WEB_SEARCH}\nQuery:", "")),
        ("embeddinggemma-300m", ("task: search result | query: ", "title: none | text: ")),
        ("bge-reranker", ("", "")),
    ],
)
def test_a_folder_without_prompts_is_known_by_its_name(
    tmp_path: Path, model: str, prefixes: tuple[str, str]
) -> None:
    recipe = read_recipe(read_chain(tmp_path), model, EncoderConfig(), 512)
    assert (recipe.query_prefix, recipe.passage_prefix) == prefixes


NOMIC = "nomic-ai/nomic-bert-2048--"


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (  # nomic-ai/nomic-embed-text-v1.5
            "config.json",
            {
                "model_type": "nomic_bert",
                "auto_map": {
                    "AutoConfig": f"{NOMIC}configuration_hf_nomic_bert.NomicBertConfig",
                    "AutoModel": f"{NOMIC}modeling_hf_nomic_bert.NomicBertModel",
                },
            },
        ),
        (  # Alibaba-NLP/gte-Qwen2: transformers knows Qwen2, but would run it causally
            "config.json",
            {
                "model_type": "qwen2",
                "auto_map": {"AutoModel": "modeling_qwen.Qwen2Model"},
            },
        ),
        (
            "tokenizer_config.json",
            {"auto_map": {"AutoTokenizer": ["tokenization_qwen.Qwen2Tokenizer", None]}},
        ),
    ],
)
def test_families_that_need_code_of_their_own_are_refused(
    tmp_path: Path, name: str, document: dict[str, Any]
) -> None:
    write_files(tmp_path, {name: document})
    with pytest.raises(EncoderError, match=rf"org/m asks for code .*{name}.* never run"):
        require_plain(tmp_path, "org/m")


def test_jina_v3_is_refused_for_its_module(tmp_path: Path) -> None:
    listed = modules("Transformer", "Pooling", "Normalize")
    listed[0] |= {"type": "custom_st.Transformer", "kwargs": ["task"]}
    write_files(tmp_path, {"modules.json": listed})
    with pytest.raises(EncoderError, match=r"custom_st\.Transformer"):
        read_chain(tmp_path)


def test_code_for_other_tasks_is_no_obstacle(tmp_path: Path) -> None:
    code = {"auto_map": {"AutoModelForSequenceClassification": "modeling.Classifier"}}
    write_files(tmp_path, {"config.json": code})
    require_plain(tmp_path, "org/m")


def test_an_adapter_is_refused_by_name(tmp_path: Path) -> None:
    write_files(tmp_path, {"adapter_config.json": {"peft_type": "LORA"}})
    with pytest.raises(EncoderError, match="org/m is an adapter"):
        require_plain(tmp_path, "org/m")
