"""Whether a collection answers alike in every layout: the same bytes, and those of brute force.

`python -m benchmarks.invariance --corpus DIR --layouts 1,2,5,13 --json result.json`

A collection in BEIR form is spread over three bases (everybody's, a team's, one person's), indexed
once, and reindexed by the product into other numbers of shards, which copies vectors. Every query
is asked in all modes: by the operator, by the operator narrowed to one base, and by a member of the
team. Counted are the rendered answers that are the same bytes as those of the first layout, and
those that `octavo verify ranking` finds right. With `--root` an index that exists is copied, and
its vectors are used; its own base is archived, so that it also holds the dead.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.beir import Collection, read_collection
from benchmarks.provenance import provenance
from benchmarks.queries import KeptQueries
from engine.authorization import OPERATOR, READ_SCOPE, Principal
from engine.config import CatalogConfig, Config, EncoderConfig, JobsConfig, SearchConfig
from engine.contract import MODES
from engine.encoders.encoder import Encoder
from engine.encoders.opening import open_encoder
from engine.errors import EngineError
from engine.ids import BaseId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.opening import Store, create_store
from jobs.cluster import joined
from jobs.ingest import IngestOrder, ingest
from jobs.reindex import reindex
from jobs.vectorcache import open_vector_cache
from jobs.verify_queries import read_queries
from jobs.verify_ranking import KINDS, RankingOrder, verify_ranking

MEMBER = Principal("bob", frozenset({"blue"}), frozenset({READ_SCOPE}))
"""Reads the public base and the team's, and not the private one."""

_PATIENCE_S = 600.0
_PUBLIC, _TEAM, _PRIVATE = BaseId("everybodys"), BaseId("teams"), BaseId("carols")
_TURNS = (_PUBLIC, _TEAM, _PUBLIC, _PRIVATE)
"""The base of the first document, the second, and so on, over and over."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One way of asking: its name, who asks, and the base it is narrowed to, if any."""

    name: str
    principal: Principal
    base: str = ""


ASKERS = (
    Asker("operator", OPERATOR),
    Asker("operator, one base", OPERATOR, _PUBLIC),
    Asker("team member", MEMBER),
)


@dataclass(slots=True)
class Layout:
    """One layout, and what came of asking it.

    Attributes:
        shards: how many.
        config: names its root.
        facts: what the reindex that made it said.
        answers: digest of the rendered answer, by asker, mode and query.
        verified: verdicts of the verification, counted.
        largest: the largest difference to brute force.
    """

    shards: int
    config: Config
    facts: Mapping[str, Any]
    answers: dict[tuple[str, str, str], str] = field(default_factory=dict)
    verified: Counter[str] = field(default_factory=Counter)
    largest: float = 0.0


def split(corpus: Path, folder: Path) -> dict[BaseId, Path]:
    """Write the documents of a corpus into one file a base, in turns."""
    opened = gzip.open if corpus.suffix == ".gz" else open
    lines: dict[BaseId, list[str]] = {}
    with opened(corpus, "rt", encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file)):
            lines.setdefault(_TURNS[number % len(_TURNS)], []).append(line)
    files = {}
    for base, mine in lines.items():
        files[base] = folder / f"{base}.jsonl"
        files[base].write_text("".join(mine), "utf-8")
    return files


def make_bases(store: Store) -> None:
    """Make the three bases: everybody's, the team's, and one that only its owner reads."""
    store.writer.create_base(_PUBLIC, "Everybody's", "benchmark", None, "public")
    store.writer.create_base(_TEAM, "The team's", "alice", "blue", "team")
    store.writer.create_base(_PRIVATE, "Carol's", "carol", None, "private")


def _config(root: Path, options: argparse.Namespace) -> Config:
    return Config(
        root=str(root),
        encoder=EncoderConfig(model=options.encoder),
        jobs=JobsConfig(shards=1, vector_cache=options.vector_cache),
        search=SearchConfig(deadline_s=_PATIENCE_S, allow_partial=False),
        catalog=CatalogConfig(max_staleness_s=_PATIENCE_S),
    )


def build(
    options: argparse.Namespace, collection: Collection, work: Path, console: Console
) -> list[Layout]:
    """Index the collection once, and make a copy of the store for every further layout."""
    first, *others = options.layouts
    config = _config(work / f"shards-{first}", options)
    if options.root is not None:
        shutil.copytree(options.root, config.root)
    store = create_store(config.root)
    before = [base.base_id for base in store.catalog.poll().bases()]
    make_bases(store)
    layouts = []
    with joined(config.jobs):  # one Ray for all
        for base, path in split(collection.corpus, work).items():
            ingest(config, IngestOrder(path, base, publish=True), console)
        for base in before:
            store.writer.archive_base(base)
        made = reindex(config, console, shards=first, rebuild=bool(before))
        layouts.append(Layout(first, config, made.document()))
        for shards in others:
            copy = _config(work / f"shards-{shards}", options)
            shutil.copytree(config.root, copy.root)
            layouts.append(Layout(shards, copy, reindex(copy, console, shards=shards).document()))
    return layouts


