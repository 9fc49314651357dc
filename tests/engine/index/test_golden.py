"""Segments of an older format are refused by name. The golden files are never edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import SegmentRefusedError
from engine.index.manifest import FORMAT
from engine.index.segment import Segment

SEGMENTS = Path(__file__).parents[2] / "golden" / "v1" / "segments"


@pytest.mark.parametrize("name", ["exact", "approximate"])
def test_a_segment_of_format_1_is_refused_by_name(name: str) -> None:
    with pytest.raises(SegmentRefusedError, match=f"its format is 1, this program reads {FORMAT}"):
        Segment.open(SEGMENTS / name)
