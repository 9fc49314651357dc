"""A root is made on demand by writers, and refused with an instruction by everybody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.store.opening import MARKER_KEY, create_store, open_store
from tests.engine.store.samples import KB


def test_a_missing_or_empty_root_is_refused_with_what_to_do(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match="make one with `octavo base create`"):
            open_store(root)
    assert not (tmp_path / "missing").exists()


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("mine")
    for opened in (open_store, create_store):
        with pytest.raises(StoreError, match="holds something else than a store"):
            opened(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]


@pytest.mark.parametrize("marker", ['{"format": 2}', "[]", "{}"])
def test_another_format_is_refused_by_number(tmp_path: Path, marker: str) -> None:
    create_store(tmp_path)
    (tmp_path / MARKER_KEY).write_text(marker)
    with pytest.raises(StoreError, match="this Octavo reads 1"):
        open_store(tmp_path)


def test_creating_twice_opens_the_same_store(tmp_path: Path) -> None:
    made = create_store(tmp_path)
    made.writer.create_base(KB, "Knowledge", "alice", None, "public")
    assert create_store(tmp_path).catalog.poll().bases() == made.catalog.poll().bases()


def test_a_creation_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    create_store(tmp_path)
    (tmp_path / MARKER_KEY).unlink()
    create_store(tmp_path)
    assert open_store(tmp_path).catalog.poll().bases() == ()


def test_a_store_whose_table_is_gone_says_so(tmp_path: Path) -> None:
    store = create_store(tmp_path)
    (tmp_path / "store" / "items").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="there is no table at"):
        store.catalog.poll()


def test_using_a_store_does_not_load_pandas(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tests.engine.store.workers import use_everything\n"
        f"use_everything({str(tmp_path / 'root')!r})\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
