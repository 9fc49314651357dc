"""A query of nothing but stop words or punctuation has no words, and goes on by its meaning."""

from __future__ import annotations

import pytest

from engine.authorization import OPERATOR
from engine.config import Config
from engine.local import open_local
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import fill

pytestmark = pytest.mark.jvm

QUERIES = {
    "en": "the and of to",
    "de": "und der die das",
    "fr": "et le la les de",
    "es": "el la los de y",
    "it": "il lo la e di",
    "pt": "o a os de e",
    "nl": "de het een en",
    "ru": "и в на не",
    "ja": "は が の に を",
    "ko": "은 는 이 가",
    "zh": "的了着",
    "pl": "i w na z",
    "punctuation": "?! ... -- ()",
    "emoji": "🙂🙂",
}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    library = Library(tmp_path_factory.mktemp("stop-words") / "store")
    library.add_base("open")
    fill(library, "open", seed=3, count=40)
    library.reindex(2)
    return small_config(library.root)


@pytest.mark.parametrize("name", QUERIES)
async def test_what_has_no_words_is_ranked_by_meaning(config: Config, name: str) -> None:
    knowledge = open_local(config)
    found = {}
    try:
        for mode in ("hybrid", "lexical", "semantic", "rrf"):
            arguments = {"query": QUERIES[name], "mode": mode, "max_results": 50}
            answer = await knowledge.answer(arguments, OPERATOR)
            found[mode] = [result["knowledge_item_id"] for result in answer["results"]]
    finally:
        await knowledge.close()
    assert len(found["semantic"]) > 10
    without_words = not found["lexical"]
    if without_words:
        assert found["hybrid"] == found["semantic"][: len(found["hybrid"])]
        assert found["rrf"] == found["semantic"]
    assert without_words or name in {"ja", "ko", "pl", "emoji"}
    assert found["hybrid"]
