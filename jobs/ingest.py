"""`octavo ingest`: texts read by Ray Data, committed to the store in groups by this process.

Reading, converting and language detection run in tasks; rows stream here and are committed
`jobs.commit_rows` at a time, so a large input is never held whole.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self
from urllib.parse import quote

import pyarrow as pa
from rich.console import Console

from engine.config import Config
from engine.errors import ConflictError, NotFoundError
from engine.ids import BaseId, ItemId, RevisionId, derive_item_id
from engine.store.opening import open_store
from engine.store.revisions import NewRevision
from engine.store.storage import Storage, write_fault
from engine.store.writer import StoreWriter
from jobs.cluster import joined
from jobs.progress import Progress
from jobs.reading import Kind, Reading, Refusal, Source, list_files, read_source

_GROUP_CHARS = 16_000_000
"""A group is committed early when its contents reach this many characters."""

_BATCH_ROWS = 100
_BATCH_CHARS = 4_000_000
_UNITS_A_BLOCK = 64

ROW_SCHEMA = pa.schema(
    [
        ("place", pa.string()),
        ("reason", pa.string()),  # set: refused
        ("item_id", pa.string()),
        ("revision_id", pa.string()),
        ("title", pa.string()),
        ("content", pa.large_string()),
        ("language", pa.string()),
        ("source_type", pa.string()),
        ("source_ref", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class IngestOrder:
    """What to ingest: a path into a base; language None is detected."""

    path: Path
    base: BaseId
    publish: bool = False
    language: str | None = None
    rejects: Path | None = None


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What became of an input, in revisions.

    Attributes:
        base: where it went.
        added: new revisions.
        updated: revisions that were there, and became their item's newest, or published.
        unchanged: revisions that were there already.
        refused: rows or files that changed nothing.
        skipped: files of a directory that are of no supported kind.
        reasons: how many were refused for each reason.
        rejects_file: names each refused one; None when there is none.
        seconds: wall clock.
    """

    base: BaseId
    added: int
    updated: int
    unchanged: int
    refused: int
    skipped: int
    reasons: dict[str, int]
    rejects_file: str | None
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "base": self.base,
            "added": self.added,
            "updated": self.updated,
            "unchanged": self.unchanged,
            "refused": self.refused,
            "skipped": self.skipped,
            "reasons": self.reasons,
            "rejects_file": self.rejects_file,
            "seconds": round(self.seconds, 1),
        }


def ingest(config: Config, order: IngestOrder, console: Console) -> IngestReport:
    """Read an input into a base.

    Running it again adds nothing. What cannot be read is named in the rejects file and skipped.

    Args:
        config: the configuration.
        order: what to ingest.
        console: where progress is shown.

    Raises:
        NotFoundError: there is no such base.
        StorageFullError: no space is left; what was committed stays.
    """
    started = time.monotonic()
    store = open_store(config.root)
    base = store.catalog.poll().base(order.base)
    if base is None:
        raise NotFoundError(f"there is no base {order.base}: `octavo base create` makes one")
    if not base.active:
        raise ConflictError(f"base {order.base} is archived: activate it first")
    listing = list_files(order.path)
    rejects = Rejects(order.rejects or _default_rejects(store.storage, order.base))
    with rejects, joined(config.jobs), Progress(console, "reading", None) as progress:
        committer = Committer(store.writer, order, config.jobs.commit_rows, rejects)
        for batch in _read(listing.sources, order.language):
            for row in batch.to_pylist():
                committer.take(row)
            progress.advance(batch.num_rows)
        committer.commit()
    return committer.report(listing.skipped, time.monotonic() - started)


def _default_rejects(storage: Storage, base: BaseId) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    return storage.local_path(f"rejects/{quote(base, safe='')[:100]}-{stamp}.jsonl")


