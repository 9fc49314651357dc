"""Vectors kept outside the roots, so that no text is encoded twice by the same encoder.

One SQLite file a vector space, shared by every root, job and process of a machine. Its rule: what
it gives back is what was stored, to the bit, or nothing. Every row carries a checksum; a damaged
one is not found, and is replaced when its text was encoded again.

It holds no text, but the vectors of a text outlive the text until `octavo erase` removes them: of
every space, by `forget_vectors`. A file may be removed whenever no job runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.config import JobsConfig
from engine.encoders.encoder import Encoder
from engine.errors import OperatorError

MAX_BYTES = 8 * 2**30
"""A file grows to this and then takes no more: about five million vectors of 384 dimensions."""

_PAGE_BYTES = 4096
_LOCK_WAIT_S = 60.0
_FULL = sqlite3.SQLITE_FULL

_TABLE = """
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, vector BLOB NOT NULL, checksum BLOB NOT NULL
) WITHOUT ROWID
"""


class VectorCacheError(OperatorError):
    """The file of a vector cache cannot be used."""

    code = "octavo_vector_cache"


def query_key(query: str) -> bytes:
    """Return the key of a query's vector: 16 bytes of SHA-256, never those of a passage.

    A passage's key hashes the length of its title first (`jobs.staging.text_hash`); no title has
    the length that is hashed first here.
    """
    return hashlib.sha256(b"\xff" * 8 + query.encode("utf-8", "surrogatepass")).digest()[:16]


def open_vector_cache(config: JobsConfig, encoder: Encoder) -> VectorCache | None:
    """Open what `jobs.vector_cache` names, for the space of an encoder; None: no cache is wanted.

    Raises:
        VectorCacheError: it cannot be opened.
    """
    if not config.vector_cache:
        return None
    folder = Path(config.vector_cache).expanduser()
    return VectorCache(folder, encoder.fingerprint, encoder.dimension)


def forget_vectors(folder: Path, keys: Iterable[bytes]) -> int:
    """Delete the vectors of some texts from the files of every space; return how many rows.

    Their bytes are overwritten with zeros and the write-ahead log is emptied.

    Args:
        folder: where the files lie; none may be there.
        keys: as of `VectorCache.find`.

    Raises:
        VectorCacheError: a file cannot be written, or its log is read for longer than a minute.
    """
    wanted = [(key,) for key in keys]
    gone = 0
    for path in sorted(folder.glob("*.sqlite")):
        try:
            with contextlib.closing(
                sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None)
            ) as database:
                database.execute("PRAGMA secure_delete = ON")
                database.execute("BEGIN IMMEDIATE")
                gone += database.executemany("DELETE FROM vectors WHERE key = ?", wanted).rowcount
                database.execute("COMMIT")
                busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise VectorCacheError(f"the vector cache {path} cannot be used ({error})") from None
        if busy:
            raise VectorCacheError(f"the log of the vector cache {path} is in use: run it again")
    return gone


class VectorCache:
    """The vectors of one space. Any number of processes may read and write it at once.

    For any thread, one call at a time. A process that is killed leaves whole rows (SQLite's
    write-ahead log). Not for network file systems, where SQLite's locks do not hold.
    """

    def __init__(
        self, folder: Path, fingerprint: str, dimension: int, *, max_bytes: int = MAX_BYTES
    ) -> None:
        """Open the file of a space, or make it, readable by this user alone.

        Args:
            folder: where the files lie; made if it is missing.
            fingerprint: of the encoder; names the file.
            dimension: of its vectors.
            max_bytes: the file's largest size.

        Raises:
            VectorCacheError: it cannot be opened, or is not such a file.
        """
        self._path = folder / f"{fingerprint}.sqlite"
        self._space = bytes.fromhex(fingerprint)
        self._dimension = dimension
        self._lock = threading.Lock()
        with self._named():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._database = sqlite3.connect(
                self._path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False
            )
            for statement in (
                "PRAGMA journal_mode = WAL",
                "PRAGMA synchronous = NORMAL",
                f"PRAGMA max_page_count = {max(1, max_bytes // _PAGE_BYTES)}",
                _TABLE,
            ):
                self._database.execute(statement)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise VectorCacheError(
                f"the vector cache {self._path} cannot be used ({error}): remove the file, or set "
                "jobs.vector_cache to another folder"
            ) from None

    def _checksum(self, key: bytes, vector: bytes) -> bytes:
        return hashlib.sha256(self._space + key + vector).digest()[:16]

    def find(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors that are stored and whole, float32 of shape (dimension,), by key.

        Args:
            keys: `jobs.staging.text_hash` of passages, `query_key` of queries.

        Raises:
            VectorCacheError: the file cannot be read.
        """
        found = {}
        with self._named(), self._lock:
            for key in keys:
                row = self._database.execute(
                    "SELECT vector, checksum FROM vectors WHERE key = ?", (key,)
                ).fetchone()
                if row is None or not all(isinstance(value, bytes) for value in row):
                    continue
                vector, checksum = row
                if checksum == self._checksum(key, vector) and len(vector) == 4 * self._dimension:
                    found[key] = np.frombuffer(vector, "<f4").astype(np.float32)
        return found

    def store(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> bool:
        """Store vectors, all or none; say whether they were stored.

        They are not when the file has reached its largest size or the disk is full: a cache is no
        reason for a job to fail.

        Args:
            vectors: float32 of shape (dimension,), by key; replace what is stored under it.

        Raises:
            VectorCacheError: the file cannot be written.
            ValueError: a vector has another dimension.
        """
        rows = []
        for key, vector in vectors.items():
            if vector.shape != (self._dimension,):
                raise ValueError(f"expected {self._dimension} numbers, got shape {vector.shape}")
            data = np.asarray(vector, "<f4").tobytes()
            rows.append((key, data, self._checksum(key, data)))
        with self._named(), self._lock:
            try:
                with self._transaction():
                    self._database.executemany("REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != _FULL:
                    raise
                return False
        return True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        finally:  # the commit may fail too, and an interrupt must not leave the file locked
            if self._database.in_transaction:  # SQLite ends it itself when the file is full
                self._database.execute("ROLLBACK")

    def __len__(self) -> int:
        """Return the number of rows, damaged ones too."""
        with self._named(), self._lock:
            count: int = self._database.execute("SELECT COUNT(*) FROM vectors").fetchone()[0]
        return count

    def close(self) -> None:
        """Close the file. Later calls fail."""
        with self._named(), self._lock:
            self._database.close()
