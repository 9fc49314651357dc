"""What a run is worth: measures as trec_eval computes them, by ir-measures.

A query without an answer counts as 0, so every mean is over all queries of a collection.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ir_measures
import numpy as np
from ir_measures import AP, RR, R, nDCG

from benchmarks.beir import Collection, Scored, strictly_decreasing

MEASURES = (nDCG @ 10, R @ 100, RR @ 10, AP)
"""AP is cut by the run: a document that the run does not reach adds nothing."""

_RESAMPLES = 5_000

type ByQuery = Mapping[str, Mapping[str, float]]
"""Measure to query to value."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mode's answers: query id to ranked documents, and milliseconds by query."""

    mode: str
    runs: Mapping[str, Scored]
    elapsed_ms: Mapping[str, float]


def by_query(collection: Collection, runs: Mapping[str, Scored]) -> ByQuery:
    """Compute the measures of every query of a collection.

    Args:
        collection: its judgments, and the queries that count.
        runs: query id to documents, best first; equal scores stay in the order given.
    """
    run = {
        query: dict(
            zip(
                (document for document, _ in scored),
                strictly_decreasing(score for _, score in scored),
                strict=True,
            )
        )
        for query, scored in runs.items()
        if query in collection.queries
    }
    qrels = {query: dict(judgments) for query, judgments in collection.qrels.items()}
    values = {str(measure): dict.fromkeys(collection.queries, 0.0) for measure in MEASURES}
    for metric in ir_measures.iter_calc(list(MEASURES), qrels, run):
        values[str(metric.measure)][metric.query_id] = metric.value
    return values


def means(values: ByQuery) -> dict[str, float]:
    """Return the mean of each measure over its queries, rounded to four places."""
    return {name: round(statistics.fmean(column.values()), 4) for name, column in values.items()}


def gain(better: Mapping[str, float], than: Mapping[str, float]) -> dict[str, Any]:
    """Compare two columns of values of the same queries.

    Returns:
        `mean`: of the differences; `interval_95`: of that mean, by the percentile bootstrap over
        queries (Efron, Tibshirani: "An Introduction to the Bootstrap"), always the same for the
        same values.
    """
    names = sorted(better)
    differences = np.array([better[name] - than[name] for name in names])
    random = np.random.default_rng(0)
    resampled = np.array(
        [
            differences[random.integers(len(names), size=len(names))].mean()
            for _ in range(_RESAMPLES)
        ]
    )
    low, high = np.quantile(resampled, (0.025, 0.975))
    return {
        "mean": round(float(differences.mean()), 4),
        "interval_95": [round(float(low), 4), round(float(high), 4)],
    }


def latency(outcome: Outcome) -> dict[str, float]:
    """Return the median and the 95th percentile of a run's milliseconds."""
    ordered = sorted(outcome.elapsed_ms.values())
    return {
        "p50_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)], 1),
    }
