"""The packaged default, converted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.encoders.packaged import packaged_model
from engine.errors import EncoderError

REPOSITORY = Path(__file__).parents[3]
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
    assert left == sorted([folder.name, "hashes"]), "no half-made folder"
    assert contents(folder) == contents(packaged_model())
    shutil.rmtree(tmp_path / "octavo")


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
