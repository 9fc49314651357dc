"""Verifying a running server over HTTP, and an index that is searched approximately."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import yaml

from engine.authorization import ANONYMOUS, OPERATOR, READ_SCOPE, Principal
from engine.contract import MODES, SearchRequest, SearchResult
from engine.errors import OperatorError
from engine.ids import BaseId, ItemId, RevisionId
from engine.index.vector import VectorSettings
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.search.ranking import Ranking
from jobs.verify_served import ServedThere
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app
from tests.engine.search.building import Library
from tests.engine.search.texts import fill
from tests.jobs.ranked import config_of, verified, verified_there

QUERIES = ("server", "Anmeldung Fehler", "数据库备份恢复")
ALICE = Principal("alice", frozenset({"blue"}), frozenset({READ_SCOPE}))


def _library(root: Path, vectors: VectorSettings | None = None) -> Library:
    library = Library(root, vector_search=vectors or VectorSettings())
    library.add_base("open")
    library.add_base("team", scope="team", owner="carol", team="blue")
    fill(library, "open", seed=3, count=40)
    fill(library, "team", seed=5, count=20, prefix="team")
    library.reindex(2)
    return library


@contextmanager
def _serving(library: Library) -> Iterator[tuple[str, str]]:
    """Serve a store on a socket in a thread; yield its address and a token of alice's."""
    token, entry = make_token("alice", teams=["blue"])
    config = config_of(library)
    knowledge = open_local(config)
    tokens = library.root.parent / "tokens.yaml"
    tokens.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    app = build_app(knowledge, config, StaticTokens(tokens))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", token
        server.should_exit = True
        thread.join()
    asyncio.run(knowledge.close())


def test_a_server_is_verified_as_the_holder_of_a_token_reads_it(tmp_path: Path) -> None:
    library = _library(tmp_path / "store")
    with _serving(library) as (url, token):
        report = verified_there(library, tmp_path, QUERIES, ALICE, (url, token))
        assert report.findings == []
        assert (report.agreed, report.served) == (True, url)
        assert 0.0 < report.largest <= 1e-6
        stranger = verified_there(library, tmp_path, QUERIES, ANONYMOUS, (url, token))
        assert not stranger.agreed  # the reference reads less than the holder of the token
        with pytest.raises(OperatorError, match="401"):
            verified_there(library, tmp_path, QUERIES, ALICE, (url, "another token"))


def test_a_server_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OperatorError, match="is not an address"):
        ServedThere(f"ftp://127.0.0.1:{port}", None)
    served = ServedThere(f"http://127.0.0.1:{port}/", None)
    assert served.name == f"http://127.0.0.1:{port}"


Change = Callable[[list[SearchResult]], list[SearchResult]]


@pytest.fixture(scope="module")
def approximate(tmp_path_factory: pytest.TempPathFactory) -> Library:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("vector_builder", "vector_codes"):  # so few passages would get no codes
            patch.setattr(f"engine.index.{module}.TRAINING_ROWS", 32)
        root = tmp_path_factory.mktemp("approximate") / "store"
        return _library(root, VectorSettings(search="approximate"))


def _uncertified(patch: pytest.MonkeyPatch, change: Change = lambda results: results) -> None:
    """Serve uncertified what is asked with one result more, changed, and cut.

    So few passages are searched exactly after all, and certified; more would not be.
    """
    original = Knowledge.rank

    async def rank(self: Knowledge, request: SearchRequest, principal: Principal) -> Ranking:
        more = replace(request, max_results=request.max_results + 1)
        ranking = await original(self, more, principal)
        if request.mode == "lexical":
            return replace(ranking, results=ranking.results[: request.max_results])
        changed = change(list(ranking.results))[: request.max_results]
        return replace(ranking, results=tuple(changed), certified=False)

    patch.setattr(Knowledge, "rank", rank)


