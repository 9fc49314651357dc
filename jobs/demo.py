"""`octavo demo`: the whole product once, on real texts, through a real MCP client.

Ingest, publish, reindex with Ray, serve with Ray Serve, and a scripted visit. It stops what it
started, unless it is asked to leave the server running.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from engine.config import Config, dump_config
from engine.errors import EngineError
from engine.ids import BaseId
from engine.store.opening import create_store
from engine.store.writer import StoreWriter
from jobs import demo_visit
from jobs.cluster import joined
from jobs.demo_corpus import collect, write_jsonl
from jobs.demo_server import free_port, leave_running, stop_left_running
from jobs.demo_visit import Address, DemoError, Visit, expect
from jobs.ingest import IngestOrder, IngestReport, ingest
from jobs.reindex import reindex
from serve.launcher import Spawned, spawn

SHARDS = 3
PACKAGE_PASSAGES = 1_450
LEAST_PASSAGES = 1_500

_PACKAGES = BaseId("packages")
_DOCS = BaseId("octavo")
_PRIVATE = BaseId("private-notes")
_DOCS_FOLDER = Path(__file__).resolve().parent.parent / "docs"
_CHANGED = "en/operations.md"
_QUERY = "What is the lighthouse keeper's rota for?"
_PHRASE = "lighthouse keeper"
_ADDITION = """
## The lighthouse keeper

Every generation has a lighthouse keeper: the person on the rota who reads `octavo status` in the
morning and looks after what is pending. The lighthouse keeper's rota hangs beside the coffee
machine.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a demo plays: its configuration, its folder, its terminal."""

    config: Config
    folder: Path
    console: Console

    @property
    def docs(self) -> Path:
        """Return the demo's own copy of the documentation, which it may change."""
        return self.folder / "docs"

    @property
    def config_file(self) -> Path:
        """Return the configuration file that the server reads, and that the user may."""
        return self.folder / "demo.yaml"

    def writer(self) -> StoreWriter:
        """Return a writer of the demo's store, which is made when it is not there."""
        return create_store(self.config.root).writer

    def act(self, text: str) -> None:
        """Announce a part of the demo."""
        self.console.print()
        self.console.rule(Text(text, style="bold"), align="left")

    def say(self, text: str) -> None:
        """Show a line; it is not markup."""
        self.console.print(Text(text), soft_wrap=True)


def run_demo(config: Config, *, everything: bool, keep: bool, console: Console) -> int:
    """Play the demo beside the configured root, in `ROOT-demo`, which is made anew.

    Args:
        config: the configuration; root, port and shards are replaced.
        everything: read every installed distribution, not a sample.
        keep: leave the server running.
        console: where to show it.

    Returns:
        The exit code: 0, or 1 when a step did not go as promised.
    """
    started = time.monotonic()
    try:
        with _staged(config, console) as stage:
            _play(stage, everything=everything, keep=keep)
    except EngineError as error:
        console.print(Text(f"demo failed: {error} ({error.code})", style="bold red"))
        return 1
    console.print(Text(f"\nThe demo took {time.monotonic() - started:.0f} s.", style="bold"))
    return 0


