"""The published table: `python -m benchmarks.table` prints it, README.md holds it.

It is made from `benchmarks/results/quality.json` alone, so a number in it is one that was measured.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.beir import Half
from engine.contract import MODES

RESULTS = Path(__file__).resolve().parent / "results" / "quality.json"
ORDER: tuple[str, ...] = ("lexical", "semantic", "rrf", "hybrid")
_MEASURE, _REACH = "nDCG@10", "R@100"


def table_lines(document: Mapping[str, Any], half: Half = "report") -> list[str]:
    """Return the table in Markdown, one row a collection, in the order of the document.

    The best mode of a row is bold; a mode that was not asked is a dash.

    Args:
        document: as `benchmarks.quality` writes it.
        half: of which queries.
    """
    assert set(ORDER) == set(MODES)
    head = ["collection", "queries", *ORDER, f"hybrid {_REACH}"]
    rows = [_row(one, half) for one in document["collections"]]
    return [_line(head), _line(["---", *["---:"] * (len(head) - 1)]), *map(_line, rows)]


def _row(collection: Mapping[str, Any], half: Half) -> list[str]:
    modes = collection["modes"]
    found = {mode: modes[mode][half][_MEASURE] for mode in ORDER if mode in modes}
    best = max(found.values())
    cells = [_cell(found.get(mode), bold=found.get(mode) == best) for mode in ORDER]
    reach = _cell(modes["hybrid"][half][_REACH] if "hybrid" in modes else None)
    return [collection["collection"], str(collection["queries"][half]), *cells, reach]


def _cell(value: float | None, *, bold: bool = False) -> str:
    if value is None:
        return "-"
    return f"**{value:.3f}**" if bold else f"{value:.3f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table of the published results."""
    document = json.loads(RESULTS.read_text("utf-8"))
    sys.stdout.write("\n".join(table_lines(document)) + "\n")


if __name__ == "__main__":
    main()