async def _ask(
    knowledge: Knowledge, layout: Layout, collection: Collection, progress: Progress
) -> None:
    task = progress.add_task(
        f"{layout.shards} shards", total=len(collection.queries) * len(ASKERS) * len(MODES)
    )
    for asker in ASKERS:
        for mode in MODES:
            for name, text in collection.queries.items():
                arguments = {"query": text[:4000], "mode": mode, "knowledge_base_id": asker.base}
                answer = await knowledge.answer(arguments, asker.principal)
                digest = hashlib.sha256(orjson.dumps(answer)).hexdigest()
                layout.answers[asker.name, mode, name] = digest
                progress.advance(task)


async def _asked(
    layout: Layout, encoder: Encoder, collection: Collection, progress: Progress
) -> None:
    knowledge = open_local(layout.config, encoder)
    try:
        await _ask(knowledge, layout, collection, progress)
    finally:
        await knowledge.close()


def _verify(layout: Layout, encoder: Encoder, queries: Path, sample: int, console: Console) -> None:
    for asker in ASKERS:
        lines = read_queries(queries, MODES, {"knowledge_base_id": asker.base}, sample)
        order = RankingOrder(lines, asker.principal)
        report = verify_ranking(layout.config, order, console, encoder)
        layout.verified.update({kind: report.count(kind) for kind in KINDS})
        layout.largest = max(layout.largest, report.largest)


def describe(layout: Layout, first: Layout) -> dict[str, Any]:
    """Count a layout's answers that are the same bytes as the first layout's."""
    same = [key for key, digest in layout.answers.items() if first.answers[key] == digest]
    by_asker = Counter(asker for asker, _, _ in same)
    by_mode = Counter(mode for _, mode, _ in same)
    return {
        "shards": layout.shards,
        "passages": layout.facts["total_passages"],
        "segments": layout.facts["segments"],
        "encoded": layout.facts["encoded"],
        "answers": len(layout.answers),
        "identical": len(same),
        "identical_by_asker": {asker.name: by_asker[asker.name] for asker in ASKERS},
        "identical_by_mode": {mode: by_mode[mode] for mode in MODES},
        "verified": {kind: layout.verified[kind] for kind in KINDS},
        "largest_difference": layout.largest,
    }


@contextmanager
def _encoder(config: Config) -> Iterator[Encoder]:
    """Open the encoder; with a vector cache no query is encoded twice."""
    encoder = open_encoder(config.encoder)
    cache = open_vector_cache(config.jobs, encoder)
    if cache is None:
        yield encoder
        return
    try:
        yield KeptQueries(encoder, cache)
    finally:
        cache.close()


def _numbers(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",")]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("a layout has at least 1 shard")
    return list(dict.fromkeys(numbers))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.invariance", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--corpus", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="a store of the collection to copy vectors from"
    )
    parser.add_argument("--layouts", type=_numbers, default=[1, 2, 5, 13], metavar="N,N,...")
    parser.add_argument("--encoder", default="default", help="default, hashing, an id or a folder")
    parser.add_argument("--limit-queries", type=int, metavar="N")
    parser.add_argument(
        "--verify-queries", type=int, default=50, metavar="N", help="queries that are verified"
    )
    parser.add_argument(
        "--vector-cache", metavar="DIR", help="default: one that is thrown away", default=""
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


def _show(console: Console, document: dict[str, Any]) -> None:
    table = Table(title=f"{document['collection']}, {document['queries']} queries", box=None)
    for name in ("shards", "passages", "answers", "identical", "agree", "disagree"):
        table.add_column(name, justify="right")
    for row in document["layouts"]:
        cells = {**row, **row["verified"]}
        table.add_row(*(str(cells[column.header]) for column in table.columns))
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
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-invariance-")))
        options.vector_cache = options.vector_cache or str(work / "vectors")
        layouts = build(options, collection, work, err)
        encoder = stack.enter_context(_encoder(layouts[0].config))
        queries = work / "queries.jsonl"
        texts = [{"text": text[:4000]} for text in collection.queries.values()]
        queries.write_text("\n".join(map(json.dumps, texts)), "utf-8")
        with Progress(console=err) as progress:
            for layout in layouts:
                asyncio.run(_asked(layout, encoder, collection, progress))
        for layout in layouts:
            _verify(layout, encoder, queries, options.verify_queries, err)
    rows = [describe(layout, layouts[0]) for layout in layouts]
    document = {
        "benchmark": "invariance",
        "collection": collection.name,
        "queries": len(collection.queries),
        "verified_queries": min(options.verify_queries, len(collection.queries)),
        "encoder": options.encoder,
        "answers": sum(row["answers"] for row in rows),
        "identical": sum(row["identical"] for row in rows),
        "layouts": rows,
        **provenance("benchmarks.invariance"),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, ensure_ascii=False, indent=2), "utf-8")
    _show(Console(), document)
    return document


def main() -> None:
    """Run it from the command line. Exit codes: 0 done, 1 a named error, 2 usage."""
    try:
        run()
    except EngineError as error:
        sys.stderr.write(f"benchmarks.invariance: error: {error} ({error.code})\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
