"""The reference sample: made of texts that everybody may read, and of fixed sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.ids import BaseId
from engine.index.generation import Reference
from engine.store.storage import LocalStorage
from jobs.sample import SAMPLE_VECTORS, reference_sample
from jobs.staging import STAGED_SCHEMA, BlockReport, Stage, text_hash

ENCODER = EncoderConfig(model="hashing", dimension=16)
PUBLIC = frozenset({BaseId("open")})
OPEN, HIDDEN = ("open", "about lanterns"), ("hidden", "about a secret")


def _sample(root: Path, texts: Sequence[tuple[str, str]]) -> Reference:
    storage = LocalStorage(root)
    stage, encoder = Stage(storage, "job"), open_encoder(ENCODER)
    stage.open()
    columns = dict.fromkeys(STAGED_SCHEMA.names, "x") | {"starts": [0], "ends": [1], "texts": ["x"]}
    rows = [
        columns
        | {
            "base_id": base,
            "hashes": [text_hash("", text)],
            "vectors": encoder.encode_passages([("", text)]).tobytes(),
        }
        for base, text in texts
    ]
    stage.put_block("block", pa.Table.from_pylist(rows, schema=STAGED_SCHEMA), BlockReport())
    space = (encoder.fingerprint, encoder.dimension)
    return reference_sample(ENCODER, storage, None, (stage, ["block"]), space, PUBLIC)


def test_texts_that_not_everybody_may_read_leave_no_trace_in_it(tmp_path: Path) -> None:
    bare, full = _sample(tmp_path / "bare", [OPEN]), _sample(tmp_path / "full", [HIDDEN, OPEN])
    assert full == bare
    assert _sample(tmp_path / "other", [("open", "about violins")]) != bare


def test_without_any_public_text_it_is_made_of_sentences(tmp_path: Path) -> None:
    rows = np.load(tmp_path / _sample(tmp_path, [HIDDEN]).path)
    assert rows.shape == (SAMPLE_VECTORS, 16)
    assert SAMPLE_VECTORS >= 200
