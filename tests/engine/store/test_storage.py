"""Files under a root, the faults of writing them, and the runtime switch."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest

from engine.errors import NotFoundError, StorageFullError, StoreError
from engine.store.opening import create_store
from engine.store.runtime import RUNTIME_KEY, RuntimeSwitch
from engine.store.storage import LocalStorage, write_fault
from tests.engine.store.samples import KB, add_one, new


def test_a_file_reads_back_as_it_was_put_and_a_second_put_replaces_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_bytes_atomic("a/b.json", b"one")
    storage.put_bytes_atomic("a/b.json", b"two")
    assert storage.read_bytes("a/b.json") == b"two"
    assert storage.list("a") == ("b.json",)


def _fsynced(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Return a set that grows by each file and folder that is fsynced, for real, from now on."""
    seen: set[Path] = set()
    real = os.fsync

    def fsync(descriptor: int) -> None:
        seen.add(Path(f"/proc/self/fd/{descriptor}").resolve())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_a_new_folder_survives_a_power_cut_as_its_files_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _fsynced(monkeypatch)
    LocalStorage(tmp_path).put_bytes_atomic("a/b/c.json", b"one")
    assert seen >= {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}


def test_a_store_s_tables_and_buckets_survive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = _fsynced(monkeypatch)
    root = tmp_path / "root"
    store = create_store(root)
    for name in ("bases", "items", "publications", "revisions"):
        log = root / "store" / name / "_delta_log"
        assert seen >= {log / f"{0:020d}.json", *(log, *log.parents[:3])}
    seen.clear()
    store.writer.create_base(KB, "Knowledge", "alice", None, "public")
    add_one(store, new())
    buckets = {path.parent for path in (root / "store" / "revisions").rglob("*.parquet")}
    assert buckets
    assert seen >= {root / "store" / "revisions", *buckets}


def test_a_failed_put_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(StoreError):
        storage.put_bytes_atomic("a/b", b"a folder is in the way")
    assert storage.list("a") == ("b",)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no a/b\.json"):
        LocalStorage(tmp_path).read_bytes("a/b.json")


def test_deleting_takes_files_and_folders_and_is_quiet_about_missing_ones(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_bytes_atomic("a/b/c", b"")
    storage.put_bytes_atomic("d", b"")
    for key in ("a", "d", "nothing"):
        storage.delete(key)
    assert storage.list("") == ()
    assert storage.list("nothing") == ()


@pytest.mark.parametrize("key", ["/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a\\b"])
def test_a_key_cannot_leave_the_root(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        LocalStorage(tmp_path).local_path(key)


def test_the_root_itself_is_never_deleted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="root"):
        LocalStorage(tmp_path).delete("")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError("Generic LocalFileSystem error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_has_its_own_error_however_it_is_wrapped(error: OSError) -> None:
    fault = write_fault(error, "a table")
    assert type(fault) is StorageFullError
    assert str(pickle.loads(pickle.dumps(fault))) == str(fault)


def test_another_failed_write_is_not_called_a_full_disk() -> None:
    fault = write_fault(OSError(errno.EACCES, "Permission denied"), "a table")
    assert type(fault) is StoreError
    assert str(fault) == "cannot write a table: Permission denied"


def test_the_runtime_is_on_until_it_is_set_off(tmp_path: Path) -> None:
    switch = RuntimeSwitch(LocalStorage(tmp_path))
    assert switch.enabled()
    switch.set(False)
    assert not RuntimeSwitch(LocalStorage(tmp_path)).enabled()
    switch.set(True)
    assert switch.enabled()


@pytest.mark.parametrize("data", [b"", b"[]", b'{"enabled": 1}', b"{"])
def test_a_damaged_switch_is_an_error_not_an_answer(tmp_path: Path, data: bytes) -> None:
    storage = LocalStorage(tmp_path)
    storage.put_bytes_atomic(RUNTIME_KEY, data)
    with pytest.raises(StoreError, match="octavo runtime"):
        RuntimeSwitch(storage).enabled()
