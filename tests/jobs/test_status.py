"""What `octavo status` says of the way vectors are searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.index.vector import VectorSettings
from jobs.segments import segment_path
from jobs.status import status
from tests.engine.search.building import Library, small_config
from tests.engine.search.texts import fill


def _library(root: Path, vectors: VectorSettings) -> Library:
    library = Library(root, vector_search=vectors)
    library.add_base("open")
    fill(library, "open", seed=3, count=40)
    library.reindex(2)
    return library


def test_exact_segments_are_counted(tmp_path: Path) -> None:
    library = _library(tmp_path / "store", VectorSettings())
    told = status(small_config(library.root))["vectors"]
    assert told == {"exact": 2, "approximate": 0, "unreadable": 0, "least_recall": {}}


def test_approximate_segments_say_what_they_found_when_they_were_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("vector_builder", "vector_codes"):  # so few passages would get no codes
        monkeypatch.setattr(f"engine.index.{module}.TRAINING_ROWS", 32)
    library = _library(tmp_path / "store", VectorSettings(search="approximate"))
    told = status(small_config(library.root))["vectors"]
    assert (told["exact"], told["approximate"]) == (0, 2)
    assert set(told["least_recall"]) == {"100", "800"}
    assert all(0.99 <= recall <= 1.0 for recall in told["least_recall"].values())


def test_a_damaged_segment_does_not_hide_the_rest(tmp_path: Path) -> None:
    library = _library(tmp_path / "store", VectorSettings())
    storage = library.store.storage
    folder = next(iter(segment_path(storage, "x").parent.glob("*/segment.json"))).parent
    (folder / "segment.json").write_text("{", "utf-8")
    told = status(small_config(library.root))
    assert told["vectors"]["unreadable"] == 1
    assert told["generation"]["segments"] == 2
