"""The packaged default, converted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.encoders.packaged import packaged_model
from engine.errors import EncoderError

REPOSITORY = Path(__file__).parents[3]
NAME_OF_THE_DEFAULT = "410a20f59f950554fd5f0e56a84705c94377fa53a78e48525aa3ad639ee16137"
"""Stores hold it: a change makes every store of the default encoder need a full reindex."""

CONVERT = "from engine.encoders.packaged import packaged_model; print(packaged_model())"


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.slow
def test_processes_that_convert_at_once_make_one_folder_with_the_same_bytes(
    tmp_path: Path,
) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CONVERT],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    printed = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(printed) == 1
    folder = Path(printed.pop())
    left = sorted(path.name for path in (tmp_path / "octavo" / "encoders").iterdir())
    assert left == sorted([folder.name, "hashes", "conversion.lock"]), "no half-made folder"
    assert contents(folder) == contents(packaged_model())
    shutil.rmtree(tmp_path / "octavo")


KILLED = """
import os, signal
from pathlib import Path
from engine.encoders import packaged

def convert(weights: Path, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

packaged._convert = convert
packaged.packaged_model()
"""


@pytest.mark.slow
def test_what_a_killed_conversion_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=REPOSITORY, check=False)
    assert killed.returncode == -signal.SIGKILL
    cache = tmp_path / "octavo" / "encoders"
    (half,) = cache.glob("*/model.safetensors")
    assert half.read_bytes() == b"half"
    folder = packaged_model()
    assert not half.parent.exists()
    left = sorted(path.name for path in cache.iterdir())
    assert left == sorted([folder.name, "hashes", "conversion.lock"])
    assert (folder / "model.safetensors").stat().st_size > 200_000_000
    shutil.rmtree(tmp_path / "octavo")


OFFLINE = """
import socket

def refuse(*arguments, **named):
    raise AssertionError("a socket was opened")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder

encoder = open_encoder(EncoderConfig())
print(encoder.fingerprint, encoder.encode_queries(["red"]).shape)
"""


@pytest.mark.slow
def test_the_default_opens_and_encodes_without_a_network(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-c", OFFLINE],
        cwd=REPOSITORY,
        env=os.environ | {"HF_HOME": str(tmp_path / "empty")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.split(maxsplit=1)[1].strip() == "(1, 384)"
    assert made.stdout.split()[0] == NAME_OF_THE_DEFAULT


def test_an_unwritable_cache_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "cache"
    blocked.write_bytes(b"a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(EncoderError, match="set XDG_CACHE_HOME"):
        packaged_model()


def test_a_second_call_gives_the_same_folder() -> None:
    assert packaged_model() == packaged_model()
