"""Remembered hashes of files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from engine.encoders.hashes import cache_folder, file_sha256


def test_the_cache_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "octavo" / "encoders"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "octavo" / "encoders"


def test_a_hash_is_computed_once_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "weights"
    path.write_bytes(b"first")
    expected = hashlib.sha256(b"first").hexdigest()
    assert file_sha256(path) == expected
    (note,) = (tmp_path / "cache" / "octavo" / "encoders" / "hashes").iterdir()
    note.write_text("0" * 64, "ascii")
    assert file_sha256(path) == "0" * 64, "read from the note"
    os.utime(path, ns=(1, 1))
    assert file_sha256(path) == expected


def test_a_damaged_note_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "weights"
    path.write_bytes(b"text")
    expected = file_sha256(path)
    (note,) = (tmp_path / "cache" / "octavo" / "encoders" / "hashes").iterdir()
    note.write_bytes(b"\xff\xfe")
    assert file_sha256(path) == expected


def test_a_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "cache"
    blocked.write_bytes(b"a file, not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    path = tmp_path / "weights"
    path.write_bytes(b"text")
    assert file_sha256(path) == hashlib.sha256(b"text").hexdigest()
