"""Explanations: every printed score, computed again from the printed numbers alone."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine.authorization import ANONYMOUS, OPERATE_SCOPE, OPERATOR, READ_SCOPE, Principal
from engine.contract import SearchRequest, parse_request
from engine.errors import (
    InvalidRequestError,
    OverloadedError,
    QueryRequiredError,
    ResourceUnavailableError,
    RuntimeDisabledError,
    ScopeRequiredError,
)
from engine.index.analysis import analyze, passage_terms
from engine.index.vector import VectorHits, VectorIndex, VectorSettings
from engine.local import open_follower, open_knowledge, open_local
from engine.search.answering import Knowledge
from engine.search.client import FrameGroupClient
from engine.search.encoding import LocalQueryEncoder
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import FLOOD, QUERIES, fill

MODES = ("hybrid", "lexical", "semantic", "rrf")
STRANGER = Principal("stranger", scopes=frozenset({READ_SCOPE, OPERATE_SCOPE}))
GROUPS = 2
ASKED = (*QUERIES[1:5], *QUERIES[8:12])
"""Queries of one and of several languages, of an identifier, of function words, of the flood."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Two bases, one of them hidden from strangers, in three shards."""
    library = Library(tmp_path_factory.mktemp("explain") / "store")
    library.add_base("kb")
    library.add_base("hidden", scope="private", owner="nobody")
    fill(library, "kb", seed=3, count=30)
    fill(library, "hidden", seed=4, count=15, prefix="hidden")
    library.add("kb", [("flood", "Flood", FLOOD)])
    library.reindex(shards=3)
    return library


@pytest.fixture(scope="module")
def knowledge(library: Library) -> Iterator[Knowledge]:
    opened = open_local(small_config(library.root))
    yield opened
    asyncio.run(opened.close())


async def _explained(
    knowledge: Knowledge, arguments: Mapping[str, Any], principal: Principal = OPERATOR
) -> dict[str, Any]:
    """Return an explanation as a reader of its JSON sees it."""
    shown: dict[str, Any] = json.loads(
        json.dumps(await knowledge.explain(arguments, principal), allow_nan=False)
    )
    return shown


# --------------------------------------------------------- the arithmetic, written down once more


def _idf(passages: int, holding: int) -> float:
    return math.log(1.0 + (passages - holding + 0.5) / (holding + 0.5))


def _bm25(lexical: Mapping[str, Any], query: Mapping[str, Any]) -> float:
    """Compute BM25 from integers, k1 and b; check every number on the way."""
    field = {one["field"]: one for one in query["fields"]}.get(lexical["field"])
    if field is None:
        assert lexical["terms"] == []
        return 0.0
    average = field["tokens"] / field["passages"]
    assert lexical["average_length"] == average
    norm = query["k1"] * (1.0 - query["b"] + query["b"] * lexical["length"] / average)
    assert lexical["norm"] == norm
    known = {one["term"]: one for one in field["terms"]}
    total = 0.0
    for term in lexical["terms"]:
        counted = known[term["term"]]
        assert (term["qtf"], term["n"]) == (counted["qtf"], counted["n"])
        assert term["idf"] == counted["idf"] == _idf(field["passages"], term["n"])
        assert term["tf_part"] == term["tf"] / (term["tf"] + norm)
        assert term["contribution"] == term["qtf"] * term["idf"] * term["tf_part"]
        total += term["contribution"]
    upper = math.fsum(one["qtf"] * one["idf"] for one in field["terms"])
    assert lexical["upper_bound"] == field["upper_bound"] == upper
    return total


def _score(result: Mapping[str, Any], query: Mapping[str, Any]) -> float:
    """Compute a result's score from what is printed of its two sides."""
    lexical, semantic = result["lexical"], result["semantic"]
    ranks = [side["rank"] for side in result["ranks"].values() if side is not None]
    match query["mode"]:
        case "lexical":
            score: float = lexical["bm25"]
            return score
        case "semantic":
            cosine: float = semantic["cosine"]
            return cosine
        case "rrf":
            return math.fsum(1.0 / (60 + rank) for rank in ranks)
        case _:
            alpha, floor = query["alpha"], query["floor"]
            lex = lexical["bm25"] / lexical["upper_bound"] if lexical["upper_bound"] else 0.0
            sem = max(semantic["cosine"] - floor, 0.0) / (1.0 - floor)
            assert (lexical["lex"], semantic["sem"], semantic["floor"]) == (lex, sem, floor)
            weighted: float = alpha * lex + (1.0 - alpha) * sem
            return weighted


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("principal", [OPERATOR, STRANGER], ids=["operator", "stranger"])
async def test_every_score_is_computed_again_from_the_printed_numbers(
    knowledge: Knowledge, mode: str, principal: Principal
) -> None:
    for query in ASKED:
        arguments = {"query": query, "mode": mode, "max_results": 20, "alpha": 0.3}
        explanation = await _explained(knowledge, arguments, principal)
        request = parse_request(arguments)
        assert isinstance(request, SearchRequest)
        answered = (await knowledge.rank(request, principal)).results
        assert len(explanation["results"]) == len(answered)
        for result, told in zip(explanation["results"], answered, strict=True):
            assert result["knowledge_item_id"] == told.item
            assert _score(result, explanation["query"]) == result["score"] == told.scores.score
            if mode != "semantic":
                bm25 = _bm25(result["lexical"], explanation["query"])
                assert bm25 == result["lexical"]["bm25"] == told.scores.lexical
            if mode != "lexical":
                assert result["semantic"]["cosine"] == told.scores.semantic


