"""Which way to search vectors under a filter: the cheapest, by a model with measured weights.

Costs are counted in rows that a scan scores in place; only their ratios matter, and these hold for
every dimension. `python -m benchmarks.vectors` measures them; ARCHITECTURE.md says what it found.
"""

from __future__ import annotations

from typing import Literal

Way = Literal["gather", "scan", "codes"]
"""`gather`: copy the allowed rows and score only those. `scan`: score the allowed rows in place,
asking a bitmap about every row. `codes`: go through the compressed codes of all rows, then score
the most promising. The first two are exact."""

GATHERED = 2.2
"""One row copied and scored."""

TESTED = 0.035
"""One row asked about, allowed or not."""

CODED = 0.14
"""One compressed code compared, allowed or not."""

RESCORED = 2.5
"""One candidate of the compressed codes scored from its stored row."""


def choose_way(passages: int, allowed: int, candidates: int | None = None) -> Way:
    """Choose how to search.

    The share of allowed rows decides, never where they lie: no way of the three walks a graph or
    visits a part of the rows only, so none is misled by a filter that goes with the query.

    Args:
        passages: rows of the segment.
        allowed: how many of them may be found.
        candidates: how many a compressed search would score again; None: there are no codes, or
            a proof is wanted.
    """
    costs: dict[Way, float] = {
        "gather": GATHERED * allowed + TESTED * passages,
        "scan": allowed + 2 * TESTED * passages if allowed < passages else float(passages),
    }
    if candidates is not None:
        costs["codes"] = CODED * passages + RESCORED * candidates
    return min(costs, key=lambda way: costs[way])
