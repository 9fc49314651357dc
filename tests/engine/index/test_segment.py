"""Segments are whole or refused, and what they hold is what was put in."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from engine.errors import ConflictError, InvalidValueError, SegmentRefusedError, StoreError
from engine.index.languages import FIELD_CODES
from engine.index.manifest import FORMAT, MANIFEST
from engine.index.segment import Entry, Expected, Segment
from engine.index.segment_builder import (
    SegmentHeader,
    SegmentRecord,
    build_segment,
    clean_unfinished,
)
from engine.index.statistics import decode_norm
from engine.index.vector import VectorSettings
from engine.index.vector_builder import RECALL_TARGET
from engine.index.vector_codes import TRAINING_ROWS
from tests.engine.index.specimens import (
    DIMENSION,
    ENCODER,
    Text,
    make_segment,
    tables,
    unit_rows,
)

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("jvm")]

TEXTS = (
    Text("i1", "kb", "en", "Searching", "The searches ran 😀 quickly."),
    Text("i2", "kb", "de", "Haus", "Die Häuser stehen am Fluss."),
    Text("i3", "archive", "zh", "搜索引擎", "一个快速的搜索引擎"),
    Text("i4", "archive", "sw", "", "..."),
    Text("i5", "kb", "fr", "Égalité", "l'égalité\r\net la liberté"),
)
FILES = ("passages.arrow", "entries.arrow", "vectors.npy", "faiss.index", MANIFEST)


@pytest.fixture
def built(tmp_path: Path) -> SegmentRecord:
    return make_segment(tmp_path / "s1", TEXTS)


def rewrite(folder: Path, **changes: object) -> None:
    """Change what a segment's manifest says."""
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), "utf-8")


def refusal(folder: Path, expected: Expected | None = None, *, verify: bool = False) -> str:
    """Return why a segment is refused."""
    with pytest.raises(SegmentRefusedError) as caught:
        Segment.open(folder, expected, verify=verify)
    assert caught.value.segment == folder.name
    return caught.value.reason


def test_what_was_put_in_comes_out(built: SegmentRecord, tmp_path: Path) -> None:
    segment = Segment.open(
        tmp_path / "s1", Expected(ENCODER, DIMENSION, built.manifest_sha256), verify=True
    )
    assert (built.passages, built.entries, segment.passages) == (5, 5, 5)
    assert [segment.text(ordinal) for ordinal in range(5)] == [text.text for text in TEXTS]
    assert segment.vectors.tolist() == unit_rows(5).tolist()
    assert segment.entry.tolist() == [0, 1, 2, 3, 4]
    assert segment.char_end.tolist() == [len(text.text) for text in TEXTS]
    assert segment.field.tolist() == [
        FIELD_CODES[name] for name in ("text_en", "text_de", "text_zh", "text_other", "text_fr")
    ]
    passages, _ = tables(TEXTS)
    assert [bytes(row) for row in segment.text_hash] == passages["text_hash"].to_pylist()
    assert segment.describe(2) == Entry(
        "i3",  # type: ignore[arg-type]  # plain text compares equal
        "i3-1",  # type: ignore[arg-type]
        "archive",  # type: ignore[arg-type]
        "搜索引擎",
        "zh",
        "markdown",
        "i3.md",
        segment.describe(2).content_sha256,
    )
    assert segment.bases == ("archive", "kb")
    assert segment.entry_base.tolist() == [1, 1, 0, 0, 1]
    segment.close()


def test_lengths_statistics_and_lucene_agree(built: SegmentRecord, tmp_path: Path) -> None:
    segment = Segment.open(tmp_path / "s1")
    assert [decode_norm(int(norm)) for norm in segment.norm] == segment.length.tolist()
    assert segment.length[3] == 0
    assert segment.manifest.statistics["archive"] == {"text_zh": (1, int(segment.length[2]))}
    assert set(segment.manifest.statistics["kb"]) == {"text_en", "text_de", "text_fr"}
    for name in segment.lexical.fields:
        held = segment.lexical.local_statistics(name, ())
        told = [base.get(name, (0, 0)) for base in segment.manifest.statistics.values()]
        assert (held.passages, held.tokens) == tuple(map(sum, zip(*told, strict=True)))
    segment.close()