@contextmanager
def _staged(config: Config, console: Console) -> Iterator[Stage]:
    """Make the demo's folder and configuration, and be connected to Ray inside the block."""
    folder = Path(f"{Path(config.root).absolute()}-demo")
    if stop_left_running(folder):
        console.print(Text("stopped the server that an earlier demo left running", style="dim"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    own = config.model_copy(
        update={
            "root": str(folder / "store"),
            "serve": config.serve.model_copy(update={"port": free_port(config.serve.port)}),
            "jobs": config.jobs.model_copy(update={"shards": SHARDS}),
        }
    )
    stage = Stage(own, folder, console)
    stage.config_file.write_text(dump_config(own), "utf-8")  # JSON is YAML
    shutil.copytree(_DOCS_FOLDER, stage.docs, ignore=shutil.ignore_patterns("reference.md"))
    with joined(own.jobs):
        yield stage


def _play(stage: Stage, *, everything: bool, keep: bool) -> None:
    _ingest(stage, everything=everything)
    stage.act(f"Reindex into {SHARDS} shards, with Ray")
    began = time.monotonic()
    report = reindex(stage.config, stage.console, shards=SHARDS)
    passages = report.total_passages
    expect(report.built, "the first reindex builds a generation")
    expect(everything or passages >= LEAST_PASSAGES, f"{LEAST_PASSAGES} passages, not {passages}")
    stage.say(f"{passages} passages in {SHARDS} shards, {time.monotonic() - began:.0f} s")
    stage.act("Serve, with Ray Serve")
    began = time.monotonic()
    server = spawn(stage.config, log=stage.folder / "serve.log")
    left = False
    try:
        stage.say(f"ready after {time.monotonic() - began:.0f} s: MCP at {server.mcp_url}")
        _visit(stage, server)
        left = keep
    finally:
        if not left:
            stage.say("stopping the server")
            server.stop()
    if left:
        leave_running(stage.folder, server.pid)
    _say_goodbye(stage, server if left else None)


# -------------------------------------------------------------------------------------- its acts


def _ingest(stage: Stage, *, everything: bool) -> None:
    stage.act("Ingest and publish")
    writer = stage.writer()
    writer.create_base(_PACKAGES, "Python packages installed here", "demo", None, "public")
    writer.create_base(_DOCS, "Octavo's documentation", "demo", None, "public")
    writer.create_base(_PRIVATE, "Private notes", "alice", None, "private")
    limit = None if everything else PACKAGE_PASSAGES
    corpus = collect(importlib.metadata.distributions(), passages=limit)
    source = stage.folder / "packages.jsonl"
    write_jsonl(corpus.documents, source)
    stage.say(
        f"{len(corpus.documents)} texts of {corpus.distributions} installed distributions, "
        f"parsed and never imported ({corpus.unreadable} files could not be parsed)"
    )
    # Docstrings are English as good as always; a short one full of code misleads a detector.
    packages = _ingested(stage, IngestOrder(source, _PACKAGES, publish=True, language="en"))
    docs = _ingested(stage, IngestOrder(stage.docs, _DOCS, publish=True))
    expect(packages.added > 0 and docs.added > 0, "both bases receive revisions")


def _ingested(stage: Stage, order: IngestOrder) -> IngestReport:
    report = ingest(stage.config, order, stage.console)
    stage.say(
        f"base {order.base}: {report.added} added, {report.unchanged} unchanged, "
        f"{report.refused} refused, {report.seconds:.1f} s"
    )
    return report


def _visit(stage: Stage, server: Spawned) -> None:
    stage.act("A visit, through a real MCP client over HTTP")
    visit = Visit(server.mcp_url, stage.console)
    older = visit.play(_first_part)
    _change_the_docs(stage)
    newer = visit.play(lambda visiting: _second_part(visiting, older))
    began = time.perf_counter()
    stage.writer().unpublish([newer.item], None)
    visit.play(lambda visiting: demo_visit.gone_at_once(visiting, newer, began))
    timings = visit.timings
    stage.say(
        f"\n{len(timings)} calls of the tool, median {statistics.median(timings):.0f} ms, "
        f"slowest {max(timings):.0f} ms"
    )


async def _first_part(visit: Visit) -> Address:
    await demo_visit.greet(visit)
    opened = await demo_visit.search_in_every_mode(visit)
    await demo_visit.open_result(visit, opened)
    older = await demo_visit.current_of(visit, "operating Octavo", _CHANGED)
    await demo_visit.page_to_the_end(visit, older)
    await demo_visit.meet_errors(visit)
    await demo_visit.not_yet_there(visit, _QUERY, _PHRASE)
    return older


def _change_the_docs(stage: Stage) -> None:
    """Publish a new revision of one page and build the next generation, while serving."""
    stage.act("Publish a new revision while the server answers")
    page = stage.docs / _CHANGED
    page.write_text(page.read_text("utf-8") + _ADDITION, "utf-8")
    report = _ingested(stage, IngestOrder(stage.docs, _DOCS, publish=True))
    expect(report.added == 1, "one page changed, so one revision is added")
    began = time.monotonic()
    built = reindex(stage.config, stage.console)
    expect(built.built, "the second reindex builds a generation")
    stage.say(
        f"next generation in {time.monotonic() - began:.0f} s: {built.encoded} passages encoded, "
        f"{built.total_passages} in the index"
    )


async def _second_part(visit: Visit, older: Address) -> Address:
    newer = await demo_visit.found_again(visit, _QUERY, _PHRASE)
    if newer.item != older.item:
        raise DemoError("not as promised: the changed page keeps its item id")
    await demo_visit.still_pinned(visit, older)
    return newer


def _say_goodbye(stage: Stage, server: Spawned | None) -> None:
    root = Path(stage.config.root)
    if root.is_relative_to(Path.cwd()):
        root = root.relative_to(Path.cwd())
    octavo = f"octavo --root {root}"
    lines = [
        "Type next (.venv/bin/octavo, when .venv is not activated):",
        "",
        f'  {octavo} search "how do I page through a long text?"',
        f'  {octavo} search "Wer darf eine private Basis lesen?" --mode semantic --json',
        f"  {octavo} status",
        f"  {octavo} mcp                 for a desktop assistant, over stdio",
    ]
    if server is None:
        lines += [f"  {octavo} serve --port 8000   and ask over HTTP", "  make demo KEEP=1"]
    else:
        lines += _connecting(server)
    stage.act("Done")
    for line in lines:
        stage.say(line)


def _connecting(server: Spawned) -> list[str]:
    return [
        "",
        f"Still serving at {server.url} (process {server.pid}). An MCP client connects with:",
        "",
        f'  {{"mcpServers": {{"octavo": {{"type": "http", "url": "{server.mcp_url}"}}}}}}',
        "",
        "and anything else with:",
        "",
        f"  curl -s {server.url}/v1/search -H 'Content-Type: application/json' \\",
        '       -d \'{"query": "how do I page through a long text?", "max_results": 3}\'',
        "",
        f"Stop it with: kill {server.pid}",
    ]
