"""What it costs that most of a store may not be read: one base of many, and all of them.

`python -m benchmarks.access --corpus DIR --bases 1000 --json result.json`

A collection in BEIR form is spread over private bases and indexed. Every query is asked in all
modes by the operator, who reads all, and by the owner of the first base, who reads that one. Both
ask in turns, so that a busy machine disturbs both alike. Times are of the whole search in this
process; CPU time is that of the process, all its threads.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.beir import read_collection
from benchmarks.provenance import provenance
from benchmarks.queries import KeptQueries
from engine.authorization import OPERATOR, READ_SCOPE, Principal
from engine.config import CatalogConfig, Config, EncoderConfig, JobsConfig, SearchConfig
from engine.contract import MAX_QUERY_CHARS, MODES, SearchRequest
from engine.encoders.opening import open_encoder
from engine.errors import EngineError
from engine.ids import BaseId, ItemId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.opening import create_store
from engine.store.revisions import NewRevision
from engine.text.language import detect
from jobs.cluster import joined
from jobs.reindex import reindex
from jobs.vectorcache import open_vector_cache

OWNER = Principal("owner-0", scopes=frozenset({READ_SCOPE}))
READERS = {"all bases": OPERATOR, "one base": OWNER}
_PATIENCE_S = 600.0
_BATCH = 2000
_RESULTS = 10


@dataclass(slots=True)
class Spent:
    """What asking came to: milliseconds of the clock and of the processor, results, by query."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return medians, and the number of answers and of results."""
        return {
            "answers": len(self.clock),
            "p50_ms": round(statistics.median(self.clock), 2),
            "p95_ms": round(statistics.quantiles(self.clock, n=20)[-1], 2),
            "cpu_p50_ms": round(statistics.median(self.processor), 2),
            "results_p50": statistics.median(self.results),
        }


def revisions(corpus: Path, bases: int) -> Iterator[NewRevision]:
    """Yield the documents of a corpus, dealt to bases in turns; empty ones are left out."""
    opened = gzip.open if corpus.suffix == ".gz" else open
    with opened(corpus, "rt", encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file)):
            row = json.loads(line)
            if not row["text"].strip():
                continue
            yield NewRevision(
                base_id=BaseId(f"base-{number % bases}"),
                title=row.get("title") or row["_id"],
                content=row["text"],
                language=row.get("lang") or detect(row["text"]),
                source_type="file",
                source_ref=corpus.name,
                item_id=ItemId(row["_id"]),
            )


def build(config: Config, corpus: Path, bases: int, console: Console) -> dict[str, Any]:
    """Fill a store and index it; return what the reindex said."""
    writer = create_store(config.root).writer
    for number in range(bases):
        writer.create_base(
            BaseId(f"base-{number}"), f"Base {number}", f"owner-{number}", None, "private"
        )
    batch: list[NewRevision] = []
    for row in revisions(corpus, bases):
        batch.append(row)
        if len(batch) == _BATCH:
            writer.add_revisions(batch, publish=True)
            batch = []
    writer.add_revisions(batch, publish=True)
    with joined(config.jobs):
        return reindex(config, console).document()


async def _race(
    knowledge: Knowledge, queries: Sequence[str], rounds: int, progress: Progress
) -> dict[str, dict[str, Spent]]:
    """Let the readers ask every query in turns, in every mode."""
    spent = {mode: {reader: Spent() for reader in READERS} for mode in MODES}
    task = progress.add_task("asking", total=rounds * len(MODES) * len(queries))
    for turn in range(rounds + 1):  # the first round warms caches and is not counted
        for mode in MODES:
            for query in queries if turn else queries[:20]:
                request = SearchRequest(query, mode=mode, max_results=_RESULTS)
                for reader, principal in READERS.items():
                    clock, processor = time.perf_counter(), time.process_time()
                    ranking = await knowledge.rank(request, principal)
                    if turn:
                        told = spent[mode][reader]
                        told.processor.append((time.process_time() - processor) * 1e3)
                        told.clock.append((time.perf_counter() - clock) * 1e3)
                        told.results.append(len(ranking.results))
                if turn:
                    progress.advance(task)
    return spent


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.access", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument("--bases", type=int, default=1000, metavar="N")
    parser.add_argument("--shards", type=int, default=2, metavar="N")
    parser.add_argument("--encoder", default="default", help="default, hashing, an id or a folder")
    parser.add_argument("--limit-queries", type=int, default=100, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--vector-cache", default="", metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def _show(console: Console, modes: Mapping[str, Mapping[str, Any]]) -> None:
    table = Table(box=None)
    for name in ("mode", *READERS, "ratio", "cpu ratio"):
        table.add_column(name, justify="right")
    for mode, row in modes.items():
        told = [f"{row[r]['p50_ms']} ms, {row[r]['results_p50']:.0f} results" for r in READERS]
        table.add_row(mode, *told, str(row["ratio"]), str(row["cpu_ratio"]))
    console.print(table)


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its document.

    Raises:
        EngineError: the folder is not a collection, or a job failed.
    """
    options = _arguments(argv)
    err = Console(stderr=True)
    collection = read_collection(options.corpus).sample(options.limit_queries)
    with ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-access-"))
        config = Config(
            root=f"{work}/store",
            encoder=EncoderConfig(model=options.encoder),
            jobs=JobsConfig(shards=options.shards, vector_cache=options.vector_cache),
            search=SearchConfig(deadline_s=_PATIENCE_S, allow_partial=False),
            catalog=CatalogConfig(max_staleness_s=_PATIENCE_S),
        )
        facts = build(config, collection.corpus, options.bases, err)
        encoder = open_encoder(config.encoder)
        cache = open_vector_cache(config.jobs, encoder)
        knowledge = open_local(config, encoder if cache is None else KeptQueries(encoder, cache))
        queries = [text.strip()[:MAX_QUERY_CHARS] for text in collection.queries.values()]

        async def asked() -> dict[str, dict[str, Spent]]:
            try:
                return await _race(knowledge, queries, options.rounds, progress)
            finally:
                await knowledge.close()

        with Progress(console=err) as progress:
            spent = asyncio.run(asked())
    modes: dict[str, dict[str, Any]] = {}
    for mode, readers in spent.items():
        everything, one = (readers[name].document() for name in READERS)
        modes[mode] = {
            **dict(zip(READERS, (everything, one), strict=True)),
            "ratio": round(one["p50_ms"] / everything["p50_ms"], 3),
            "cpu_ratio": round(one["cpu_p50_ms"] / everything["cpu_p50_ms"], 3),
        }
    document = {
        "benchmark": "access",
        "collection": collection.name,
        "bases": options.bases,
        "shards": options.shards,
        "passages": facts["total_passages"],
        "encoder": options.encoder,
        "queries": len(queries),
        "rounds": options.rounds,
        "modes": modes,
        **provenance("benchmarks.access"),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    _show(Console(), modes)
    return document


def main() -> None:
    """Run it from the command line. Exit codes: 0 done, 1 a named error, 2 usage."""
    try:
        run()
    except EngineError as error:
        sys.stderr.write(f"benchmarks.access: error: {error} ({error.code})\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