def test_title_and_text_are_searched_together(built: SegmentRecord, tmp_path: Path) -> None:
    segment = Segment.open(tmp_path / "s1")
    ordinals = np.arange(5, dtype=np.int32)
    assert segment.lexical.frequencies("text_en", ["search"], ordinals)[0, 0] == 2
    assert segment.lexical.frequencies("text_de", ["haus"], ordinals)[1, 0] == 2
    segment.close()


def test_the_semantic_side_has_the_same_ordinals(built: SegmentRecord, tmp_path: Path) -> None:
    segment = Segment.open(tmp_path / "s1")
    for ordinal, vector in enumerate(unit_rows(5)):
        assert segment.semantic.search(vector, 1).ordinals.tolist() == [ordinal]
    segment.close()


def test_an_approximate_segment_says_so(tmp_path: Path) -> None:
    many = TEXTS * (TRAINING_ROWS // len(TEXTS) + 1)
    make_segment(tmp_path / "s1", many, VectorSettings(search="approximate"))
    segment = Segment.open(tmp_path / "s1", verify=True)
    facts = json.loads((tmp_path / "s1" / MANIFEST).read_text("utf-8"))["vectors"]
    assert facts["approximate"]
    assert min(facts["recall"]) >= RECALL_TARGET
    assert segment.manifest.vectors.over_fetch == facts["over_fetch"] > 0
    assert not segment.semantic.exact
    segment.close()


def test_an_exact_segment_states_no_recall(built: SegmentRecord, tmp_path: Path) -> None:
    facts = json.loads((tmp_path / "s1" / MANIFEST).read_text("utf-8"))["vectors"]
    assert (facts["approximate"], facts["over_fetch"], facts["recall"]) == (False, 0, [])
    assert 0.0 < facts["code_error"] < 1e-3


@pytest.mark.parametrize("file", FILES)
def test_a_missing_file_is_refused_by_name(built: SegmentRecord, tmp_path: Path, file: str) -> None:
    (tmp_path / "s1" / file).unlink()
    assert file in refusal(tmp_path / "s1")


@pytest.mark.parametrize("file", FILES[:-1])
def test_a_file_that_was_cut_short_is_refused_by_name(
    built: SegmentRecord, tmp_path: Path, file: str
) -> None:
    path = tmp_path / "s1" / file
    path.write_bytes(path.read_bytes()[:-1])
    assert file in refusal(tmp_path / "s1")


def test_any_flipped_byte_of_any_file_is_found_when_verifying(
    built: SegmentRecord, tmp_path: Path
) -> None:
    folder = tmp_path / "s1"
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
    assert any(path.parent.name == "lucene" for path in paths)
    for path in paths:
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[place] ^= 0x10
            path.write_bytes(damaged)
            assert path.name in refusal(folder, verify=True)
        path.write_bytes(whole)
    Segment.open(folder, verify=True).close()


def test_a_changed_manifest_is_refused_when_the_generation_knows_it(
    built: SegmentRecord, tmp_path: Path
) -> None:
    rewrite(tmp_path / "s1", shard=7)
    expected = Expected(manifest_sha256=built.manifest_sha256)
    assert "committed" in refusal(tmp_path / "s1", expected)


def test_a_damaged_manifest_is_refused(built: SegmentRecord, tmp_path: Path) -> None:
    for damage in (b"{", b"[]", b'{"format": 2}', b"\xff"):
        (tmp_path / "s1" / MANIFEST).write_bytes(damage)
        assert "damaged" in refusal(tmp_path / "s1")


def test_another_encoder_dimension_or_format_is_refused(
    built: SegmentRecord, tmp_path: Path
) -> None:
    folder = tmp_path / "s1"
    assert "encoder" in refusal(folder, Expected(encoder="0" * 64))
    assert "dimension" in refusal(folder, Expected(dimension=384))
    rewrite(folder, format=FORMAT + 1)
    assert "format" in refusal(folder)


def test_another_analyzer_is_refused(built: SegmentRecord, tmp_path: Path) -> None:
    rewrite(tmp_path / "s1", analyzers={"text_en": "some.other.Analyzer/1"})
    assert "text_en" in refusal(tmp_path / "s1")


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    assert MANIFEST in refusal(tmp_path / "photos")
    assert MANIFEST in refusal(tmp_path / "nowhere")


def test_a_file_too_many_is_refused(built: SegmentRecord, tmp_path: Path) -> None:
    (tmp_path / "s1" / "lucene" / "_9.cfs").touch()
    assert "_9.cfs" in refusal(tmp_path / "s1")


@pytest.mark.parametrize("part", ["passages.arrow", "vectors.npy", "faiss.index", "lucene"])
def test_parts_that_disagree_on_the_count_are_refused(
    built: SegmentRecord, tmp_path: Path, part: str
) -> None:
    folder = tmp_path / "s1"
    make_segment(tmp_path / "s2", TEXTS[:4])
    other = json.loads((tmp_path / "s2" / MANIFEST).read_text("utf-8"))["files"]
    files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
    if part == "lucene":
        shutil.rmtree(folder / part)
        shutil.copytree(tmp_path / "s2" / part, folder / part)
    else:
        shutil.copy(tmp_path / "s2" / part, folder / part)
    kept = {path: facts for path, facts in files.items() if not path.startswith(part)}
    taken = {path: facts for path, facts in other.items() if path.startswith(part)}
    rewrite(folder, files=kept | taken)
    assert "holds" in refusal(folder, verify=True)


def test_a_segment_is_never_overwritten(built: SegmentRecord, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="s1"):
        make_segment(tmp_path / "s1", TEXTS)


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("engine.index.segment_builder._write_arrow", fail)
    with pytest.raises(StoreError, match="Input/output"):
        make_segment(tmp_path / "s1", TEXTS)
    assert list(tmp_path.iterdir()) == []


def test_what_a_crashed_build_left_is_ignored_and_cleaned(tmp_path: Path) -> None:
    for name in (".s1.building-abc", ".s2.building-def"):
        (tmp_path / name / "lucene").mkdir(parents=True)
    make_segment(tmp_path / "s1", TEXTS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".s2.building-def", "s1"]
    assert clean_unfinished(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["s1"]


def test_closing_releases_every_file(built: SegmentRecord, tmp_path: Path) -> None:
    segment = Segment.open(tmp_path / "s1")
    assert str(tmp_path) in Path("/proc/self/maps").read_text("utf-8")
    segment.close()
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text("utf-8")


def header(dimension: int = DIMENSION) -> SegmentHeader:
    return SegmentHeader(0, ENCODER, dimension)


def test_inconsistent_input_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    passages, entries = tables(TEXTS)
    target = tmp_path / "made" / "s1"
    broken = passages.set_column(0, passages.schema.field(0), pa.array([0, 1, 2, 3, 5], pa.int32()))
    bad = unit_rows(5)
    bad[2, 0] = np.nan
    for rows, owners, vectors in (
        (passages, entries, unit_rows(4)),
        (passages.slice(0, 0), entries, unit_rows(0)),
        (broken, entries, unit_rows(5)),
        (passages, entries, bad),
        (passages, entries, np.zeros((5, DIMENSION), np.float32)),
        (passages, entries, unit_rows(5, 4)),
        (passages.drop_columns(["text"]), entries, unit_rows(5)),
        (passages, entries.drop_columns(["title"]), unit_rows(5)),
    ):
        with pytest.raises(InvalidValueError):
            build_segment(target, rows, owners, vectors, header())
    assert not (tmp_path / "made").exists()


def test_sliced_and_chunked_input_is_taken(tmp_path: Path) -> None:
    passages, entries = tables(TEXTS)
    pieces = pa.concat_tables([passages.slice(1, 2), passages.slice(3, 2)])
    build_segment(tmp_path / "s1", pieces, entries, unit_rows(5)[1:], header())
    segment = Segment.open(tmp_path / "s1", verify=True)
    assert [segment.text(ordinal) for ordinal in range(4)] == [text.text for text in TEXTS[1:]]
    assert [bytes(row) for row in segment.text_hash] == pieces["text_hash"].to_pylist()
    segment.close()


def test_a_flipped_byte_is_never_worse_than_a_refusal(built: SegmentRecord, tmp_path: Path) -> None:
    folder = tmp_path / "s1"
    outcomes = set()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        whole = path.read_bytes()
        for place in range(3, len(whole), max(1, len(whole) // 12)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            try:
                Segment.open(folder).close()
                outcomes.add("opened")
            except SegmentRefusedError:
                outcomes.add("refused")
        path.write_bytes(whole)
    assert outcomes == {"opened", "refused"}
