"""An exact rare identifier beats vague similarity, and languages meet in one store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.authorization import OPERATOR
from engine.config import EncoderConfig
from engine.contract import SearchRequest
from engine.encoders.opening import open_encoder
from engine.local import open_local
from engine.search.answering import Knowledge
from tests.engine.search.building import Library, small_config

pytestmark = pytest.mark.jvm

VAGUE = [
    ("vague-1", "Connections", "Connection errors and resets of a connection are often transient."),
    ("vague-2", "Browsers", "A browser shows an error when the connection to a server fails."),
    ("vague-3", "Proxies", "Proxies may reset the connection when an error occurs upstream."),
    ("vague-4", "Networks", "Network errors: resets, refusals and time-outs of connections."),
]
EXACT = ("exact", "Notes", "After the upgrade three machines in the lab printed ERR_CONN_RESET.")
QUERIES = ("ERR_CONN_RESET", "what does ERR_CONN_RESET mean", "err_conn_reset error")
OTHERS = (
    ("de", "schiff", "Verkehr", "Die Donaudampfschifffahrt begann im neunzehnten Jahrhundert."),
    ("fr", "ecole", "Horaires", "L'école de l'île ouvre à l'automne."),
    ("zh", "katze", "宠物", "我的小猫很可爱。"),
    ("ja", "tempel", "旅行", "京都の寺を訪れました。"),
    ("ru", "buch", "Новости", "Новые книги поступили в библиотеку."),
)


def _fill(library: Library) -> None:
    library.add_base("kb")
    library.add("kb", [*VAGUE, EXACT])
    for language, *item in OTHERS:
        name, title, text = item
        library.add("kb", [(name, title, text)], language=language)
    library.reindex(2)


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Knowledge]:
    library = Library(tmp_path_factory.mktemp("languages") / "store")
    _fill(library)
    opened = open_local(small_config(library.root))
    yield opened
    asyncio.run(opened.close())


async def _best(knowledge: Knowledge, query: str, mode: str) -> str:
    ranking = await knowledge.rank(SearchRequest(query, mode=mode, alpha=0.5), OPERATOR)
    return str(ranking.results[0].item)


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize("query", QUERIES)
async def test_an_exact_identifier_comes_first(knowledge: Knowledge, query: str, mode: str) -> None:
    assert await _best(knowledge, query, mode) == "exact"


@pytest.mark.parametrize(
    ("query", "item"),
    [
        ("Schiff", "schiff"),
        ("ECOLE", "ecole"),
        ("猫", "katze"),
        ("京都", "tempel"),
        ("книга", "buch"),
    ],
)
async def test_a_query_is_asked_in_every_language_of_the_store(
    knowledge: Knowledge, query: str, item: str
) -> None:
    assert await _best(knowledge, query, "lexical") == item


@pytest.mark.slow
async def test_with_the_packaged_model_an_exact_identifier_comes_first_too(tmp_path: Path) -> None:
    encoder = open_encoder(EncoderConfig())
    library = Library(
        tmp_path / "store",
        encoder,  # type: ignore[arg-type]  # the library uses what every encoder has
    )
    _fill(library)
    configured = small_config(library.root).model_copy(update={"encoder": EncoderConfig()})
    knowledge = open_local(configured, encoder)
    try:
        for query in QUERIES:
            assert await _best(knowledge, query, "hybrid") == "exact"
    finally:
        await knowledge.close()
