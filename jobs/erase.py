"""`octavo erase`: takes revisions out of every file of a root, and leaves a tombstone each.

The order makes a crash harmless: the tombstone and the withdrawal come first, the stored text goes
last, because what else has to go is found through it. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from engine.config import Config
from engine.errors import ConflictError, NotFoundError, OperatorError
from engine.ids import ItemId, RevisionId
from engine.index.generation import GenerationLog
from engine.store.erasing import (
    dead_files,
    delete_dead,
    drop_rows,
    revisions_of,
    unreadable_files,
)
from engine.store.opening import Store, open_store
from engine.store.revisions import RevisionKey
from engine.store.storage import LocalStorage
from engine.store.writer import utc_now
from jobs.erase_index import IndexErasure
from jobs.erase_search import Finding, search_root, unshared, windows
from jobs.lock import locked
from jobs.reindex import LOCK, OnStep, ignore_step

TOMBSTONES = "erased"


class ErasureError(OperatorError):
    """A file of the root still holds an erased text. What can be was removed; run it again."""

    code = "octavo_not_erased"
    retryable = True


@dataclass(frozen=True, slots=True)
class Selection:
    """Which revisions of an item: those named, else all that are stored or partly erased."""

    item: ItemId
    revisions: tuple[RevisionId, ...] = ()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a revision. No text and no hash of one.

    Attributes:
        item_id: the item.
        revision_id: the revision.
        erased_by: who asked for it.
        asked_at: when, RFC 3339, UTC.
        erased_at: when nothing of it was left, or None: it is not done yet.
    """

    item_id: ItemId
    revision_id: RevisionId
    erased_by: str
    asked_at: str
    erased_at: str | None

    @property
    def key(self) -> RevisionKey:
        """Return the revision's address."""
        return self.item_id, self.revision_id


@dataclass(slots=True)
class Erasure:
    """What an erasure removed, or would remove.

    Attributes:
        dry_run: whether nothing was changed.
        revisions: (item, revision) of each.
        same_text: other revisions with the very same content: they stay.
        generation: the newest generation now, 0 when there is none.
        segments: names of removed segments, of any generation.
        rebuilt: names of those built in the place of current ones.
        store_files: Parquet files rewritten or deleted.
        vectors: rows deleted from `jobs.vector_cache`.
        sample_rows: rows taken out of the reference sample.
        staged: whether what an unfinished reindex had staged was removed.
        pieces: pieces of the texts that were looked for in every file.
        shared_pieces: pieces left out because other revisions hold them.
        findings: where pieces were found all the same.
        mapped_by: processes of this machine that still map removed segments.
    """

    dry_run: bool
    revisions: tuple[RevisionKey, ...]
    same_text: tuple[RevisionKey, ...] = ()
    generation: int = 0
    segments: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    store_files: int = 0
    vectors: int = 0
    sample_rows: int = 0
    staged: bool = False
    pieces: int = 0
    shared_pieces: int = 0
    findings: tuple[Finding, ...] = ()
    mapped_by: tuple[int, ...] = ()

    def document(self) -> dict[str, object]:
        """Return it as a JSON object."""
        values: dict[str, object] = {name: getattr(self, name) for name in Erasure.__slots__}
        return values | {
            "findings": [{"file": found.file, "form": found.form} for found in self.findings]
        }


def erase(
    config: Config,
    selection: Selection,
    by: str,
    *,
    dry_run: bool = False,
    on_step: OnStep = ignore_step,
) -> Erasure:
    """Erase revisions, look into every file of the root, and say what was done.

    Running servers stop showing and reading the texts as soon as they see the withdrawal.

    Args:
        config: the configuration; names the root and the vector cache.
        selection: what to erase.
        by: who asks, for the tombstone.
        dry_run: only say what would be removed.
        on_step: told of each durable step.

    Raises:
        NotFoundError: there is no such revision, and no tombstone of it.
        ConflictError: a reindex or another erasure is running.
        ErasureError: a file still holds a piece of a text.
        SegmentRefusedError: a current segment that holds one is damaged.
        StorageFullError, StoreError, ContentionError, CommitUnknownError: run it again.
    """
    store = open_store(config.root)
    storage = LocalStorage(config.root)
    with locked(storage.local_path(LOCK), "a reindex or another erasure is running"):
        return _Job(config, store, storage, on_step).run(selection, by, dry_run=dry_run)


