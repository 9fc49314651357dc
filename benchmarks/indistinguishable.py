"""Whether the time of a refusal tells why: samples of every reason, interleaved, against `missing`.

`python -m benchmarks.indistinguishable --samples 2000 --json result.json`

A small store holds a base of somebody else, an archived base, an unpublished item, a draft, and a
withdrawn revision. A caller asks for each, for what does not exist, and for an item under another
base's name, in random order, through the HTTP door and in the engine. Reported is the area under
the ROC curve of telling a reason from `missing` by the time alone: 0.5 is chance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.provenance import provenance
from engine.authorization import READ_SCOPE, Principal
from engine.config import CatalogConfig, Config, EncoderConfig, JobsConfig
from engine.errors import ResourceUnavailableError
from engine.ids import BaseId, ItemId, RevisionId
from engine.local import open_local
from engine.search.answering import Knowledge
from engine.store.opening import create_store
from engine.store.revisions import NewRevision
from jobs.cluster import joined
from jobs.reindex import reindex
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app

SEED = 1
CALLER = Principal("alice", scopes=frozenset({READ_SCOPE}))
MARGIN = 0.03

READS: dict[str, dict[str, str]] = {
    "missing": {"knowledge_item_id": "no-such"},
    "foreign": {"knowledge_item_id": "foreign"},
    "archived base": {"knowledge_item_id": "archive"},
    "unpublished": {"knowledge_item_id": "unpubld"},
    "draft": {"knowledge_item_id": "drafted"},
    "missing, pinned": {"knowledge_item_id": "no-such", "knowledge_revision_id": "r1"},
    "foreign, pinned": {"knowledge_item_id": "foreign", "knowledge_revision_id": "r1"},
    "draft, pinned": {"knowledge_item_id": "drafted", "knowledge_revision_id": "r1"},
    "missing revision, pinned": {"knowledge_item_id": "visible", "knowledge_revision_id": "r9"},
    "withdrawn, pinned": {"knowledge_item_id": "withdrw", "knowledge_revision_id": "r1"},
    "missing, narrowed": {"knowledge_item_id": "no-such", "knowledge_base_id": "other"},
    "mismatched, narrowed": {"knowledge_item_id": "visible", "knowledge_base_id": "other"},
}
"""Addressed reads that are refused, by reason; ids are equally long. A case is compared with what
is missing and asked for in the same form: what a caller sends takes time that it knows of."""

SEARCHES: dict[str, dict[str, str]] = {
    "missing": {"query": "server", "knowledge_base_id": "no-such"},
    "foreign": {"query": "server", "knowledge_base_id": "foreign"},
    "archived base": {"query": "server", "knowledge_base_id": "archive"},
}
"""Searches that are refused because of the base they are narrowed to."""

Ask = Callable[[Mapping[str, str]], Awaitable[None]]


def area(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the area under the ROC curve: how often a sample of `one` exceeds one of `other`.

    Ties count half (Mann and Whitney 1947).
    """
    smaller = np.sort(np.asarray(other))
    below = np.searchsorted(smaller, one, side="left")
    upto = np.searchsorted(smaller, one, side="right")
    return float((below + upto).mean() / 2 / len(smaller))


def fill(config: Config) -> None:
    """Make the store."""
    writer = create_store(config.root).writer
    owners = {"visible": "alice", "other": "alice", "foreign": "bob", "archive": "alice"}
    for base, owner in owners.items():
        writer.create_base(BaseId(base), base, owner, None, "private")

    def add(base: str, item: str, *, publish: bool = True) -> None:
        row = NewRevision(
            base_id=BaseId(base),
            title="Server",
            content="a server " * 200,
            language="en",
            source_type="file",
            source_ref="x",
            item_id=ItemId(item),
            revision_id=RevisionId("r1"),
        )
        writer.add_revisions([row], publish=publish)

    for item in ("visible", "unpubld", "withdrw"):
        add("visible", item)
    add("visible", "drafted", publish=False)
    add("foreign", "foreign")
    add("archive", "archive")
    with joined(config.jobs):
        reindex(config, Console(stderr=True, quiet=True))
    writer.unpublish([ItemId("unpubld")])
    writer.withdraw(ItemId("withdrw"), RevisionId("r1"))
    writer.archive_base(BaseId("archive"))


async def sample(
    ask: Ask, cases: Mapping[str, Mapping[str, str]], samples: int
) -> dict[str, list[float]]:
    """Time every case `samples` times, in a random order that is the same each time.

    Returns:
        Microseconds, by case.
    """
    order = [name for name in cases for _ in range(samples)]
    random.Random(SEED).shuffle(order)
    for name in list(cases) * 50:  # warm up
        await ask(cases[name])
    took: dict[str, list[float]] = {name: [] for name in cases}
    for name in order:
        begun = time.perf_counter_ns()
        await ask(cases[name])
        took[name].append((time.perf_counter_ns() - begun) / 1e3)
    return took


