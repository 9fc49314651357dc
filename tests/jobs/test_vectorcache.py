"""The vectors outside the roots: what is given back is what was stored, to the bit, or nothing."""

from __future__ import annotations

import functools
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from engine.config import JobsConfig
from engine.encoders.encoder import Vectors
from engine.encoders.hashing import HashingEncoder
from jobs.encoding import VectorMaker
from jobs.staging import CUT_SCHEMA, text_hash
from jobs.vectorcache import VectorCache, VectorCacheError, open_vector_cache, query_key
from jobs.vectorstock import VectorStock, write_stock

SPACE, OTHER_SPACE = "a1" * 32, "b2" * 32
DIMENSION = 8


def key_of(number: int) -> bytes:
    return text_hash("", str(number))


def vector_of(number: int) -> NDArray[np.float32]:
    return np.random.default_rng(number).standard_normal(DIMENSION, np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[VectorCache]:
    with closing(VectorCache(tmp_path, SPACE, DIMENSION)) as opened:
        yield opened


def reopened(folder: Path, space: str = SPACE, dimension: int = DIMENSION) -> VectorCache:
    return VectorCache(folder, space, dimension)


@settings(max_examples=20)  # each makes a file
@given(
    st.dictionaries(
        st.binary(min_size=16, max_size=16),
        arrays.arrays(np.float32, DIMENSION, elements=st.floats(width=32)),
        max_size=5,
    )
)
def test_vectors_come_back_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, vectors: dict[bytes, NDArray[np.float32]]
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    with closing(reopened(folder)) as writer:
        assert writer.store(vectors)
    with closing(reopened(folder)) as reader:
        found = reader.find([*vectors, key_of(1)])
    told = {key: vector.tobytes() for key, vector in vectors.items()}
    assert {key: vector.tobytes() for key, vector in found.items()} == told
    assert {vector.dtype for vector in found.values()} <= {np.dtype(np.float32)}


def test_a_vector_of_another_dimension_is_refused_and_nothing_is_stored(cache: VectorCache) -> None:
    with pytest.raises(ValueError, match="expected 8 numbers"):
        cache.store({key_of(1): vector_of(1), key_of(2): vector_of(2)[:7]})
    assert len(cache) == 0


def test_another_encoder_finds_nothing(cache: VectorCache, tmp_path: Path) -> None:
    cache.store({key_of(1): vector_of(1)})
    with closing(reopened(tmp_path, OTHER_SPACE)) as other:
        assert other.find([key_of(1)]) == {}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET vector = zeroblob(32) WHERE key = :key",
        "UPDATE vectors SET vector = x'00' WHERE key = :key",
        "UPDATE vectors SET vector = 'text' WHERE key = :key",
        "UPDATE vectors SET checksum = zeroblob(16) WHERE key = :key",
        """UPDATE vectors SET vector =
           (SELECT vector FROM vectors WHERE key <> :key) WHERE key = :key""",
        """UPDATE vectors SET (vector, checksum) =
           (SELECT vector, checksum FROM vectors WHERE key <> :key) WHERE key = :key""",
    ],
)
def test_a_damaged_row_is_not_found_and_can_be_stored_again(
    cache: VectorCache, tmp_path: Path, damage: str
) -> None:
    cache.store({key_of(1): vector_of(1), key_of(2): vector_of(2)})
    with closing(sqlite3.connect(tmp_path / f"{SPACE}.sqlite")) as database, database:
        assert database.execute(damage, {"key": key_of(1)}).rowcount == 1
    assert list(cache.find([key_of(1), key_of(2)])) == [key_of(2)]
    cache.store({key_of(1): vector_of(1)})
    assert cache.find([key_of(1)])[key_of(1)].tobytes() == vector_of(1).tobytes()


