"""The ranking that is verified: of the engine in this process, or of a running server."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.authorization import Principal
from engine.config import Config
from engine.contract import MAX_RESULTS, SearchRequest, SearchResult
from engine.encoders.encoder import Encoder
from engine.errors import OperatorError
from engine.local import open_local
from jobs.ranking.comparison import ServedResult

_PATIENCE_S = 600.0
_CALL_S = 120.0
_BUSY = (429, 503)
_TRIES = 10
_LONGEST_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to one query.

    Attributes:
        results: best first.
        coverage: the shards that answered and that there are, when not all did.
        certified: whether the search claims to have proved the answer; None: it does not say.
    """

    results: tuple[ServedResult, ...]
    coverage: tuple[int, int] | None = None
    certified: bool | None = None


class Served(Protocol):
    """What answers the queries."""

    @property
    def name(self) -> str:
        """Return what it is, for the report."""

    @property
    def step(self) -> float:
        """Return what its scores are rounded up by at most."""

    @property
    def most_results(self) -> int | None:
        """Return the most results that it gives, or None for any number."""

    def ask(self, request: SearchRequest) -> Answer:
        """Answer one query.

        Raises:
            EngineError: it cannot be answered.
        """

    def generation(self) -> int | None:
        """Return the generation that it answers from, or None when it does not say."""

    def close(self) -> None:
        """Free what it holds."""


class ServedHere:
    """The engine over the store, in this process, as the command line and the demo run it."""

    name, step, most_results = "this process", 0.0, None

    def __init__(self, config: Config, principal: Principal, encoder: Encoder | None) -> None:
        """Open the store.

        Args:
            config: the tree. Deadline and staleness are relaxed: neither may move a ranking.
            principal: who asks.
            encoder: instead of the configured one.
        """
        search = config.search.model_copy(
            update={"deadline_s": _PATIENCE_S, "allow_partial": False}
        )
        catalog = config.catalog.model_copy(update={"max_staleness_s": _PATIENCE_S})
        patient = config.model_copy(update={"search": search, "catalog": catalog})
        self._principal = principal
        self._loop = asyncio.Runner()
        self._knowledge = open_local(patient, encoder)

    def ask(self, request: SearchRequest) -> Answer:
        """Answer one query, scores unrounded."""
        ranking = self._loop.run(self._knowledge.rank(request, self._principal))
        coverage = ranking.coverage
        told = None if coverage is None else (coverage.answered, coverage.shards)
        return Answer(tuple(map(_of_result, ranking.results)), told, ranking.certified)

    def generation(self) -> int | None:
        """Return the generation that is pinned."""
        return self._knowledge.generation()

    def close(self) -> None:
        """Close the store."""
        self._loop.run(self._knowledge.close())
        self._loop.close()


def _of_result(result: SearchResult) -> ServedResult:
    scores = result.scores
    return ServedResult(
        base=result.base,
        item=result.item,
        revision=result.revision,
        excerpt=result.excerpt,
        excerpt_offset=result.excerpt_offset,
        score=scores.score,
        lexical=scores.lexical,
        semantic=scores.semantic,
        lexical_rank=scores.lexical_rank,
        semantic_rank=scores.semantic_rank,
    )


class ServedThere:
    """A running server, asked over HTTP."""

    step, most_results = 1e-6, MAX_RESULTS

    def __init__(self, url: str, token: str | None) -> None:
        """Name the server; nothing is asked yet.

        Args:
            url: its root, as `http://127.0.0.1:8000`.
            token: the bearer token of the caller, or None.

        Raises:
            OperatorError: the URL is not one of HTTP.
        """
        if not url.startswith(("http://", "https://")):
            raise OperatorError(f"{url} is not an address: give http://HOST:PORT")
        self.name = url.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def ask(self, request: SearchRequest) -> Answer:
        """Answer one query.

        Raises:
            OperatorError: the server cannot be reached, or refuses.
        """
        arguments = {
            "query": request.query,
            "mode": request.mode,
            "alpha": request.alpha,
            "max_results": min(request.max_results, MAX_RESULTS),
            "knowledge_base_id": request.base or "",
        }
        body = json.dumps(arguments).encode("utf-8")
        for _ in range(_TRIES):
            answered, wait_s = self._post(body)
            if answered is not None:
                return _of_document(answered)
            time.sleep(wait_s)
        raise OperatorError(f"{self.name} was asked {_TRIES} times and has no room")

    def _post(self, body: bytes) -> tuple[dict[str, Any] | None, float]:
        """Ask once.

        Returns:
            The answer; or None, and the seconds after which the server wants to be asked again.
        """
        asked = urllib.request.Request(f"{self.name}/v1/search", body, self._headers)
        try:
            with urllib.request.urlopen(asked, timeout=_CALL_S) as response:
                document: dict[str, Any] = json.loads(response.read())
                return document, 0.0
        except urllib.error.HTTPError as error:
            wait = error.headers.get("Retry-After", "")
            if error.code in _BUSY and wait.isdecimal() and int(wait) <= _LONGEST_WAIT_S:
                return None, float(wait)
            raise OperatorError(f"{self.name} answered {error.code}: {_told(error)}") from None
        except (OSError, ValueError) as error:
            raise OperatorError(f"{self.name} does not answer: {error}") from None

    def generation(self) -> int | None:
        """Return None: an answer does not say."""
        return None

    def close(self) -> None:
        """Do nothing: no connection is kept."""


def _told(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)


def _of_document(document: dict[str, Any]) -> Answer:
    """Read the contract's query answer.

    Raises:
        OperatorError: it is not one.
    """
    try:
        results = tuple(_of_row(row) for row in document["results"])
        told = document.get("coverage")
        coverage = None if told is None else (int(told["answered"]), int(told["shards"]))
    except (KeyError, TypeError, ValueError):
        raise OperatorError("the server's answer is not one of this contract") from None
    return Answer(results, coverage)


def _of_row(row: dict[str, Any]) -> ServedResult:
    return ServedResult(
        base=row["knowledge_base_id"],
        item=row["knowledge_item_id"],
        revision=row["knowledge_revision_id"],
        excerpt=row["excerpt"],
        excerpt_offset=int(row["excerpt_offset"]),
        **{name: row["scores"][name] for name in _SCORES},
    )


_SCORES = ("score", "lexical", "semantic", "lexical_rank", "semantic_rank")


def deeper(request: SearchRequest, results: int) -> SearchRequest:
    """Return the semantic side of a query with another number of results."""
    return replace(request, mode="semantic", max_results=results)
