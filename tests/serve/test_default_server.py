"""`octavo serve` as it comes: one process with shards and encoder, anonymous, interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from engine.config import dump_config
from serve import processes
from serve.launcher import await_ready
from serve.runtime import free_port
from tests.engine.search.building import Library, small_config
from tests.serve.listeners import listening_beyond_loopback

pytestmark = [
    pytest.mark.ray,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # a cluster starts in 20 s on an idle machine
]

REPOSITORY = Path(__file__).resolve().parents[2]


def test_octavo_serve_answers_and_ends_cleanly_when_interrupted(tmp_path: Path) -> None:
    library = Library(tmp_path / "store")
    library.add_base("open")
    library.add_base("mine", scope="private", owner="alice")
    library.add("open", [("a", "Public", "a text about marmots")])
    library.add("mine", [("b", "Private", "a text about marmots")])
    library.reindex()
    (tmp_path / "octavo.json").write_text(dump_config(small_config(library.root)), "utf-8")
    port = free_port()
    options = ["--config", str(tmp_path / "octavo.json"), "serve", "--port", str(port)]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "jobs.cli", *options], cwd=REPOSITORY, stdout=log, stderr=log
        ) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            await_ready(url, lambda: server.poll() is None)
            found = httpx2.post(f"{url}/v1/search", json={"query": "marmots"}, timeout=60).json()
            tree = processes.descendants(server.pid)
            names = [processes.command(each) for each in tree]
            exposed = listening_beyond_loopback(tree)
        finally:
            server.send_signal(signal.SIGINT)
            code = server.wait(120)
    assert [each["knowledge_item_id"] for each in found["results"]] == ["a"]
    assert exposed == set()
    assert sum(name.startswith("ray::ServeRepl") for name in names) == 1
    assert code == 0, (tmp_path / "log").read_text("utf-8", "replace")
    assert processes.living(tree) == frozenset()
