"""How often a search has to look deeper before its ranking is certified.

`python -m benchmarks.rounds --root DIR --corpus DIR --json result.json`

The root is one that `benchmarks.quality` or the jobs have filled; nothing is written into it.
Every query of the collection is asked once in every mode. One round is one question for
candidates to every shard that is not certified yet, the first included.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.beir import read_collection
from benchmarks.provenance import provenance
from engine.authorization import OPERATOR
from engine.config import load_config
from engine.contract import MAX_QUERY_CHARS, MODES, SearchRequest
from engine.errors import EngineError
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.search.ranking import Ranking


async def _ask(
    knowledge: Knowledge, queries: Sequence[str], mode: str, results: int, progress: Progress
) -> list[Ranking]:
    """Ask queries one after the other."""
    task = progress.add_task(mode, total=len(queries))
    found = []
    for query in queries:
        request = SearchRequest(query.strip()[:MAX_QUERY_CHARS], mode=mode, max_results=results)
        found.append(await knowledge.rank(request, OPERATOR))
        progress.advance(task)
    return found


def effort_of(rankings: Sequence[Ranking]) -> dict[str, Any]:
    """Sum up what rankings took: at least one ranking."""
    rounds = [ranking.effort.rounds for ranking in rankings]
    return {
        "queries": len(rankings),
        "rounds": {str(count): times for count, times in sorted(Counter(rounds).items())},
        "rounds_mean": round(statistics.fmean(rounds), 3),
        "first_round_enough": round(rounds.count(1) / len(rounds), 4),
        "candidates_median": statistics.median(one.effort.candidates for one in rankings),
        "refined_median": statistics.median(one.effort.refined for one in rankings),
        "refined_most": max(one.effort.refined for one in rankings),
        "certified": sum(ranking.certified for ranking in rankings),
    }


def _show(console: Console, modes: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(box=None)
    for name in ("mode", "queries", "one round", "rounds", "candidates", "refined", "certified"):
        table.add_column(name)
    for mode, effort in modes.items():
        rounds = " ".join(f"{count}:{times}" for count, times in effort["rounds"].items())
        table.add_row(
            mode,
            str(effort["queries"]),
            f"{effort['first_round_enough']:.1%}",
            rounds,
            f"{effort['candidates_median']:.0f}",
            f"{effort['refined_median']:.0f}",
            str(effort["certified"]),
        )
    console.print(table)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its document.

    Raises:
        EngineError: the folder is not a collection, or the root no store that can be opened.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="a store with a generation")
    parser.add_argument("--corpus", type=Path, required=True, help="whose queries are asked")
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument("--max-results", type=int, default=10)
    parser.add_argument("--limit-queries", type=int, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    collection = read_collection(options.corpus).sample(options.limit_queries)
    queries = list(collection.queries.values())
    modes = MODES if options.mode == "all" else (options.mode,)
    # Time is not what is measured: a busy machine must not leave a shard out.
    patient = {"search": {"deadline_s": 600.0}, "catalog": {"max_staleness_s": 600.0}}
    config = load_config(None, root=str(options.root), **patient)

    async def ask_all() -> dict[str, dict[str, Any]]:
        knowledge = open_local(config)
        try:
            with Progress(console=Console(stderr=True)) as progress:
                return {
                    mode: effort_of(
                        await _ask(knowledge, queries, mode, options.max_results, progress)
                    )
                    for mode in modes
                }
        finally:
            await knowledge.close()

    document = {
        "benchmark": "rounds",
        "collection": collection.name,
        "depth": config.search.depth,
        "rank_window": config.search.rank_window,
        "max_results": options.max_results,
        "modes": asyncio.run(ask_all()),
        **provenance("benchmarks.rounds"),
    }
    _show(Console(), document["modes"])
    if options.json is not None:
        options.json.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return document


def main() -> None:
    """Run it from the command line. Exit codes: 0 done, 1 a named error, 2 usage."""
    try:
        run()
    except EngineError as error:
        sys.stderr.write(f"benchmarks.rounds: error: {error} ({error.code})\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