@dataclass(slots=True)
class _Job:
    config: Config
    store: Store
    storage: LocalStorage
    on_step: OnStep
    texts: list[str] = field(default_factory=list)

    def run(self, selection: Selection, by: str, *, dry_run: bool) -> Erasure:
        keys = self._keys(selection)
        same = self._read(keys)
        index = IndexErasure(self.config, self.storage, keys, self.on_step)
        done = Erasure(dry_run, keys, same)
        if dry_run:
            self._foresee(done, index)
            return done
        self._announce(keys, by)
        self._require_finished()
        index.run(done)
        self._search_elsewhere(done)
        self._empty_store(done, keys)
        self._verify(done, keys, index)
        self._close(keys)
        return done

    def _keys(self, selection: Selection) -> tuple[RevisionKey, ...]:
        held = revisions_of(self.store.tables.revisions, selection.item)
        known = {*held, *(t.revision_id for t in tombstones(self.storage, selection.item))}
        for revision in selection.revisions:
            if revision not in known:
                raise NotFoundError(f"item {selection.item} has no revision {revision}")
        chosen = selection.revisions or tuple(known)
        if not chosen:
            raise NotFoundError(f"item {selection.item} has no revisions")
        return tuple((selection.item, revision) for revision in sorted(set(chosen)))

    def _read(self, keys: Sequence[RevisionKey]) -> tuple[RevisionKey, ...]:
        """Read the texts that are still stored; return other revisions with the same content."""
        found = [self.store.revisions.read(*key) for key in keys]
        stored = [revision for revision in found if revision is not None]
        self.texts = [text for revision in stored for text in (revision.content, revision.title)]
        hashes = {revision.content_sha256 for revision in stored}
        same = (
            (ItemId(row["item_id"]), RevisionId(row["revision_id"]))
            for row in self._stored_rows(["item_id", "revision_id", "content_sha256"])
            if row["content_sha256"] in hashes
        )
        return tuple(sorted(set(same) - set(keys)))

    def _stored_rows(self, columns: list[str]) -> Iterator[dict[str, str]]:
        table = self.store.tables.revisions
        snapshot = table.snapshot()
        for file in table.log.load(snapshot.version)[1]:
            with pq.ParquetFile(table.local_path(file.path)) as parquet:
                for batch in parquet.iter_batches(batch_size=256, columns=columns):
                    yield from batch.to_pylist()
        table.release(snapshot)

    def _foresee(self, done: Erasure, index: IndexErasure) -> None:
        table = self.store.tables.revisions
        done.segments = index.names()
        done.store_files = len(dead_files(table, done.revisions))
        done.pieces = len(self._pieces(done))

    def _announce(self, keys: Iterable[RevisionKey], by: str) -> None:
        for key in keys:
            if read_tombstone(self.storage, key) is None:
                now = utc_now().isoformat(timespec="seconds")
                write_tombstone(self.storage, Tombstone(*key, by, now, None))
        self.on_step("noted")
        catalog = self.store.catalog.poll()
        for key in keys:
            if not catalog.withdrawn(*key):
                self.store.writer.withdraw(*key)
        self.on_step("withdrawn")

    def _require_finished(self) -> None:
        """Refuse while a reindex that was killed has moved items to a generation that is missing.

        The generation that an erasure commits would be taken for that one.

        Raises:
            ConflictError: it has to be finished first.
        """
        newest = GenerationLog(self.storage).newest()
        number = 0 if newest is None else newest.number
        if any(state.current_from > number for state in self.store.catalog.poll().items()):
            raise ConflictError(
                "a reindex was interrupted and must be finished first: run `octavo reindex`, then "
                "this again; what is to be erased is not shown any more"
            )

    def _search_elsewhere(self, done: Erasure) -> None:
        """Look for the texts outside the table while they are still known.

        Raises:
            ErasureError: something was found; the stored text is still there to look again by.
        """
        table = self.store.tables.revisions
        folder = table.local_path("x").parent
        found = search_root(Path(self.storage.root), self._pieces(done), folder)
        done.findings = found
        self._require_none(found)

    def _empty_store(self, done: Erasure, keys: Collection[RevisionKey]) -> None:
        table = self.store.tables.revisions
        done.store_files = drop_rows(table, keys)
        self.on_step("rewritten")
        done.store_files += delete_dead(table, keys)
        self.on_step("deleted")

    def _pieces(self, done: Erasure) -> tuple[str, ...]:
        pieces = [piece for text in self.texts for piece in windows(text)]
        gone = set(done.revisions)
        others = (
            text
            for row in self._stored_rows(["item_id", "revision_id", "title", "content"])
            if (row["item_id"], row["revision_id"]) not in gone
            for text in (row["title"], row["content"])
        )
        left = unshared(pieces, others)
        done.shared_pieces = len(set(pieces)) - len(left)
        return left

    def _verify(self, done: Erasure, keys: Collection[RevisionKey], index: IndexErasure) -> None:
        """Look for the texts in every file, and for the ids wherever a text would stand by them.

        Raises:
            ErasureError: something was found.
        """
        pieces = self._pieces(done)
        done.pieces = len(pieces)
        root = Path(self.storage.root)
        done.findings = (
            *search_root(root, pieces),
            *(Finding(f"segments/{name}", "entry") for name in index.names()),
            *(
                Finding(path.relative_to(root).as_posix(), "row")
                for path in dead_files(self.store.tables.revisions, keys)
            ),
            *(
                Finding(path.relative_to(root).as_posix(), "cannot be read")
                for path in unreadable_files(self.store.tables.revisions, keys)
            ),
        )
        self._require_none(done.findings)

    def _require_none(self, findings: Sequence[Finding]) -> None:
        if findings:
            places = ", ".join(f"{found.file} ({found.form})" for found in findings[:5])
            raise ErasureError(
                f"{len(findings)} places still hold an erased text: {places}; "
                "remove what is not the store's own, then run it again"
            )

    def _close(self, keys: Iterable[RevisionKey]) -> None:
        for key in keys:
            told = read_tombstone(self.storage, key)
            if told is not None and told.erased_at is None:
                now = utc_now().isoformat(timespec="seconds")
                closed = Tombstone(*key, told.erased_by, told.asked_at, now)
                write_tombstone(self.storage, closed)
        self.on_step("closed")


