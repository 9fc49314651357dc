"""Rows of several sources become one segment's rows, whatever the order of the sources."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from engine.index.segment import ENTRIES, PASSAGES
from jobs.segments import Rows, join_rows
from jobs.staging import text_hash

DIMENSION = 3
revisions = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("123")), st.integers(1, 4), min_size=1
)


def _rows(found: dict[tuple[str, str], int]) -> Rows:
    entries, passages, vectors = [], [], []
    for entry, ((item, revision), count) in enumerate(found.items()):
        values = dict.fromkeys(ENTRIES.names, "x") | {"item_id": item, "revision_id": revision}
        entries.append(values)
        for place in range(count):
            text = f"{item}{revision}{place}"
            passages.append(
                {
                    "entry": entry,
                    "char_start": place * 10,
                    "char_end": place * 10 + len(text),
                    "text": text,
                    "text_hash": text_hash("x", text),
                }
            )
            vectors.append(np.frombuffer(text_hash("", text)[:DIMENSION], np.uint8))
    return Rows(
        pa.Table.from_pylist(passages, schema=PASSAGES),
        pa.Table.from_pylist(entries, schema=ENTRIES),
        np.array(vectors, np.float32).reshape(-1, DIMENSION),
    )


def _told(rows: Rows) -> list[tuple[str, str, str, list[float]]]:
    told = []
    for passage, vector in zip(rows.passages.to_pylist(), rows.vectors.tolist(), strict=True):
        entry = rows.entries.slice(passage["entry"], 1).to_pylist()[0]
        told.append((entry["item_id"], entry["revision_id"], passage["text"], vector))
    return told


@given(revisions, st.randoms(use_true_random=False))
def test_the_order_of_sources_never_changes_a_segment(
    found: dict[tuple[str, str], int], rng: random.Random
) -> None:
    names = list(found)
    rng.shuffle(names)
    cut = rng.randint(0, len(names))
    parts = [_rows({name: found[name] for name in part}) for part in (names[:cut], names[cut:])]
    joined = join_rows([part for part in parts if part.entries.num_rows], DIMENSION)
    whole = join_rows([_rows(dict(sorted(found.items())))], DIMENSION)
    assert _told(joined) == _told(whole) == sorted(_told(whole))
    assert joined.passages.equals(whole.passages)
    assert np.array_equal(joined.vectors, whole.vectors)


def test_no_rows_make_empty_rows_of_the_right_shape() -> None:
    rows = join_rows([], DIMENSION)
    assert rows.vectors.shape == (0, DIMENSION)
    assert (rows.passages.num_rows, rows.entries.num_rows) == (0, 0)
