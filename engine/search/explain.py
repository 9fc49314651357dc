"""The arithmetic of a ranking, for the operator: every number that a score was computed from.

Pure. Nothing is rounded but times: whoever follows the formulas in IEEE double precision, in the
order given, arrives at the printed scores to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.contract import SearchRequest, render_search
from engine.index.statistics import idf, upper_bound
from engine.search.evidence import Evidence, Shown
from engine.search.fusion import RANK_CONSTANT, lexical_parts, semantic_parts
from engine.search.ranking import Effort, Ranking
from engine.search.request import FieldTerms, PassageFacts
from engine.search.shard import query_frequencies, whole_statistics

FORMULAS = {
    "hybrid": "alpha * lex + (1 - alpha) * sem",
    "lexical": "bm25",
    "semantic": "cosine",
    "rrf": f"1 / ({RANK_CONSTANT} + lexical rank) + 1 / ({RANK_CONSTANT} + semantic rank)",
}

_TIME_DECIMALS = 3
_NO_TERMS = FieldTerms((), (), 0, 0, ())


def render_explanation(request: SearchRequest, ranking: Ranking) -> dict[str, Any]:
    """Build the explanation of a search, ready for JSON.

    Args:
        request: the query.
        ranking: what was answered, with its evidence; without any when nothing was searched:
            no generation yet, or no base that the caller may read.

    Returns:
        `answer` is what the search answers without an explanation; `results` explains its results
        in the same order.
    """
    evidence = ranking.evidence
    return {
        "type": "knowledge_explanation",
        "certified": ranking.certified,
        "uncertified_because": _doubts(ranking),
        "state": None if evidence is None else _state(evidence, ranking),
        "query": _query(request, evidence),
        "effort": _effort(ranking.effort),
        "shards": [] if evidence is None else _shards(evidence, ranking.effort),
        "results": [] if evidence is None else [_result(evidence, one) for one in evidence.shown],
        "answer": render_search(ranking.results, ranking.coverage),
    }


def _doubts(ranking: Ranking) -> list[str]:
    """Say why a ranking is not proved; nothing when it is."""
    doubts = []
    if ranking.coverage is not None:
        left_out = ranking.coverage.shards - ranking.coverage.answered
        doubts.append(f"{left_out} of {ranking.coverage.shards} shards did not answer")
    certified = {} if ranking.evidence is None else ranking.evidence.certified
    doubtful = [str(shard) for shard, proved in sorted(certified.items()) if not proved]
    if doubtful:
        doubts.append(f"vectors were searched approximately in shards {', '.join(doubtful)}")
    return doubts


# --------------------------------------------------------------------------------- the search


def _state(evidence: Evidence, ranking: Ranking) -> dict[str, Any]:
    coverage = ranking.coverage
    return {
        "generation": evidence.pin.generation,
        "catalog_version": evidence.pin.catalog,
        "shards": evidence.shards,
        "shards_answered": evidence.shards if coverage is None else coverage.answered,
        "encoder": evidence.encoder,
    }


def _query(request: SearchRequest, evidence: Evidence | None) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "text": request.query,
        "mode": request.mode,
        "knowledge_base_id": request.base,
        "max_results": request.max_results,
    }
    if evidence is None:
        return asked
    hybrid, counted = request.mode == "hybrid", dict(evidence.fields)
    return asked | {
        "formula": FORMULAS[request.mode],
        "alpha": request.alpha if hybrid else None,
        "floor": evidence.goal.floor if hybrid else None,
        "reference_vectors": evidence.sample if hybrid else None,
        "rank_window": evidence.goal.window,
        "rank_constant": RANK_CONSTANT if request.mode == "rrf" else None,
        "k1": evidence.similarity[0],
        "b": evidence.similarity[1],
        "fields": [_field(name, terms) for name, terms in counted.items()],
        "found_nowhere": _found_nowhere(evidence),
    }


def _field(name: str, terms: FieldTerms) -> dict[str, Any]:
    whole = whole_statistics(terms)
    columns = zip(terms.terms, terms.query_frequencies, terms.document_frequencies, strict=True)
    return {
        "field": name,
        "passages": terms.passages,
        "tokens": terms.tokens,
        "average_length": whole.average_length,
        "upper_bound": upper_bound(query_frequencies(terms), whole),
        "terms": [
            {"term": term, "qtf": qtf, "n": n, "idf": idf(terms.passages, n)}
            for term, qtf, n in columns
        ],
    }


def _found_nowhere(evidence: Evidence) -> list[str]:
    """Return the terms that no passage holds, whatever analyzer made them, sorted."""
    seen: set[str] = set()
    held: set[str] = set()
    for terms in evidence.fields.values():
        seen.update(terms.terms)
        pairs = zip(terms.terms, terms.document_frequencies, strict=True)
        held.update(term for term, n in pairs if n)
    return sorted(seen - held)


def _effort(effort: Effort) -> dict[str, Any]:
    times = {stage: round(spent, _TIME_DECIMALS) for stage, spent in effort.milliseconds.items()}
    return {
        "attempts": effort.attempts,
        "rounds": effort.rounds,
        "candidates": effort.candidates,
        "refined": effort.refined,
        "milliseconds": times,
    }


def _shards(evidence: Evidence, effort: Effort) -> list[dict[str, Any]]:
    return [
        {
            "shard": shard,
            "lexical_depth": effort.depths[shard].lexical,
            "semantic_depth": effort.depths[shard].semantic,
            "certified": evidence.certified[shard],
            "segments": [
                {"segment": one.name, "exact": one.exact, "recall": one.recall}
                for one in facts.segments
            ],
        }
        for shard, facts in sorted(evidence.facts.items())
    ]


# -------------------------------------------------------------------------------- the results


def _result(evidence: Evidence, shown: Shown) -> dict[str, Any]:
    mode, row = evidence.goal.mode, shown.placed.row
    return {
        "knowledge_item_id": evidence.pool.item_ids[int(evidence.pool.items[row])],
        "score": shown.placed.score,
        "passage": _address(evidence, row),
        "chosen_by": _chosen_by(shown, mode),
        "candidates_of_item": shown.candidates,
        "lexical": None if mode == "semantic" else _lexical(evidence, row),
        "semantic": None if mode == "lexical" else _semantic(evidence, row),
        "ranks": {
            "lexical": _lexical_rank(evidence, shown),
            "semantic": _semantic_rank(evidence, shown),
        },
    }


def _chosen_by(shown: Shown, mode: str) -> str:
    """Name the score by which the passage shown is the best of its item's."""
    if mode != "rrf":
        return mode
    lexical, semantic = shown.placed.lexical_rank, shown.placed.semantic_rank
    return "lexical" if (lexical or math.inf) <= (semantic or math.inf) else "semantic"


