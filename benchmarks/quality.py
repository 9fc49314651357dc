"""Retrieval quality on test collections in BEIR form, through the product's own pipeline.

`python -m benchmarks.quality --corpus DIR --mode all --json result.json`
`python -m benchmarks.quality --all FOLDER --json results.json`

A collection is ingested, published and reindexed into a root of its own, then every query is asked
of the embedded engine. An item's score is that of its best passage, as in the product. What is
decided by measurement is decided on one half of the queries (`--half tune`), and the other half is
what gets published. Vectors are kept between runs, so that a rerun encodes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.beir import HALVES, Collection, Half, collections_in, read_collection, run_lines
from benchmarks.measures import MEASURES, Outcome, by_query, gain, latency, means
from benchmarks.options import configure, parse_options
from benchmarks.provenance import provenance
from benchmarks.queries import KeptQueries
from engine.authorization import OPERATOR
from engine.config import Config
from engine.contract import MODES, SearchRequest
from engine.encoders.encoder import Encoder
from engine.encoders.opening import open_encoder
from engine.errors import EngineError
from engine.ids import BaseId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.opening import create_store
from jobs.cluster import joined
from jobs.ingest import IngestOrder, ingest
from jobs.reindex import reindex
from jobs.vectorcache import open_vector_cache

DEPTH = 100
"""Items asked of every query. More than a caller may ask for, so that R@100 can be measured."""

_BASE = BaseId("collection")
_LEADING = str(MEASURES[0])


@dataclass(frozen=True, slots=True)
class Built:
    """A collection in a root of its own.

    Attributes:
        collection: with the queries that are asked.
        config: names the root.
        build: what the jobs reported.
    """

    collection: Collection
    config: Config
    build: dict[str, Any]


def build(config: Config, collection: Collection, console: Console) -> Built:
    """Ingest, publish and reindex a collection; what the root holds already is left as it is."""
    started = time.monotonic()
    store = create_store(config.root)
    store.writer.create_base(_BASE, collection.name, "benchmark", None, "public")
    order = IngestOrder(collection.corpus, _BASE, publish=True)
    with joined(config.jobs):  # one Ray for both
        ingested = ingest(config, order, console)
        indexed = reindex(config, console, shards=config.jobs.shards)
    told = {
        "ingest": ingested.document(),
        "reindex": indexed.document(),
        "seconds": round(time.monotonic() - started, 1),
    }
    return Built(collection, config, told)


async def ask(
    knowledge: Knowledge, collection: Collection, mode: str, progress: Progress
) -> Outcome:
    """Ask every query of a collection in one mode, one after the other."""
    task = progress.add_task(f"{collection.name}, {mode}", total=len(collection.queries))
    runs = {}
    elapsed_ms = {}
    for name, text in collection.queries.items():
        request = SearchRequest(text.strip()[:4000], mode=mode, max_results=DEPTH)
        started = time.perf_counter()
        ranking = await knowledge.rank(request, OPERATOR)
        elapsed_ms[name] = (time.perf_counter() - started) * 1000
        runs[name] = [(result.source_ref, result.scores.score) for result in ranking.results]
        progress.advance(task)
    return Outcome(mode, runs, elapsed_ms)


@contextmanager
def _kept_queries(config: Config) -> Iterator[KeptQueries | Encoder]:
    """Open the encoder, before which the kept vectors of queries stand, if any are kept."""
    encoder = open_encoder(config.encoder)
    cache = open_vector_cache(config.jobs, encoder)
    if cache is None:
        yield encoder
        return
    with closing(cache):
        yield KeptQueries(encoder, cache)


async def _ask_all(
    built: Built, encoder: Encoder | None, modes: Sequence[str], progress: Progress
) -> list[Outcome]:
    knowledge = open_local(built.config, encoder)
    try:
        return [await ask(knowledge, built.collection, mode, progress) for mode in modes]
    finally:
        await knowledge.close()


def document_of(built: Built, outcomes: Sequence[Outcome], half: Half | None) -> dict[str, Any]:
    """Return the measures of a collection by mode, of all its queries and of each half.

    Args:
        built: the collection, with the queries that were asked.
        outcomes: of each mode.
        half: which half was asked; None: both.
    """
    asked = built.collection
    parts: dict[str, Collection] = {half: asked} if half else {"all": asked}
    if not half:
        parts |= {name: asked.half(name) for name in HALVES}
    modes: dict[str, dict[str, Any]] = {outcome.mode: {} for outcome in outcomes}
    gains = {}
    for name, part in parts.items():
        if not part.queries:
            continue
        values = {outcome.mode: by_query(part, outcome.runs) for outcome in outcomes}
        for mode, found in values.items():
            modes[mode][name] = means(found)
        if {"hybrid", "lexical", "semantic"} <= set(values):
            leading = {mode: found[_LEADING] for mode, found in values.items()}
            gains[name] = {
                side: gain(leading["hybrid"], leading[side]) for side in ("lexical", "semantic")
            }
    document = {
        "collection": asked.name,
        "queries": {name: len(part.queries) for name, part in parts.items()},
        "queries_without_positive_judgment": asked.left_out,
        "modes": modes,
        "search": {outcome.mode: latency(outcome) for outcome in outcomes},
        "build": built.build,
    }
    return document | ({f"hybrid_gain_{_LEADING}": gains} if gains else {})


def _write_runs(path: Path, name: str | None, outcomes: Sequence[Outcome]) -> None:
    """Write TREC runs: `PATH`, with the collection and the mode where there are several."""
    for outcome in outcomes:
        parts = [path.name, name, outcome.mode if len(outcomes) > 1 else None]
        target = path.with_name(".".join(part for part in parts if part))
        target.write_text("".join(run_lines(outcome.runs, f"octavo-{outcome.mode}")), "utf-8")


def _show(console: Console, document: Mapping[str, Any]) -> None:
    for half, queries in document["queries"].items():
        if not queries:
            continue
        table = Table(title=f"{document['collection']}, {half}: {queries} queries", box=None)
        table.add_column("mode")
        for measure in MEASURES:
            table.add_column(str(measure), justify="right")
        for mode, found in document["modes"].items():
            table.add_row(mode, *(f"{found[half][str(measure)]:.4f}" for measure in MEASURES))
        console.print(table)


def _collections(options: argparse.Namespace) -> list[Collection]:
    folders = options.corpus or collections_in(options.all)
    found = []
    for folder in folders:
        collection = read_collection(folder)
        if options.half != "all":
            collection = collection.half(options.half)
        found.append(collection.sample(options.limit_queries))
    return found


def _write(options: argparse.Namespace, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
    elif options.json is not None:
        Path(options.json).write_text(text, "utf-8")


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its document.

    Raises:
        EngineError: a folder is not a collection, or a job failed.
    """
    options = parse_options(argv, __doc__ or "")
    err = Console(stderr=True)
    out = err if options.json == "-" else Console()
    modes = MODES if options.mode == "all" else (options.mode,)
    half = None if options.half == "all" else options.half
    collections = _collections(options)
    whence = provenance("benchmarks.quality")
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="octavo-quality-")
        root = options.root or Path(stack.enter_context(temporary))
        places = [(configure(options, modes, root / one.name), one) for one in collections]
        with joined(places[0][0].jobs):  # jobs first: a JVM in this process comes after Ray
            built = [build(config, collection, err) for config, collection in places]
        config = places[0][0]
        lexical = list(modes) == ["lexical"]
        encoder = None if lexical else stack.enter_context(_kept_queries(config))
        documents = []
        for one in built:
            with Progress(console=err) as progress:
                outcomes = asyncio.run(_ask_all(one, encoder, modes, progress))
            if options.run is not None:
                name = one.collection.name if len(built) > 1 else None
                _write_runs(options.run, name, outcomes)
            documents.append(document_of(one, outcomes, half))
            _show(out, documents[-1])
    document = {
        "benchmark": "quality",
        "encoder": config.encoder.model,
        "fingerprint": None if encoder is None else encoder.fingerprint,
        "queries_encoded": encoder.encoded if isinstance(encoder, KeptQueries) else None,
        "passages": config.passages.model_dump(),
        "k1": config.index.k1,
        "b": config.index.b,
        "shards": options.shards,
        "results_per_query": DEPTH,
        "most_queries_a_collection": options.limit_queries,
        "collections": documents,
        **whence,
    }
    _write(options, document)
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
