"""How a model's states become vectors: pooling, prefixes, window, and what else shapes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from engine.config import EncoderConfig, EncoderDtype
from engine.encoders.documents import read_mapping
from engine.encoders.families import family_prefixes
from engine.encoders.modules import Chain
from engine.errors import EncoderError

Pooling = Literal["mean", "cls", "last"]

_POOLINGS: dict[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_POOLING_NAMES: dict[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}

_QUERY_PROMPTS = ("query", "web_search_query", "s2p_query")
_PASSAGE_PROMPTS = ("document", "passage", "corpus")

_SETTINGS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What turns text into a vector, besides weights and tokenizer.

    Attributes:
        pooling: of the last hidden states.
        query_prefix: stands before every query.
        passage_prefix: stands before every passage, title included.
        max_tokens: the window, prefix and special tokens included.
        lower_case: whether texts are lower-cased before the tokenizer sees them.
        dtype: in which the model runs; pooling and what follows is float32.
    """

    pooling: Pooling
    query_prefix: str
    passage_prefix: str
    max_tokens: int
    lower_case: bool = False
    dtype: EncoderDtype = "float32"


def read_recipe(chain: Chain, family: str, config: EncoderConfig, model_window: int) -> Recipe:
    """Gather the recipe of a model folder; what the configuration names wins.

    The files of sentence-transformers are honoured. Where they say nothing, pooling is the last
    token of a causal language model and the mean of any other, and prefixes are the family's.

    Args:
        chain: the folder's modules.
        family: the model's id or path: its name tells the family.
        config: the `encoder` branch of the configuration.
        model_window: most tokens that the model and its tokenizer take.

    Raises:
        EncoderError: a file cannot be read, or asks for something that is not supported here.
    """
    settings = _settings(chain)
    query, passage = _prefixes(chain, family)
    query = query if config.query_prefix is None else config.query_prefix
    passage = passage if config.passage_prefix is None else config.passage_prefix
    limit = settings.get("max_seq_length")
    window = min(config.max_tokens, model_window)
    recipe = Recipe(
        pooling=_pooling(chain) if config.pooling == "auto" else config.pooling,
        query_prefix=query,
        passage_prefix=passage,
        max_tokens=min(window, limit) if isinstance(limit, int) and limit > 0 else window,
        lower_case=settings.get("do_lower_case") is True,
        dtype=config.dtype,
    )
    _require_prompt_pooled(chain, recipe)
    return recipe


def _settings(chain: Chain) -> dict[str, Any]:
    """Return what sentence-transformers keeps beside the model."""
    for name in _SETTINGS:
        settings = read_mapping(chain.transformer / name)
        if settings:
            task = settings.get("transformer_task", "feature-extraction")
            if task != "feature-extraction":
                raise EncoderError(f"{chain.folder} is a model for {task}: it makes no vectors")
            return settings
    return {}


def _pooling(chain: Chain) -> Pooling:
    document = read_mapping(chain.pooling / "config.json")
    named = document.get("pooling_mode")
    asked = {str(name) for name in (named if isinstance(named, list) else [named]) if name}
    if not asked:
        asked = {k for k, on in document.items() if k.startswith("pooling_mode_") and on is True}
    if not asked:
        return "last" if not chain.described and _is_causal(chain) else "mean"
    known = [_POOLINGS.get(name) or _POOLING_NAMES.get(name) for name in sorted(asked)]
    if len(known) != 1 or known[0] is None:
        poolings = ", ".join(get_args(Pooling))
        raise EncoderError(
            f"{chain.folder} asks for {' and '.join(sorted(asked))}; set encoder.pooling to one of "
            f"{poolings}, if the model allows it"
        )
    return known[0]


def _is_causal(chain: Chain) -> bool:
    named = read_mapping(chain.transformer / "config.json").get("architectures")
    return isinstance(named, list) and any(str(name).endswith("ForCausalLM") for name in named)


def _require_prompt_pooled(chain: Chain, recipe: Recipe) -> None:
    """Refuse models that leave their prompt out of the pooling (INSTRUCTOR)."""
    document = read_mapping(chain.pooling / "config.json")
    if document.get("include_prompt", True) is False and (
        recipe.query_prefix or recipe.passage_prefix
    ):
        raise EncoderError(
            f"{chain.folder} leaves its prompt out of the pooling (include_prompt), which is not "
            "supported with a prefix"
        )


def _prefixes(chain: Chain, family: str) -> tuple[str, str]:
    """Return the prefixes that the folder's prompts name, or else the family's.

    sentence-transformers writes empty prompts for models that have none: they say nothing.
    """
    document = read_mapping(chain.folder / "config_sentence_transformers.json")
    found = document.get("prompts")
    named = found if isinstance(found, dict) else {}
    prompts = {name: text for name, text in named.items() if isinstance(text, str)}
    query = next((prompts[name] for name in _QUERY_PROMPTS if name in prompts), "")
    passage = next((prompts[name] for name in _PASSAGE_PROMPTS if name in prompts), "")
    if query or passage:
        return query, passage
    common = prompts.get(str(document.get("default_prompt_name")), "")
    return (common, common) if common else family_prefixes(family)