def describe(took: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Compare every case with what is missing and asked for in the same form."""
    return {
        name: {
            "samples": len(times),
            "p50_us": round(statistics.median(times), 1),
            "area": round(area(times, took[_missing(name)]), 4),
        }
        for name, times in took.items()
    }


def _missing(name: str) -> str:
    _, comma, form = name.partition(", ")
    return f"missing{comma}{form}"


def _in_engine(knowledge: Knowledge) -> Ask:
    async def ask(arguments: Mapping[str, str]) -> None:
        try:
            await knowledge.answer(arguments, CALLER)
        except ResourceUnavailableError:
            return
        raise RuntimeError(f"{arguments} was answered")

    return ask


def _over_http(client: httpx2.AsyncClient, token: str) -> Ask:
    headers = {"authorization": f"Bearer {token}"}
    wanted: list[bytes] = []

    async def ask(arguments: Mapping[str, str]) -> None:
        if "query" in arguments:
            response = await client.post("/v1/search", json=dict(arguments), headers=headers)
        else:
            path = f"/v1/items/{arguments['knowledge_item_id']}"
            if "knowledge_revision_id" in arguments:
                path += f"/revisions/{arguments['knowledge_revision_id']}"
            base = arguments.get("knowledge_base_id")
            parameters = {} if base is None else {"knowledge_base_id": base}
            response = await client.get(path, params=parameters, headers=headers)
        wanted[:] = wanted or [response.content]
        if response.status_code != 404 or [response.content] != wanted:
            raise RuntimeError(f"{arguments} was answered {response.status_code}")

    return ask


async def measure(config: Config, samples: int) -> dict[str, Any]:
    """Sample both doors.

    Raises:
        RuntimeError: something was not refused, or a refusal differs by a byte.
    """
    knowledge = open_local(config)
    token, entry = make_token("alice")
    file = Path(config.root).parent / "tokens.yaml"
    file.write_text(yaml.safe_dump({"tokens": [entry]}), "utf-8")
    app = build_app(knowledge, config, StaticTokens(file))
    transport = httpx2.ASGITransport(app=app)
    doors: dict[str, Any] = {}
    try:
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client,
        ):
            for door, ask in (
                ("engine", _in_engine(knowledge)),
                ("http", _over_http(client, token)),
            ):
                doors[door] = {
                    "reads": describe(await sample(ask, READS, samples)),
                    "searches": describe(await sample(ask, SEARCHES, samples)),
                }
    finally:
        await knowledge.close()
    return doors


def farthest(cases: Mapping[str, Mapping[str, Mapping[str, float]]]) -> float:
    """Return how far from chance the worst case of a door lies."""
    areas = [case["area"] for kind in cases.values() for case in kind.values()]
    return round(max(abs(each - 0.5) for each in areas), 4)


def _show(console: Console, document: Mapping[str, Any]) -> None:
    table = Table(box=None)
    for name in ("door", "kind", "case", "median us", "area"):
        table.add_column(name)
    for door, kinds in document["doors"].items():
        for kind, cases in kinds.items():
            for case, told in cases.items():
                table.add_row(door, kind, case, str(told["p50_us"]), str(told["area"]))
    console.print(table)
    console.print(f"farthest from 0.5: {document['farthest_from_chance']}, within {MARGIN}?")


def run(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark and return its document."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.indistinguishable", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--samples", type=int, default=2000, metavar="N", help="of every case")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="octavo-refusals-") as work:
        config = Config(
            root=f"{work}/store",
            encoder=EncoderConfig(model="hashing"),
            jobs=JobsConfig(shards=1),
            catalog=CatalogConfig(max_staleness_s=600.0),
        )
        fill(config)
        doors = asyncio.run(measure(config, options.samples))
    document = {
        "benchmark": "indistinguishable",
        "samples": options.samples,
        "seed": SEED,
        "doors": doors,
        "farthest_from_chance": {door: farthest(cases) for door, cases in doors.items()},
        "within": MARGIN,
        **provenance("benchmarks.indistinguishable"),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", "utf-8")
    _show(Console(), document)
    return document


def main() -> None:
    """Run it from the command line. Exit codes: 0 within the margin, 1 not, 2 usage.

    The margin holds at the door that callers stand at. Inside the engine, in the same process,
    fractions of a microsecond can be seen that no caller sees.
    """
    sys.exit(0 if run()["farthest_from_chance"]["http"] <= MARGIN else 1)


if __name__ == "__main__":
    main()
