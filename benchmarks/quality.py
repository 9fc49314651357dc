"""Retrieval quality on a test collection in BEIR form, through the product's own pipeline.

`python -m benchmarks.quality --corpus DIR --mode all --json result.json`

The collection is ingested, published and reindexed into a root of its own, then every query is
asked of the embedded engine. An item's score is that of its best passage, as in the product.
Measures as trec_eval computes them, by ir-measures; a query without an answer counts as 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ir_measures
from ir_measures import AP, RR, R, nDCG
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.beir import Collection, Scored, read_collection, run_lines, strictly_decreasing
from benchmarks.provenance import provenance
from engine.authorization import OPERATOR
from engine.config import Config, EncoderConfig, JobsConfig
from engine.contract import MODES, SearchRequest
from engine.errors import EngineError
from engine.ids import BaseId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.opening import create_store
from jobs.cluster import joined
from jobs.ingest import IngestOrder, ingest
from jobs.reindex import reindex

DEPTH = 100
"""Items asked of every query. More than a caller may ask for, so that R@100 can be measured."""

MEASURES = (nDCG @ 10, R @ 100, RR @ 10, AP @ 100)
_BASE = BaseId("collection")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mode's answers: query id to ranked documents, and milliseconds by query."""

    mode: str
    runs: dict[str, Scored]
    elapsed_ms: list[float]


def build(config: Config, collection: Collection, console: Console) -> dict[str, Any]:
    """Ingest, publish and reindex a collection; what the root holds already is left as it is."""
    started = time.monotonic()
    store = create_store(config.root)
    store.writer.create_base(_BASE, collection.name, "benchmark", None, "public")
    order = IngestOrder(collection.corpus, _BASE, publish=True)
    with joined(config.jobs):  # one Ray for both
        ingested = ingest(config, order, console)
        indexed = reindex(config, console, shards=config.jobs.shards)
    return {
        "ingest": ingested.document(),
        "reindex": indexed.document(),
        "seconds": round(time.monotonic() - started, 1),
    }


async def ask(
    knowledge: Knowledge, collection: Collection, mode: str, progress: Progress
) -> Outcome:
    """Ask every query of a collection in one mode, one after the other."""
    task = progress.add_task(mode, total=len(collection.queries))
    runs: dict[str, Scored] = {}
    elapsed_ms = []
    for name, text in collection.queries.items():
        request = SearchRequest(text.strip()[:4000], mode=mode, max_results=DEPTH)
        started = time.perf_counter()
        ranking = await knowledge.rank(request, OPERATOR)
        elapsed_ms.append((time.perf_counter() - started) * 1000)
        runs[name] = [(result.source_ref, result.scores.score) for result in ranking.results]
        progress.advance(task)
    return Outcome(mode, runs, elapsed_ms)


def measure(collection: Collection, outcome: Outcome) -> dict[str, Any]:
    """Compute the measures of one mode, averaged over all queries of the collection."""
    run = {
        query: dict(
            zip(
                (document for document, _ in scored),
                strictly_decreasing(score for _, score in scored),
                strict=True,
            )
        )
        for query, scored in outcome.runs.items()
    }
    qrels = {query: dict(judgments) for query, judgments in collection.qrels.items()}
    totals = dict.fromkeys(MEASURES, 0.0)
    for metric in ir_measures.iter_calc(list(MEASURES), qrels, run):
        totals[metric.measure] += metric.value
    count = len(collection.queries)
    latency = sorted(outcome.elapsed_ms)
    return {
        "mode": outcome.mode,
        **{str(name): round(total / count, 4) for name, total in totals.items()},
        "p50_ms": round(statistics.median(latency), 1),
        "p95_ms": round(latency[int(len(latency) * 0.95)], 1),
    }


async def _ask_all(
    config: Config, collection: Collection, modes: Sequence[str], progress: Progress
) -> list[Outcome]:
    knowledge = open_local(config)
    try:
        return [await ask(knowledge, collection, mode, progress) for mode in modes]
    finally:
        await knowledge.close()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--mode", choices=[*MODES, "all"], default="all")
    parser.add_argument(
        "--encoder",
        help="default, hashing, a model id or a folder; when not given: hashing for lexical alone",
    )
    parser.add_argument("--limit-queries", type=_positive, metavar="N")
    parser.add_argument("--shards", type=_positive, default=2, metavar="N")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="build here and keep it; default: a temporary one"
    )
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write one JSON document, to standard output when no file is named",
    )
    parser.add_argument(
        "--run", type=Path, metavar="FILE", help="write a TREC run; with all: FILE.MODE"
    )
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _configure(options: argparse.Namespace, modes: Sequence[str], root: str) -> Config:
    model = options.encoder or ("hashing" if list(modes) == ["lexical"] else "default")
    return Config(
        root=root,
        encoder=EncoderConfig(model=model),
        jobs=JobsConfig(shards=options.shards),
    )


def _write_runs(options: argparse.Namespace, outcomes: Sequence[Outcome]) -> None:
    for outcome in outcomes:
        path: Path = options.run
        if len(outcomes) > 1:
            path = path.with_name(f"{path.name}.{outcome.mode}")
        path.write_text("".join(run_lines(outcome.runs, f"octavo-{outcome.mode}")), "utf-8")


def _show(console: Console, document: dict[str, Any]) -> None:
    table = Table(title=f"{document['collection']}, {document['queries']} queries", box=None)
    names = list(document["modes"][0])
    for name in names:
        table.add_column(name, justify="left" if name == "mode" else "right")
    for row in document["modes"]:
        table.add_row(*(f"{row[name]}" for name in names))
    console.print(table)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its document.

    Raises:
        EngineError: the folder is not a collection, or a job failed.
    """
    options = _arguments(argv)
    err = Console(stderr=True)
    modes = MODES if options.mode == "all" else (options.mode,)
    collection = read_collection(options.corpus).sample(options.limit_queries)
    with ExitStack() as stack:
        root = options.root or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="octavo-quality-")
        )
        config = _configure(options, modes, str(root))
        built = build(config, collection, err)
        with Progress(console=err) as progress:
            outcomes = asyncio.run(_ask_all(config, collection, modes, progress))
    if options.run is not None:
        _write_runs(options, outcomes)
    document = {
        "benchmark": "quality",
        "collection": collection.name,
        "queries": len(collection.queries),
        "queries_without_positive_judgment": collection.left_out,
        "encoder": config.encoder.model,
        "shards": options.shards,
        "results_per_query": DEPTH,
        "modes": [measure(collection, outcome) for outcome in outcomes],
        "build": built,
        **provenance("benchmarks.quality"),
    }
    if options.json == "-":
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
    elif options.json is not None:
        Path(options.json).write_text(json.dumps(document, ensure_ascii=False, indent=2), "utf-8")
    _show(err if options.json == "-" else Console(), document)
    return document


def main() -> None:
    """Run it from the command line. Exit codes: 0 done, 1 a named error, 2 usage."""
    try:
        run()
    except EngineError as error:
        sys.stderr.write(f"benchmarks.quality: error: {error} ({error.code})\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
