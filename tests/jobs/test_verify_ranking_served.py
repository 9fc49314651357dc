"""Verifying a running server over HTTP, and an index that is searched approximately."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
import yaml

from engine.authorization import ANONYMOUS, READ_SCOPE, Principal
from engine.contract import MODES, SearchRequest
from engine.errors import OperatorError
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


def test_an_uncertified_answer_is_told_by_its_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So few passages would get no codes.
    for module in ("vector_builder", "vector_codes"):
        monkeypatch.setattr(f"engine.index.{module}.TRAINING_ROWS", 32)
    library = _library(tmp_path / "store", VectorSettings(search="approximate"))
    original = Knowledge.rank

    async def rank(self: Knowledge, request: SearchRequest, principal: Principal) -> Ranking:
        # So few passages are searched exactly after all, and certified; more would not be.
        ranking = await original(self, request, principal)
        return replace(ranking, certified=request.mode == "lexical")

    monkeypatch.setattr(Knowledge, "rank", rank)
    report = verified(library, tmp_path, QUERIES, max_results=10)
    document = report.document()
    assert (document["vector_search"], report.agreed) == ("approximate", True)
    assert document["modes"]["lexical"]["agree"] == len(QUERIES)
    assert report.count("uncertified") == len(QUERIES) * (len(MODES) - 1)
    assert document["modes"]["semantic"]["uncertified_same"] == len(QUERIES)
    assert document["recall_at_rank_window"] == {"mean": 1.0, "least": 1.0}


def test_an_approximate_answer_is_still_compared_where_it_is_certified(tmp_path: Path) -> None:
    library = _library(tmp_path / "store", VectorSettings(search="approximate"))
    report = verified(library, tmp_path, QUERIES, ["lexical"])
    assert (report.count("agree"), report.count("uncertified")) == (len(QUERIES), 0)
    assert report.document()["recall_at_rank_window"] is None