@pytest.mark.parametrize("mode", MODES)
async def test_an_explanation_holds_the_answer_of_the_search_to_the_byte(
    knowledge: Knowledge, mode: str
) -> None:
    for query in ASKED:
        for principal in (OPERATOR, STRANGER):
            arguments = {"query": query, "mode": mode}
            explanation = await knowledge.explain(arguments, principal)
            plain = await knowledge.answer(arguments, principal)
            assert orjson.dumps(explanation["answer"]) == orjson.dumps(plain)


async def test_terms_lengths_and_frequencies_are_those_of_the_stored_text(
    library: Library, knowledge: Knowledge
) -> None:
    for query in ASKED:
        explanation = await _explained(knowledge, {"query": query, "max_results": 20})
        fields = {one["field"]: one for one in explanation["query"]["fields"]}
        for name, field in fields.items():
            assert {one["term"]: one["qtf"] for one in field["terms"]} == analyze(name, query)
        for result, told in zip(
            explanation["results"], explanation["answer"]["results"], strict=True
        ):
            revision = library.store.revisions.read(
                told["knowledge_item_id"], told["knowledge_revision_id"]
            )
            assert revision is not None
            passage, lexical = result["passage"], result["lexical"]
            text = revision.content[passage["char_start"] : passage["char_end"]]
            assert told["excerpt"] in text
            held = Counter(passage_terms(lexical["field"], f"{revision.title}\n{text}"))
            wanted = [one["term"] for one in fields.get(lexical["field"], {"terms": []})["terms"]]
            assert lexical["tokens"] == sum(held.values())
            assert {one["term"]: one["tf"] for one in lexical["terms"]} == {
                term: held[term] for term in wanted if term in held
            }


async def test_counts_are_those_of_what_the_caller_may_read(knowledge: Knowledge) -> None:
    counts = []
    for principal in (OPERATOR, STRANGER):
        query = (await _explained(knowledge, {"query": "server"}, principal))["query"]
        counts.append({one["field"]: (one["passages"], one["terms"]) for one in query["fields"]})
    everything, readable = counts
    assert set(readable) == set(everything)
    for name, (passages, _) in readable.items():
        assert passages < everything[name][0]
    assert readable["text_en"][1][0]["n"] < everything["text_en"][1][0]["n"]


async def test_terms_that_no_passage_holds_are_named(knowledge: Knowledge) -> None:
    query = (await _explained(knowledge, {"query": "server zork zork"}))["query"]
    assert query["found_nowhere"] == ["zork"]
    for field in query["fields"]:
        zork = {one["term"]: one for one in field["terms"]}["zork"]
        assert (zork["qtf"], zork["n"]) == (2, 0)


@pytest.mark.parametrize("mode", MODES)
async def test_ranks_are_told_with_the_passages_that_gave_them(
    knowledge: Knowledge, mode: str
) -> None:
    """In `rrf` the better rank shows the item; equal ranks: the lexical one."""
    for query in ASKED:
        explanation = await _explained(knowledge, {"query": query, "mode": mode})
        for result in explanation["results"]:
            ranks, chosen = result["ranks"], result["chosen_by"]
            assert result["candidates_of_item"] >= 1
            if mode == "hybrid":
                assert chosen == "hybrid"
                continue
            lexical, semantic = (
                math.inf if ranks[side] is None else ranks[side]["rank"]
                for side in ("lexical", "semantic")
            )
            assert chosen == ("lexical" if lexical <= semantic else "semantic")
            assert ranks[chosen]["passage"] == result["passage"]
        for side, score in (("lexical", "bm25"), ("semantic", "cosine")):
            told = [one["ranks"][side] for one in explanation["results"]]
            known = sorted((one["rank"], -one[score]) for one in told if one is not None)
            assert [score for _, score in known] == sorted(score for _, score in known)


