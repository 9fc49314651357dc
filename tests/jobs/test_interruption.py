"""A reindex that is killed goes on where it stopped: nothing twice, nothing missing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config import dump_config
from engine.store.opening import open_store
from jobs.segments import stored_segments
from tests.jobs.running import Shell, write_texts

pytestmark = [
    pytest.mark.ray,
    pytest.mark.jvm,
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_cluster"),
]

KILLED_AT = """
import logging, os, signal, sys
import ray
from rich.console import Console
from engine.config import undump_config
from jobs.reindex import reindex

ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.CRITICAL)
waiting = [sys.argv[3]] * int(sys.argv[4])

def on_step(step):
    if waiting and step == waiting[-1]:
        waiting.pop()
    if not waiting:
        os.kill(os.getpid(), signal.SIGKILL)

reindex(undump_config(sys.argv[2]), Console(stderr=True), shards=2, on_step=on_step)
"""


def _killed(shell: Shell, step: str, times: int) -> None:
    """Reindex in another process that kills itself when it has made a step so many times."""
    import ray

    address = ray.get_runtime_context().gcs_address
    words = [address, dump_config(shell.config), step, str(times)]
    repository = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT, *words], cwd=repository, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


def _published(shell: Shell, tmp_path: Path) -> None:
    write_texts(tmp_path / "texts", range(24))
    words = ("--base", "kb", "--publish", "--language", "en")
    shell.json("ingest", str(tmp_path / "texts"), *words)


def _check_whole(shell: Shell, report: dict[str, int]) -> None:
    """Every published revision is in the newest generation, once, with all its passages."""
    assert report["revisions"] == 24
    assert report["total_passages"] == report["passages"]
    assert shell.json("verify")["revisions"] == 24
    store = open_store(shell.root)
    from engine.index.generation import GenerationLog

    record = GenerationLog(store.storage).newest()
    assert record is not None
    held = [
        key for part in stored_segments(store.storage, record.segments) for key in part.revisions()
    ]
    wanted = [(state.item_id, state.desired_revision) for state in store.catalog.poll().items()]
    assert sorted(held) == sorted(wanted)
    assert shell.json("status")["pending"] == 0
    assert not (shell.root / "stage").exists()
    assert shell.json("reindex")["built"] is False


def test_a_job_killed_while_encoding_encodes_only_the_rest(base: Shell, tmp_path: Path) -> None:
    _published(base, tmp_path)
    _killed(base, "staged", 3)
    assert base.json("status")["generation"] is None
    assert len(list((base.root / "stage").glob("*/*.arrow"))) >= 3
    report = base.json("reindex", "--shards", "2")
    assert report["resumed"] > 0
    assert 0 < report["encoded"] < report["passages"]
    assert report["encoded"] + report["resumed"] == report["passages"]
    _check_whole(base, report)


@pytest.mark.parametrize("step", ["built", "current"])
def test_a_job_killed_between_building_and_commit_builds_nothing_twice(
    base: Shell, tmp_path: Path, step: str
) -> None:
    _published(base, tmp_path)
    _killed(base, step, 1)
    assert base.json("status")["generation"] is None
    assert base.json("search", "lantern")["results"] == []
    built = {path: path.stat().st_ino for path in (base.root / "segments").glob("g*/segment.json")}
    assert built
    report = base.json("reindex", "--shards", "2")
    assert (report["encoded"], report["resumed"]) == (0, report["passages"])
    now = {path: path.stat().st_ino for path in (base.root / "segments").glob("g*/segment.json")}
    assert built.items() <= now.items()
    assert len(now) == 2
    _check_whole(base, report)


def test_another_plan_clears_the_stage_of_a_killed_job(base: Shell, tmp_path: Path) -> None:
    _published(base, tmp_path)
    _killed(base, "staged", 1)
    (stale,) = (base.root / "stage").iterdir()
    base.json("withdraw", *_first(base))
    report = base.json("reindex", "--shards", "2")
    assert (report["revisions"], report["resumed"]) == (23, 0)
    assert not stale.exists()


def _first(shell: Shell) -> tuple[str, str]:
    state = min(open_store(shell.root).catalog.poll().items(), key=lambda state: state.item_id)
    return state.item_id, state.head_revision