def _key_of(key: RevisionKey) -> str:
    """Return where a tombstone lies: a folder an item, named by hashes of the ids alone."""
    item, revision = (hashlib.sha256(part.encode()).hexdigest()[:32] for part in key)
    return f"{TOMBSTONES}/{item}/{revision}.json"


def read_tombstone(storage: LocalStorage, key: RevisionKey) -> Tombstone | None:
    """Return the tombstone of a revision, or None: its erasure was never asked for."""
    try:
        return Tombstone(**json.loads(storage.read_bytes(_key_of(key))))
    except NotFoundError:
        return None


def write_tombstone(storage: LocalStorage, tombstone: Tombstone) -> None:
    """Write a tombstone, whole and durably."""
    values = {name: getattr(tombstone, name) for name in Tombstone.__slots__}
    storage.put_bytes_atomic(_key_of(tombstone.key), json.dumps(values).encode())


def tombstones(storage: LocalStorage, item: ItemId) -> tuple[Tombstone, ...]:
    """Return the tombstones of an item's revisions."""
    folder = _key_of((item, RevisionId(""))).rsplit("/", maxsplit=1)[0]
    return tuple(
        Tombstone(**json.loads(storage.read_bytes(f"{folder}/{name}")))
        for name in storage.list(folder)
        if name.endswith(".json") and not name.startswith(".")
    )