def _address(evidence: Evidence, row: int) -> dict[str, Any]:
    facts = evidence.passages[row]
    return {
        "shard": int(evidence.pool.shards[row]),
        "segment": facts.segment,
        "ordinal": facts.ordinal,
        "char_start": facts.start,
        "char_end": facts.end,
    }


def _lexical(evidence: Evidence, row: int) -> dict[str, Any]:
    facts = evidence.passages[row]
    terms = evidence.fields.get(facts.field, _NO_TERMS)
    whole, (k1, b) = whole_statistics(terms), evidence.similarity
    upper = upper_bound(query_frequencies(terms), whole)
    norm = k1 * (1.0 - b + b * facts.length / whole.average_length)
    rows = _terms(terms, facts, norm)
    bm25 = 0.0
    for one in rows:
        bm25 += one["contribution"]
    hybrid = evidence.goal.mode == "hybrid"
    return {
        "field": facts.field,
        "tokens": facts.tokens,
        "length": facts.length,
        "average_length": whole.average_length,
        "norm": norm,
        "terms": rows,
        "bm25": bm25,
        "upper_bound": upper,
        "lex": float(lexical_parts(np.array([bm25]), np.array([upper]))[0]) if hybrid else None,
    }


def _terms(terms: FieldTerms, facts: PassageFacts, norm: float) -> list[dict[str, Any]]:
    """Tell what each term adds to a passage's BM25, in the query's order; most add nothing."""
    if not facts.frequencies:
        return []
    counts = zip(
        terms.terms,
        terms.query_frequencies,
        terms.document_frequencies,
        facts.frequencies,
        strict=True,
    )
    return [
        {
            "term": term,
            "qtf": qtf,
            "n": n,
            "idf": idf(terms.passages, n),
            "tf": tf,
            "tf_part": tf / (tf + norm),
            "contribution": qtf * idf(terms.passages, n) * (tf / (tf + norm)),
        }
        for term, qtf, n, tf in counts
        if tf
    ]


def _semantic(evidence: Evidence, row: int) -> dict[str, Any]:
    cosine, floor = float(evidence.pool.semantic[row]), evidence.goal.floor
    hybrid = evidence.goal.mode == "hybrid"
    return {
        "cosine": cosine,
        "floor": floor if hybrid else None,
        "sem": float(semantic_parts(np.array([cosine]), floor)[0]) if hybrid else None,
    }


def _lexical_rank(evidence: Evidence, shown: Shown) -> dict[str, Any] | None:
    if shown.lexical_row is None:
        return None
    rank = {
        "rank": shown.placed.lexical_rank,
        "bm25": _lexical(evidence, shown.lexical_row)["bm25"],
    }
    return rank | {"passage": _address(evidence, shown.lexical_row)}


def _semantic_rank(evidence: Evidence, shown: Shown) -> dict[str, Any] | None:
    if shown.semantic_row is None:
        return None
    cosine = float(evidence.pool.semantic[shown.semantic_row])
    rank = {"rank": shown.placed.semantic_rank, "cosine": cosine}
    return rank | {"passage": _address(evidence, shown.semantic_row)}