def test_an_uncertified_answer_is_told_by_its_recall(
    approximate: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _uncertified(monkeypatch)
    report = verified(approximate, tmp_path, QUERIES, max_results=10)
    document = report.document()
    assert report.findings == []
    assert (document["vector_search"], report.agreed) == ("approximate", True)
    assert document["modes"]["lexical"]["agree"] == len(QUERIES)
    assert report.count("uncertified") == len(QUERIES) * (len(MODES) - 1)
    assert document["modes"]["semantic"]["uncertified_same"] == len(QUERIES)
    assert document["recall_at_rank_window"] == {"mean": 1.0, "least": 1.0}


def _overlook(results: list[SearchResult]) -> list[SearchResult]:
    """Leave out the best, as a vector search does that has not seen it."""
    return [_scored(r, semantic_rank=(r.scores.semantic_rank or 2) - 1) for r in results[1:]]


def _scored(result: SearchResult, **changed: Any) -> SearchResult:
    return replace(result, scores=replace(result.scores, **changed))


def test_an_item_that_an_approximate_search_overlooked_is_excused(
    approximate: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _uncertified(monkeypatch, _overlook)
    report = verified(approximate, tmp_path, QUERIES, ["semantic"], max_results=10)
    assert report.findings == []
    assert (report.count("uncertified"), report.agreed) == (len(QUERIES), True)
    assert report.document()["modes"]["semantic"]["uncertified_same"] == 0


def _first(**changed: Any) -> Change:
    return lambda results: [replace(results[0], **changed), *results[1:]]


UNTRUE: dict[str, Change] = {
    "another revision is live": _first(revision=RevisionId("another")),
    "the item belongs to another base": _first(base=BaseId("another")),
    "the item is not in the generation": _first(item=ItemId("another")),
    "the excerpt is not a slice of a passage of the item": _first(excerpt="something else"),
    "semantic is": lambda results: [_scored(results[0], semantic=0.123), *results[1:]],
    "lexical is": lambda results: [_scored(results[0], lexical=77.0), *results[1:]],
    "score is": lambda results: [_scored(results[0], score=9.0), *results[1:]],
    "lexical_rank is": lambda results: [_scored(results[0], lexical_rank=40), *results[1:]],
    "semantic_rank is": lambda results: [_scored(results[0], semantic_rank=59), *results[1:]],
    "the item is there twice": lambda results: [results[0], *results],
    "it does not come before": lambda results: [results[1], results[0], *results[2:]],
    "alone put it before the last result": lambda results: results[1:],
    "results where 10 are eligible": lambda results: results[2:],
}
"""What no approximation explains, by what is said of it."""


@pytest.mark.parametrize("reason", UNTRUE)
def test_an_uncertified_answer_is_still_refused_when_it_is_untrue(
    approximate: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    _uncertified(monkeypatch, UNTRUE[reason])
    report = verified(approximate, tmp_path, QUERIES, ["hybrid"], max_results=10)
    assert not report.agreed
    assert any(reason in found.reason for _, _, found in report.findings)


def test_an_uncertified_answer_may_not_show_what_the_caller_cannot_read(
    approximate: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Knowledge.rank

    async def as_operator(self: Knowledge, request: SearchRequest, _: Principal) -> Ranking:
        return replace(await original(self, request, OPERATOR), certified=False)

    monkeypatch.setattr(Knowledge, "rank", as_operator)
    stranger = Principal("mallory", frozenset(), frozenset({READ_SCOPE}))
    report = verified(approximate, tmp_path, QUERIES, ["semantic"], stranger, max_results=50)
    assert any("must not be seen" in found.reason for _, _, found in report.findings)


def test_an_approximate_answer_is_still_compared_where_it_is_certified(tmp_path: Path) -> None:
    library = _library(tmp_path / "store", VectorSettings(search="approximate"))
    report = verified(library, tmp_path, QUERIES, ["lexical"])
    assert (report.count("agree"), report.count("uncertified")) == (len(QUERIES), 0)
    assert report.document()["recall_at_rank_window"] is None
