"""How long one caller waits while another floods the server, with turns and without.

    python -m benchmarks.fairness --root .octavo --flood 32

The doors run in this process over a real store, without Ray. The quiet caller asks one question
after the other; the other one keeps as many under way as `--flood` says. Three medians of the quiet
caller are printed: alone, with the flood and turns (fairness.running), with the flood without them.
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
from pathlib import Path

import httpx2
import yaml

from benchmarks.provenance import provenance
from engine.config import Config, load_config
from engine.local import open_local
from engine.search.answering import Knowledge
from serve.auth.tokens import StaticTokens, make_token
from serve.doors import build_app

_URL = "http://127.0.0.1:8000"
_WORDS = ("server", "error", "install", "python", "list", "file", "value", "time", "class", "name")


def _question(number: int) -> dict[str, object]:
    # two words and a number: no two questions are alike, so that no cache answers
    first, second = _WORDS[number % 10], _WORDS[number // 10 % 10]
    return {"query": f"{first} {second} {number}", "mode": "lexical"}


async def _ask(client: httpx2.AsyncClient, token: str, number: int) -> tuple[int, float]:
    begun = time.perf_counter()
    headers = {"authorization": f"Bearer {token}"}
    response = await client.post("/v1/search", json=_question(number), headers=headers)
    return response.status_code, time.perf_counter() - begun


async def _flood(client: httpx2.AsyncClient, token: str, first: int) -> None:
    number = first
    while True:
        status, _ = await _ask(client, token, number)
        number += 1_000
        if status == 503:
            await asyncio.sleep(0.05)  # a flood that is refused comes again


async def _median_ms(
    knowledge: Knowledge, config: Config, tokens: dict[str, str], file: Path, asks: int, flood: int
) -> float:
    app = build_app(knowledge, config, StaticTokens(file))
    transport = httpx2.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url=_URL, timeout=600) as client,
    ):
        noise = [
            asyncio.create_task(_flood(client, tokens["flood"], number)) for number in range(flood)
        ]
        try:
            found = [await _ask(client, tokens["quiet"], 7_000_000 + n) for n in range(asks)]
        finally:
            for task in noise:
                task.cancel()
            await asyncio.gather(*noise, return_exceptions=True)
    refused = [status for status, _ in found if status != 200]
    if refused:
        raise RuntimeError(f"the quiet caller was refused {len(refused)} times: {refused[0]}")
    return 1000.0 * statistics.median(seconds for _, seconds in found)


def _config(config: Config, *, running: int) -> Config:
    fairness = config.fairness.model_copy(
        update={"requests_per_s": 0.0, "concurrent": 0, "running": running}
    )
    return config.model_copy(update={"fairness": fairness})


async def measure(config: Config, *, asks: int, flood: int, running: int) -> dict[str, float]:
    """Measure the medians of the quiet caller, in milliseconds.

    Args:
        config: of the store.
        asks: questions of the quiet caller each time.
        flood: requests that the other caller keeps under way.
        running: `fairness.running` for the second measurement.

    Raises:
        RuntimeError: the quiet caller was refused.
    """
    knowledge = open_local(config)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokens.yaml"
        made = {name: make_token(name) for name in ("quiet", "flood")}
        entries = [entry for _, entry in made.values()]
        file.write_text(yaml.safe_dump({"tokens": entries}), "utf-8")
        tokens = {name: token for name, (token, _) in made.items()}
        try:
            found = {}
            for name, turns, noise in (
                ("warm_up", 0, 0),
                ("alone", running, 0),
                ("flood_with_turns", running, flood),
                ("flood_without_turns", 0, flood),
            ):
                settings = _config(config, running=turns)
                found[name] = await _median_ms(knowledge, settings, tokens, file, asks, noise)
        finally:
            await knowledge.close()
    return {name: round(value, 2) for name, value in found.items() if name != "warm_up"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; print one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness")
    parser.add_argument("--root", metavar="DIR", help="a store with a generation")
    parser.add_argument("--config", type=Path, metavar="FILE")
    parser.add_argument("--asks", type=int, default=100, metavar="N")
    parser.add_argument("--flood", type=int, default=32, metavar="N")
    parser.add_argument("--running", type=int, default=2, metavar="N")
    options = parser.parse_args(argv)
    config = load_config(options.config, root=options.root)
    medians = asyncio.run(
        measure(config, asks=options.asks, flood=options.flood, running=options.running)
    )
    document = {"medians_ms": medians, **provenance("benchmarks.fairness")}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