class Rejects:
    """The file that names each refused one; made with the first."""

    def __init__(self, path: Path) -> None:
        """Name the file."""
        self.path = path
        self.reasons: Counter[str] = Counter()
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        """Return it; the file is not made yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def add(self, place: str, reason: str) -> None:
        """Name one refused place."""
        self.reasons[reason] += 1
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("w", encoding="utf-8")
            line = json.dumps({"source": place, "reason": reason}, ensure_ascii=True)
            self._file.write(line + "\n")
        except OSError as error:
            raise write_fault(error, "the rejects file") from error


@dataclass(slots=True)
class Committer:
    """Collects rows, commits them in groups, and counts what became of them."""

    writer: StoreWriter
    order: IngestOrder
    group_rows: int
    rejects: Rejects
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    _group: list[tuple[str, NewRevision]] = field(default_factory=list)
    _chars: int = 0
    _seen: set[tuple[ItemId, str | None]] = field(default_factory=set)

    def take(self, row: dict[str, Any]) -> None:
        """Take a row of `ROW_SCHEMA`; commit when the group is full."""
        if row["reason"] is not None:
            self.rejects.add(row["place"], row["reason"])
            return
        given = row["item_id"]
        item = ItemId(given) if given else derive_item_id(self.order.base, row["source_ref"])
        key = (item, row["revision_id"])
        if key in self._seen:
            self.rejects.add(row["place"], "another row of this input has the same id")
            return
        self._seen.add(key)
        revision = NewRevision(
            base_id=self.order.base,
            title=row["title"],
            content=row["content"],
            language=row["language"],
            source_type=row["source_type"],
            source_ref=row["source_ref"],
            item_id=ItemId(given) if given else None,
            revision_id=RevisionId(row["revision_id"]) if row["revision_id"] else None,
        )
        self._group.append((row["place"], revision))
        self._chars += len(revision.content)
        if len(self._group) >= self.group_rows or self._chars >= _GROUP_CHARS:
            self.commit()

    def commit(self) -> None:
        """Commit what was collected; afterwards nothing is."""
        if not self._group:
            return
        rows = [revision for _, revision in self._group]
        report = self.writer.add_revisions(rows, publish=self.order.publish)
        self.added += report.added
        self.updated += report.updated
        self.unchanged += report.unchanged
        for index, reason in report.refused:
            self.rejects.add(self._group[index][0], reason)
        self._group.clear()
        self._chars = 0

    def report(self, skipped: int, seconds: float) -> IngestReport:
        """Return what was counted; `skipped` files were of no supported kind."""
        reasons = self.rejects.reasons
        return IngestReport(
            base=self.order.base,
            added=self.added,
            updated=self.updated,
            unchanged=self.unchanged,
            refused=reasons.total(),
            skipped=skipped,
            reasons=dict(sorted(reasons.items())),
            rejects_file=str(self.rejects.path) if reasons else None,
            seconds=seconds,
        )


# ------------------------------------------------------------------------ what Ray Data runs


def _read(sources: Sequence[Source], language: str | None) -> Iterator[pa.Table]:
    """Read sources in tasks; yield their rows (`ROW_SCHEMA`) in the order of the sources."""
    import ray.data

    if not sources:
        return
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True  # the first of two equal ids wins, always
    blocks = -(-len(sources) // _UNITS_A_BLOCK)
    items = [
        {
            "path": source.path,
            "ref": source.ref,
            "kind": source.kind.value,
            "language": language or "",
        }
        for source in sources
    ]
    reading: Any = read_rows  # the stubs know no generators
    rows = ray.data.from_items(items, override_num_blocks=blocks).map_batches(
        reading, batch_size=_UNITS_A_BLOCK, num_cpus=1
    )
    for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow"):
        assert isinstance(batch, pa.Table)
        yield batch


def read_rows(batch: dict[str, Any]) -> Iterator[pa.Table]:
    """Read the sources of a batch; yield rows of `ROW_SCHEMA` in tables of bounded size."""
    rows: list[dict[str, Any]] = []
    chars = 0
    columns = (batch[name] for name in ("path", "ref", "kind", "language"))
    for path, ref, kind, language in zip(*columns, strict=True):
        source = Source(str(path), str(ref), Kind(str(kind)))
        for outcome in read_source(source, str(language) or None):
            rows.append(_row(outcome))
            chars += len(rows[-1].get("content") or "")
            if len(rows) >= _BATCH_ROWS or chars >= _BATCH_CHARS:
                yield pa.Table.from_pylist(rows, schema=ROW_SCHEMA)
                rows, chars = [], 0
    yield pa.Table.from_pylist(rows, schema=ROW_SCHEMA)


def _row(outcome: Reading | Refusal) -> dict[str, Any]:
    if isinstance(outcome, Refusal):
        return {"place": outcome.place, "reason": outcome.reason}
    return {
        "place": outcome.place,
        "item_id": outcome.item_id,
        "revision_id": outcome.revision_id,
        "title": outcome.title,
        "content": outcome.content,
        "language": outcome.language,
        "source_type": outcome.source_type,
        "source_ref": outcome.source_ref,
    }
