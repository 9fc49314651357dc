"""The engine in one process: empty stores, foreign roots, the wrong encoder, closing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine.authorization import OPERATOR
from engine.encoders.hashing import HashingEncoder
from engine.errors import EncoderError, ResourceUnavailableError, StoreError
from engine.index.jvm import jnius, start_jvm
from engine.local import open_local
from tests.engine.search.building import Library, small_config


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    library = Library(tmp_path_factory.mktemp("local") / "store")
    library.add_base("kb")
    library.add("kb", [("a", "Title", "some text about a server")], revision="r1")
    library.reindex()
    return library


async def test_a_store_without_a_generation_answers_with_nothing(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    library.add_base("kb")
    library.add("kb", [("a", "Title", "published, not indexed yet")], revision="r1")
    knowledge = open_local(small_config(library.root))
    for mode in ("hybrid", "lexical", "semantic", "rrf"):
        answer = await knowledge.answer({"query": "published", "mode": mode}, OPERATOR)
        assert answer == {"type": "knowledge_search", "results": []}
    with pytest.raises(ResourceUnavailableError):
        await knowledge.answer({"query": "x", "knowledge_base_id": "none"}, OPERATOR)
    with pytest.raises(ResourceUnavailableError):
        await knowledge.answer({"knowledge_item_id": "a"}, OPERATOR)
    assert await knowledge.ready()
    assert knowledge.generation() is None
    await knowledge.close()


async def test_an_empty_generation_answers_with_nothing(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    library.add_base("kb")
    library.reindex(shards=3)
    knowledge = open_local(small_config(library.root))
    for mode in ("hybrid", "lexical", "semantic", "rrf"):
        answer = await knowledge.answer({"query": "server", "mode": mode}, OPERATOR)
        assert answer == {"type": "knowledge_search", "results": []}
    await knowledge.close()


async def test_one_passage_is_found_in_every_mode(library: Library) -> None:
    knowledge = open_local(small_config(library.root))
    for mode in ("hybrid", "lexical", "semantic", "rrf"):
        answer = await knowledge.answer({"query": "server", "mode": mode}, OPERATOR)
        (result,) = answer["results"]
        assert result["knowledge_item_id"] == "a"
    rrf = await knowledge.answer({"query": "server", "mode": "rrf"}, OPERATOR)
    assert rrf["results"][0]["scores"]["score"] == pytest.approx(2 / 61, abs=1e-6)
    await knowledge.close()


def test_a_root_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        open_local(small_config(tmp_path / "none"))


def test_another_encoder_than_the_generations_is_refused(library: Library) -> None:
    with pytest.raises(EncoderError, match="generation 1 was made by encoder"):
        open_local(small_config(library.root), HashingEncoder(96))


async def test_closing_ends_every_thread(library: Library) -> None:
    before = set(threading.enumerate())
    knowledge = open_local(small_config(library.root))
    await knowledge.answer({"query": "server"}, OPERATOR)
    await knowledge.close()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert all(name.startswith("asyncio_") for name in left), left


async def test_closing_leaves_no_thread_attached_to_the_jvm(library: Library) -> None:
    start_jvm(512)
    thread = jnius().autoclass("java.lang.Thread")
    before = thread.activeCount()
    knowledge = open_local(small_config(library.root))
    await knowledge.answer({"query": "server"}, OPERATOR)
    assert thread.activeCount() > before
    await knowledge.close()
    assert thread.activeCount() == before


async def test_an_encoder_is_opened_only_for_a_search_that_needs_it(library: Library) -> None:
    config = small_config(library.root, encoder={"model": "hashing", "dimension": 96})
    knowledge = open_local(config)
    lexical = await knowledge.answer({"query": "server", "mode": "lexical"}, OPERATOR)
    assert [result["knowledge_item_id"] for result in lexical["results"]] == ["a"]
    window = await knowledge.answer({"knowledge_item_id": "a"}, OPERATOR)
    assert window["content"] == "some text about a server"
    for mode in ("hybrid", "semantic", "rrf"):
        with pytest.raises(EncoderError, match="generation 1 was made by encoder"):
            await knowledge.answer({"query": "server", "mode": mode}, OPERATOR)
    await knowledge.close()


async def test_reading_alone_opens_no_segment_and_gives_the_same_window(library: Library) -> None:
    everything = open_local(small_config(library.root))
    texts = open_local(small_config(library.root), searches=False)
    for question in ({"knowledge_item_id": "a"}, {"knowledge_item_id": "a", "offset": 5}):
        assert await texts.answer(question, OPERATOR) == await everything.answer(question, OPERATOR)
    await everything.close()
    await texts.close()


async def test_a_base_that_is_not_there_is_said_before_a_broken_encoder(library: Library) -> None:
    config = small_config(library.root, encoder={"model": "hashing", "dimension": 96})
    knowledge = open_local(config)
    with pytest.raises(ResourceUnavailableError):
        await knowledge.answer({"query": "server", "knowledge_base_id": "none"}, OPERATOR)
    await knowledge.close()