def test_a_file_renamed_to_another_encoder_s_gives_nothing(tmp_path: Path) -> None:
    with closing(reopened(tmp_path)) as cache:
        cache.store({key_of(1): vector_of(1)})
    shutil.copy(tmp_path / f"{SPACE}.sqlite", tmp_path / f"{OTHER_SPACE}.sqlite")
    with closing(reopened(tmp_path, OTHER_SPACE)) as other:
        assert len(other) == 1
        assert other.find([key_of(1)]) == {}


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / f"{SPACE}.sqlite").write_bytes(b"not a database" * 1000)
    with pytest.raises(VectorCacheError, match=rf"{SPACE}.sqlite cannot be used .*remove the file"):
        reopened(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", "utf-8")
    with pytest.raises(VectorCacheError, match=r"set jobs\.vector_cache to another"):
        reopened(tmp_path / "file")


def test_a_full_file_keeps_what_it_has_and_takes_no_more(tmp_path: Path) -> None:
    limit = 64 * 1024
    with closing(VectorCache(tmp_path, SPACE, DIMENSION, max_bytes=limit)) as cache:
        stored = 0
        while cache.store({key_of(stored): vector_of(stored)}):
            stored += 1
        assert 100 < stored < limit // (16 + 4 * DIMENSION + 16)
        assert not cache.store({key_of(stored): vector_of(stored)})
        found = cache.find(map(key_of, range(stored + 1)))
    assert list(found) == [key_of(number) for number in range(stored)]
    assert (tmp_path / f"{SPACE}.sqlite").stat().st_size <= limit


class FullAtCommit(sqlite3.Connection):
    """A disk that is full when a transaction is written, once."""

    full = True

    def execute(self, statement: str, /, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.full:
            self.full = False
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(statement, *values)


def test_a_disk_that_is_full_at_the_end_of_a_write_leaves_the_cache_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = functools.partial(sqlite3.connect, factory=FullAtCommit)
    monkeypatch.setattr("jobs.vectorcache.sqlite3.connect", connect)
    with closing(VectorCache(tmp_path, SPACE, DIMENSION)) as cache:
        assert not cache.store({key_of(1): vector_of(1)})
        assert cache.store({key_of(2): vector_of(2)})
        assert list(cache.find([key_of(1), key_of(2)])) == [key_of(2)]


def test_only_its_owner_may_read_a_cache(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    with closing(reopened(folder)) as cache:
        cache.store({key_of(1): vector_of(1)})
        assert folder.stat().st_mode & 0o077 == 0
        assert {path.stat().st_mode & 0o077 for path in folder.iterdir()} == {0}


WRITER = """
import sys
from pathlib import Path
from jobs.vectorcache import VectorCache
from tests.jobs.test_vectorcache import DIMENSION, SPACE, key_of, vector_of

cache = VectorCache(Path(sys.argv[1]), SPACE, DIMENSION)
for start in range(int(sys.argv[2]), int(sys.argv[3]), 10):
    cache.store({key_of(number): vector_of(number) for number in range(start, start + 10)})
    print(start + 10, flush=True)
"""


def start_writer(folder: Path, first: int, end: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(end)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def assert_whole(folder: Path, numbers: Sequence[int]) -> int:
    """Check that what is found is right; return how much is found."""
    with closing(reopened(folder)) as cache:
        found = cache.find(map(key_of, numbers))
        assert len(cache) == len(found)
    for number in numbers:
        if key_of(number) in found:
            assert found[key_of(number)].tobytes() == vector_of(number).tobytes()
    return len(found)


def test_a_writer_killed_at_once_leaves_whole_rows(tmp_path: Path) -> None:
    written = 0
    for first in (0, 1_000_000):
        with start_writer(tmp_path, first, first + 500_000) as writer:
            assert writer.stdout is not None
            last = [int(writer.stdout.readline()) for _ in range(5)][-1]
            writer.send_signal(signal.SIGKILL)
            last = max([last, *map(int, writer.stdout.read().split())])
            assert writer.wait() == -signal.SIGKILL
        written += last - first
        numbers = [*range(written + 20), *range(1_000_000, 1_000_000 + written + 20)]
        found = assert_whole(tmp_path, numbers)
        assert written <= found <= written + 20  # a batch may be stored and not yet told of


def test_several_processes_write_at_once_and_all_is_kept(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, first, 400) for first in (0, 0, 200)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.read().split()[-1] == "400"
        writer.stdout.close()
        assert writer.wait() == 0
    assert assert_whole(tmp_path, range(500)) == 400


def test_a_query_s_key_is_never_a_passage_s() -> None:
    assert query_key("a") != query_key("b")
    for text in ("", "a", "\xff" * 8):
        assert query_key(text) not in {text_hash("", text), text_hash(text, "")}


# ---------------------------------------------------------------- what a job makes of it


class CountingEncoder(HashingEncoder):
    """Notes what it was asked to encode."""

    def __init__(self, dimension: int = 64) -> None:
        super().__init__(dimension, 32)
        self.asked: list[tuple[str, str]] = []

    def encode_passages(self, passages: Sequence[tuple[str, str]]) -> Vectors:
        self.asked += passages
        return super().encode_passages(passages)


def cut_block(*texts: str) -> pa.Table:
    row = dict.fromkeys(CUT_SCHEMA.names, "x") | {
        "title": "t",
        "starts": [0] * len(texts),
        "ends": [1] * len(texts),
        "texts": list(texts),
        "hashes": [text_hash("t", text) for text in texts],
    }
    return pa.Table.from_pylist([row], schema=CUT_SCHEMA)


def filled(block: pa.Table, encoder: HashingEncoder, cache: VectorCache | None) -> list[bytes]:
    table, report = VectorMaker(encoder, None, cache).fill(block)
    assert report.encoded + report.copied == report.passages
    return [bytes(row or b"") for row in table["vectors"].to_pylist()]


def test_what_one_root_encoded_another_copies(tmp_path: Path) -> None:
    config = JobsConfig(vector_cache=str(tmp_path / "vectors"))
    block, larger = cut_block("one", "two"), cut_block("two", "one", "three")
    for encoder, table, expected in (
        (CountingEncoder(), block, ["one", "two"]),
        (CountingEncoder(), block, []),
        (CountingEncoder(), larger, ["three"]),
        (CountingEncoder(32), block, ["one", "two"]),  # another space
    ):
        cache = open_vector_cache(config, encoder)
        assert cache is not None
        with closing(cache):
            assert filled(table, encoder, cache) == filled(
                table, CountingEncoder(encoder.dimension), None
            )
        assert [text for _, text in encoder.asked] == expected


def test_the_store_s_own_vectors_come_before_the_cache(tmp_path: Path, cache: VectorCache) -> None:
    encoder = CountingEncoder(DIMENSION)
    own, cached = vector_of(1), vector_of(2)
    np.save(tmp_path / "vectors.npy", own[np.newaxis])
    key = np.frombuffer(text_hash("t", "one"), np.uint8)
    write_stock(tmp_path, [key[np.newaxis]])
    stock = VectorStock(tmp_path, [tmp_path / "vectors.npy"])
    cache.store({text_hash("t", "one"): cached, text_hash("t", "two"): cached})
    table, report = VectorMaker(encoder, stock, cache).fill(cut_block("one", "two"))
    assert bytes(table["vectors"][0].as_py() or b"") == own.tobytes() + cached.tobytes()
    assert (report.encoded, report.copied, encoder.asked) == (0, 2, [])


def test_no_cache_is_kept_unless_it_is_configured() -> None:
    assert open_vector_cache(JobsConfig(), HashingEncoder(64, 32)) is None