async def test_the_state_the_depths_and_the_stages_are_told(
    library: Library, knowledge: Knowledge
) -> None:
    explanation = await _explained(knowledge, {"query": "server", "mode": "rrf"})
    state = explanation["state"]
    assert (state["generation"], state["shards"], state["shards_answered"]) == (1, 3, 3)
    assert state["encoder"] == library.encoder.fingerprint
    assert state["catalog_version"] == library.store.writer.catalog().version
    stages = {"count", "encode", "search", "refine", "hydrate", "explain", "total"}
    spent = explanation["effort"]["milliseconds"]
    assert set(spent) == stages
    assert max(spent.values()) == spent["total"]
    assert [one["shard"] for one in explanation["shards"]] == [0, 1, 2]
    names = {part["segment"] for one in explanation["shards"] for part in one["segments"]}
    assert len(names) == 3
    assert {one["passage"]["segment"] for one in explanation["results"]} <= names
    assert (explanation["certified"], explanation["uncertified_because"]) == (True, [])


# -------------------------------------------------------------------------------- how it came about


async def test_a_search_tells_how_often_and_how_deep_it_asked(tmp_path: Path) -> None:
    """One item has more good passages than the first depth: others are found only deeper."""
    library = Library(tmp_path / "store")
    library.add_base("kb")
    flood = " ".join(f"server number {at} of the server room." for at in range(600))
    library.add("kb", [("flood", "server", flood)])
    library.add("kb", [(f"item-{at}", "other", f"one server among {at} words") for at in range(3)])
    library.reindex()
    knowledge = open_local(small_config(library.root, search={"depth": 50}))
    request = SearchRequest("server room", mode="lexical")
    ranking = await knowledge.rank(request, OPERATOR)
    await knowledge.close()
    effort = ranking.effort
    assert len(ranking.results) == 4
    assert effort.rounds > 1
    assert {shard: depth.lexical for shard, depth in effort.depths.items()} == {
        0: 50 * 2 ** (effort.rounds - 1)
    }
    assert effort.candidates > 50
    assert 0 < effort.refined <= effort.candidates


