"""The durable boundary: blocks appear whole, are found again, and are named by what they hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from engine.ids import ItemId, RevisionId
from engine.store.storage import LocalStorage
from jobs.staging import (
    STAGED_SCHEMA,
    BlockReport,
    Key,
    Stage,
    divide,
    text_hash,
    vectors_of,
)
from jobs.vectorstock import VectorStock, write_stock

keys = st.lists(
    st.tuples(st.text(max_size=4).map(ItemId), st.text(max_size=4).map(RevisionId)), unique=True
)


def _block() -> pa.Table:
    row = {
        "item_id": "i",
        "revision_id": "r",
        "base_id": "b",
        "title": "t",
        "language": "en",
        "source_type": "file",
        "source_ref": "f",
        "content_sha256": "0",
        "starts": [0, 4],
        "ends": [3, 7],
        "texts": ["abc", "def"],
        "hashes": [text_hash("t", "abc"), text_hash("t", "def")],
        "vectors": np.arange(4, dtype="<f4").tobytes(),
    }
    return pa.Table.from_pylist([row], schema=STAGED_SCHEMA)


def test_a_block_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    stage = Stage(LocalStorage(tmp_path), "job")
    stage.open()
    blocks = divide("job", [(ItemId("i"), RevisionId("r"))], 1)
    assert stage.done(blocks) == {}
    report = BlockReport(1, 2, 2, 0, "fingerprint", 2)
    stage.put_block(blocks[0].name, _block(), report)
    assert stage.done(blocks) == {blocks[0].name: report}
    read = stage.read_block(blocks[0].name)
    assert read.to_pylist() == _block().to_pylist()
    stored = read["vectors"][0].as_py()
    assert isinstance(stored, bytes)
    assert vectors_of(stored, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]


def test_a_half_written_block_is_not_done(tmp_path: Path) -> None:
    stage = Stage(LocalStorage(tmp_path), "job")
    stage.open()
    blocks = divide("job", [(ItemId("i"), RevisionId("r"))], 1)
    (stage.folder / f".{blocks[0].name}.arrow.0123.tmp").write_bytes(b"half")
    assert stage.done(blocks) == {}


def test_opening_a_stage_removes_those_of_other_jobs(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    Stage(storage, "old").open()
    stage = Stage(storage, "new")
    stage.open()
    assert storage.list("stage") == ("new",)
    stage.delete()
    assert not storage.exists("stage")


@given(keys, st.integers(1, 5))
def test_blocks_hold_every_revision_once_in_order(found: list[Key], rows: int) -> None:
    blocks = divide("job", found, rows)
    assert [key for block in blocks for key in block.keys] == found
    assert all(1 <= len(block.keys) <= rows for block in blocks)
    assert len({block.name for block in blocks}) == len(blocks)


def test_a_block_is_named_by_job_and_revisions() -> None:
    one, other = (ItemId("a"), RevisionId("1")), (ItemId("a"), RevisionId("2"))
    names = [divide(job, [key], 1)[0].name for job in ("j", "k") for key in (one, other)]
    assert len(set(names)) == 4
    assert divide("j", [one], 1)[0].name == names[0]


@given(st.text(), st.text(), st.text(), st.text())
def test_a_text_hash_tells_titles_from_texts(a: str, b: str, c: str, d: str) -> None:
    a, b, c, d = (text.encode("utf-8", "replace").decode() for text in (a, b, c, d))
    assert (text_hash(a, b) == text_hash(c, d)) == ((a, b) == (c, d))


def test_a_stock_finds_each_vector_by_its_hash_and_no_other(tmp_path: Path) -> None:
    texts = [[f"text {number}" for number in range(5)], ["text 3", "text 9"]]
    vectors = [np.eye(5, 4, dtype=np.float32) + part for part in range(2)]
    hashes, paths = [], []
    for number, part in enumerate(texts):
        data = b"".join(text_hash("", text) for text in part)
        hashes.append(np.frombuffer(data, np.uint8).reshape(-1, 16))
        paths.append(tmp_path / f"vectors-{number}.npy")
        np.save(paths[-1], vectors[number][: len(part)])
    write_stock(tmp_path, hashes)
    stock = VectorStock(tmp_path, paths)
    for ordinal, text in enumerate(texts[0]):
        found = stock.find(text_hash("", text))
        assert found is not None
        assert found.tolist() == vectors[0][ordinal].tolist()
    second = stock.find(text_hash("", "text 9"))
    assert second is not None
    assert second.tolist() == vectors[1][1].tolist()
    assert stock.find(text_hash("", "text 10")) is None


def test_an_empty_stock_finds_nothing(tmp_path: Path) -> None:
    write_stock(tmp_path, [])
    assert VectorStock(tmp_path, []).find(text_hash("", "x")) is None
