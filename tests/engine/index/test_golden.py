"""Segments written by the first format stay readable. The golden files are never edited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.index.languages import FIELD_NAMES
from engine.index.segment import Expected, Segment
from engine.index.statistics import LEXICAL_RELATIVE_ERROR, FieldStatistics, idf
from engine.index.vector import exact_cosines

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("jvm")]

SEGMENTS = Path(__file__).parents[2] / "golden" / "v1" / "segments"
MANIFESTS = {
    "exact": "7ee775d6e60ef887962788c4c63ee7921babda1c1d527b60ca315ee2b2a9ba6b",
    "approximate": "449b0770ea8c0417dfddf8a8a9cc99160e17a6dcf61d56a78733185f474f5b24",
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_segment_of_format_1_opens_and_answers(name: str) -> None:
    expected = Expected("f" * 64, 8, MANIFESTS[name])
    segment = Segment.open(SEGMENTS / name, expected, verify=True)
    assert [segment.describe(entry).item_id for entry in segment.entry.tolist()] == [
        "i1",
        "i2",
        "i3",
        "i4",
        "i5",
    ]
    assert segment.text(0) == "The searches ran 😀 quickly."
    assert segment.text(4) == "l'égalité\r\net la liberté"
    assert segment.length.tolist() == segment.norm.tolist() == [5, 4, 11, 0, 3]
    assert [FIELD_NAMES[code] for code in segment.field.tolist()] == [
        "text_en",
        "text_de",
        "text_zh",
        "text_other",
        "text_fr",
    ]
    whole = FieldStatistics(1, 11, {"搜索": 1, "引擎": 1})
    query = segment.lexical.localize("text_zh", {"搜索": 1, "引擎": 2}, whole, (0.9, 0.4))
    hits = segment.lexical.search(query, 3, segment.lexical.filter(None))
    score = 3 * idf(1, 1) * 2 / (2 + 0.9)
    assert hits.ordinals.tolist() == [2]
    assert hits.scores.tolist() == pytest.approx([score], rel=LEXICAL_RELATIVE_ERROR)
    for ordinal, vector in enumerate(np.array(segment.vectors)):
        near = segment.semantic.search(vector, 5)
        assert near.ordinals[0] == ordinal
        assert (
            near.scores.tolist() == exact_cosines(segment.vectors[near.ordinals], vector).tolist()
        )
    segment.close()