async def test_an_approximate_search_is_not_called_certified(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = VectorIndex.search

    def unproved(self: VectorIndex, *asked: Any, **how: Any) -> VectorHits:
        # So few passages are searched exactly after all, and certified; more would not be.
        return replace(search(self, *asked, **how), certified=False)

    for module in ("vector_builder", "vector_codes"):  # so few passages would get no codes
        monkeypatch.setattr(f"engine.index.{module}.TRAINING_ROWS", 32)
    monkeypatch.setattr(VectorIndex, "search", unproved)
    copy = library.copy(tmp_path / "store")
    copy.vector_search = VectorSettings(search="approximate")
    copy.reindex()
    knowledge = open_local(small_config(copy.root))
    told = {m: await _explained(knowledge, {"query": "server", "mode": m}) for m in MODES}
    await knowledge.close()
    assert not told["semantic"]["certified"]
    assert told["semantic"]["uncertified_because"] == [
        "vectors were searched approximately in shards 0"
    ]
    assert [one["certified"] for one in told["semantic"]["shards"]] == [False]
    assert told["lexical"]["certified"]
    for explanation in told.values():
        assert [part["exact"] for part in explanation["shards"][0]["segments"]] == [False]


# ------------------------------------------------------------------------------------ other groups


Frames = list[bytes]


@asynccontextmanager
async def _in_groups(
    library: Library, frames: Frames, fail: bytes | None = None
) -> AsyncIterator[Knowledge]:
    """Open a store in groups behind frames; group 1 fails at frames that hold some bytes."""
    config = small_config(library.root)
    followers = [open_follower(config, position=n, groups=GROUPS) for n in range(GROUPS)]
    clients = []
    for number, follower in enumerate(followers):
        group = follower.group
        assert group is not None

        async def carry(
            frame: bytes, seconds: float, number: int = number, to: Any = group
        ) -> bytes:
            frames.append(frame)
            if number == 1 and fail is not None and fail in frame:
                raise OverloadedError("busy")
            answer: bytes = await to.handle(frame)
            return answer

        clients.append(FrameGroupClient(f"group-{number}", carry))
    ingress = open_follower(config, position=None, groups=GROUPS)
    knowledge = open_knowledge(config, ingress, clients, LocalQueryEncoder(library.encoder))
    yield knowledge
    await knowledge.close()
    for follower in followers:
        follower.close()


async def test_groups_behind_frames_explain_as_one_process_does(
    library: Library, knowledge: Knowledge
) -> None:
    async with _in_groups(library, []) as elsewhere:
        for mode in MODES:
            for query in ASKED[:4]:
                told = []
                for one in (knowledge, elsewhere):
                    explanation = await one.explain({"query": query, "mode": mode}, STRANGER)
                    del explanation["effort"]["milliseconds"]
                    told.append(orjson.dumps(explanation))
                assert told[0] == told[1]


async def test_only_an_explanation_asks_groups_for_one(library: Library) -> None:
    frames: Frames = []
    async with _in_groups(library, frames) as knowledge:
        await knowledge.answer({"query": "server"}, OPERATOR)
        assert not any(b'"explain?"' in frame for frame in frames)
        await knowledge.explain({"query": "server"}, OPERATOR)
        assert sum(b'"explain?"' in frame for frame in frames) == GROUPS


@pytest.mark.parametrize("stage", [b'"search?"', b'"explain?"'])
async def test_a_ranking_without_some_shards_is_not_called_certified(
    library: Library, stage: bytes
) -> None:
    """Group 1 of 2 holds shard 1 of 3; what fails while explaining is not shown either."""
    async with _in_groups(library, [], stage) as knowledge:
        explanation = await _explained(knowledge, {"query": "server"})
    assert not explanation["certified"]
    assert explanation["uncertified_because"] == ["1 of 3 shards did not answer"]
    assert explanation["answer"]["coverage"]["answered"] == 2
    assert explanation["state"]["shards_answered"] == 2
    assert [one["shard"] for one in explanation["shards"]] == [0, 2]
    assert len(explanation["results"]) == len(explanation["answer"]["results"]) > 0
    assert {one["passage"]["shard"] for one in explanation["results"]} <= {0, 2}


# ---------------------------------------------------------------------------------- who may ask


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ({READ_SCOPE}, False),
        ({OPERATE_SCOPE}, False),
        ({READ_SCOPE, OPERATE_SCOPE}, True),
        ({"knowledge:*"}, True),
        ({"*"}, True),
        ({READ_SCOPE, "knowledge:operate:", "Knowledge:Operate", "operate"}, False),
    ],
)
async def test_explanations_need_a_scope_of_their_own(
    knowledge: Knowledge, scopes: set[str], allowed: bool
) -> None:
    principal = Principal("somebody", scopes=frozenset(scopes))
    if allowed:
        assert (await knowledge.explain({"query": "server"}, principal))["results"]
        return
    with pytest.raises(ScopeRequiredError):
        await knowledge.explain({"query": "server"}, principal)


async def test_the_anonymous_caller_may_not_have_anything_explained(knowledge: Knowledge) -> None:
    with pytest.raises(ScopeRequiredError, match=OPERATE_SCOPE):
        await knowledge.explain({"query": "server"}, ANONYMOUS)


async def test_only_a_search_can_be_explained(knowledge: Knowledge) -> None:
    with pytest.raises(InvalidRequestError, match="only a search") as caught:
        await knowledge.explain({"knowledge_item_id": "flood"}, OPERATOR)
    assert caught.value.parameter == "knowledge_item_id"
    with pytest.raises(QueryRequiredError):
        await knowledge.explain({}, OPERATOR)
    with pytest.raises(InvalidRequestError, match="explain"):
        await knowledge.answer({"query": "server", "explain": True}, OPERATOR)


async def test_a_hidden_base_is_as_unavailable_as_to_a_search(knowledge: Knowledge) -> None:
    with pytest.raises(ResourceUnavailableError):
        await knowledge.explain({"query": "server", "knowledge_base_id": "hidden"}, STRANGER)


async def test_a_runtime_switched_off_explains_nothing(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    library.store.runtime.set(enabled=False)
    knowledge = open_local(small_config(library.root))
    with pytest.raises(RuntimeDisabledError):
        await knowledge.explain({"query": "server"}, ANONYMOUS)
    await knowledge.close()


async def test_where_nothing_can_be_searched_nothing_is_explained(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    library.add_base("kb", scope="private", owner="nobody")
    library.add("kb", [("item", "Item", "a text")])
    for principal in (OPERATOR, STRANGER):  # no generation; later no base that may be read
        knowledge = open_local(small_config(library.root))
        explanation = await _explained(knowledge, {"query": "text", "mode": "lexical"}, principal)
        await knowledge.close()
        assert explanation["answer"] == {"type": "knowledge_search", "results": []}
        assert explanation["results"] == explanation["shards"] == []
        assert explanation["state"] is None
        assert explanation["effort"]["rounds"] == 0
        library.reindex()
