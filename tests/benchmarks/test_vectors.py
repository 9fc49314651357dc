"""The vector benchmark on a few rows: what it reports is there and adds up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.vectors import grow, read_rows, recall, run
from tests.engine.index.specimens import unit_rows


def test_made_rows_are_unit_rows_after_the_real_ones() -> None:
    real = unit_rows(50, 16)
    rows = grow(real, 120)
    assert rows[:50].tolist() == real.tolist()
    assert np.linalg.norm(rows, axis=1).tolist() == pytest.approx([1.0] * 120, abs=1e-6)
    assert grow(real, 20).tolist() == real[:20].tolist()
    assert len(np.unique(rows, axis=0)) == 120


def test_recall_counts_allowed_rows_and_takes_ties_as_found() -> None:
    rows = np.eye(4, dtype=np.float32)[[0, 0, 1, 2]]
    query = np.eye(4, dtype=np.float32)[0]
    everything = np.ones(4, np.bool_)
    assert recall(rows, query[None, :], [np.array([1])], 1, everything) == 1.0
    assert recall(rows, query[None, :], [np.array([0, 2])], 2, everything) == 0.5
    later = np.array([False, True, True, True])
    assert recall(rows, query[None, :], [np.array([1])], 1, later) == 1.0


@pytest.mark.slow
def test_a_small_run_reports_every_filter_and_starves_under_none(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", unit_rows(4200, 16))
    np.save(tmp_path / "queries.npy", unit_rows(2, 16, 9))
    out = tmp_path / "result.json"
    paths = [str(tmp_path / name) for name in ("rows.npy", "queries.npy")]
    options = ["--sizes", "4200", "--rounds", "1", "--json", str(out)]
    run(["--vectors", paths[0], "--queries", paths[1], *options])
    (size,) = json.loads(out.read_text("utf-8"))["sizes"]
    assert len(read_rows([tmp_path / "rows.npy"])) == size["rows"] == 4200
    assert {"float32", "half", "8 bit", "numpy"} == {row["scan"] for row in size["scans"]}
    assert any("HNSW" in row["kind"] for row in size["kinds"])
    for row in size["filters"]:
        assert row["approximate_missing"] == 0
        assert row["recall"]["planner, exact"] == 1.0
