"""The log of generations, on real Delta Lake."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.errors import InvalidValueError, NotFoundError, StaleVersionError
from engine.index.generation import GenerationLog, GenerationRecord, Reference
from engine.index.segment_builder import SegmentRecord
from engine.store.storage import LocalStorage

ROOT = Path(__file__).parents[3]


def record(number: int, created_at: str = "2026-11-30T12:00:00Z") -> GenerationRecord:
    segments = tuple(
        SegmentRecord(f"g{number}-{place}", place % 2, 10 + place, 3, 4096, "a" * 64)
        for place in range(number)
    )
    reference = Reference("reference/1.npy", "b" * 64)
    return GenerationRecord(
        number, 2, "f" * 64, 384, '{"max_tokens":128}', reference, created_at, segments
    )


@pytest.fixture
def log(tmp_path: Path) -> GenerationLog:
    return GenerationLog(LocalStorage(tmp_path))


def test_a_store_without_generations_has_none(log: GenerationLog, tmp_path: Path) -> None:
    assert log.newest() is None
    assert log.numbers() == ()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFoundError):
        log.get(1)


def test_what_was_committed_is_read_by_another_reader(log: GenerationLog, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        log.commit(record(number))
    other = GenerationLog(LocalStorage(tmp_path))
    assert other.numbers() == (1, 2, 3)
    assert other.newest() == record(3)
    assert other.get(2) == record(2)


def test_a_generation_may_hold_no_segment(log: GenerationLog) -> None:
    empty = GenerationRecord(1, 1, "f" * 64, 8, "{}", Reference("r", "0"), "now", ())
    log.commit(empty)
    assert log.newest() == empty


def test_an_open_reader_sees_the_next_commit(log: GenerationLog, tmp_path: Path) -> None:
    reader = GenerationLog(LocalStorage(tmp_path))
    assert reader.newest() is None
    log.commit(record(1))
    first = reader.newest()
    assert first is not None
    assert first.number == 1
    assert reader.newest() is first
    log.commit(record(2))
    assert reader.newest() == record(2)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_number_that_is_not_the_next_is_stale(log: GenerationLog, number: int) -> None:
    log.commit(record(1))
    with pytest.raises(StaleVersionError) as caught:
        log.commit(record(number))
    assert (caught.value.expected, caught.value.actual) == (number - 1, 1)
    assert log.numbers() == (1,)


def test_a_writer_that_arrives_late_is_told(log: GenerationLog, tmp_path: Path) -> None:
    late = GenerationLog(LocalStorage(tmp_path))
    assert late.newest() is None
    log.commit(record(1, "first"))
    with pytest.raises(StaleVersionError):
        late.commit(record(1, "late"))
    newest = late.newest()
    assert newest is not None
    assert newest.created_at == "first"


def test_a_record_that_cannot_be_a_generation_is_refused(log: GenerationLog) -> None:
    segment = SegmentRecord("s", 0, 1, 1, 1, "a" * 64)
    outside = SegmentRecord("t", 5, 1, 1, 1, "a" * 64)
    for segments in ((segment, segment), (outside,)):
        reference = Reference("r", "0")
        bad = GenerationRecord(1, 2, "f" * 64, 8, "{}", reference, "now", segments)
        with pytest.raises(InvalidValueError):
            log.commit(bad)
    assert log.newest() is None


def test_of_two_processes_that_commit_the_same_number_one_wins(tmp_path: Path) -> None:
    code = """
import sys
from engine.errors import StaleVersionError
from engine.index.generation import GenerationLog
from engine.store.storage import LocalStorage
from tests.engine.index.test_generation import record
log = GenerationLog(LocalStorage(sys.argv[1]))
print('ready', flush=True)
sys.stdin.readline()
for number in range(1, 4):
    try:
        log.commit(record(number, sys.argv[2]))
        print('won', number)
    except StaleVersionError:
        print('lost', number)
"""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), name],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    said = {}
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for name, writer in zip(("one", "two"), writers, strict=True):
        output, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0
        said[name] = [line.split() for line in output.splitlines()]
    log = GenerationLog(LocalStorage(tmp_path))
    assert log.numbers() == tuple(range(1, 4))
    for number in range(1, 4):
        winners = [name for name, lines in said.items() if ["won", str(number)] in lines]
        assert winners == [log.get(number).created_at]


def test_of_many_threads_that_commit_the_same_number_one_wins(tmp_path: Path) -> None:
    outcomes: list[str] = []

    def work(name: str) -> None:
        try:
            GenerationLog(LocalStorage(tmp_path)).commit(record(1, name))
            outcomes.append(name)
        except StaleVersionError:
            outcomes.append("stale")

    threads = [threading.Thread(target=work, args=(str(place),)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    newest = GenerationLog(LocalStorage(tmp_path)).newest()
    assert newest is not None
    assert sorted(outcomes) == sorted([newest.created_at, *["stale"] * 5])
