"""Small real stores for tests: Delta tables, Lucene, FAISS, and generations built in process."""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from engine.config import Config, parse_config
from engine.encoders.hashing import HashingEncoder
from engine.ids import BaseId, ItemId, RevisionId, ShardId, shard_of
from engine.index.generation import GenerationLog, GenerationRecord, Reference
from engine.index.jvm import start_jvm
from engine.index.segment import ENTRIES, PASSAGES
from engine.index.segment_builder import SegmentHeader, SegmentRecord, build_segment
from engine.index.vector import VectorSettings
from engine.store.catalog import BaseState
from engine.store.opening import Store, create_store, open_store
from engine.store.revisions import NewRevision, Revision
from engine.store.states import BASES_SCHEMA, rows_of
from engine.text.chunking import cut
from engine.text.reference import reference_sentences

DIMENSION = 64
PASSAGE_TOKENS = 48

Place = Callable[[ItemId, int], ShardId]


def small_config(root: Path, **sections: object) -> Config:
    """Return a configuration with the hashing encoder; `sections` replace whole branches."""
    tree: dict[str, object] = {
        "root": str(root),
        "encoder": {"model": "hashing", "dimension": DIMENSION},
        "passages": {"max_tokens": PASSAGE_TOKENS},
        "jvm": {"heap_mb": 512},
        # A busy machine may pause a test for seconds; staleness has tests of its own.
        "catalog": {"max_staleness_s": 60.0},
        "search": {"deadline_s": 120.0},
    }
    return parse_config(tree | sections)


@dataclass(slots=True)
class Library:
    """A store under a folder, and what builds its generations.

    Attributes:
        root: the folder.
        encoder: makes its vectors.
        counter: names segments.
        vector_search: how segments index their vectors.
    """

    root: Path
    encoder: HashingEncoder = field(default_factory=lambda: HashingEncoder(DIMENSION))
    counter: int = 0
    vector_search: VectorSettings = field(default_factory=VectorSettings, kw_only=True)

    @property
    def store(self) -> Store:
        """Return the store, made when it is not there."""
        return create_store(self.root)

    def copy(self, root: Path) -> Library:
        """Return a copy of everything under another folder."""
        shutil.copytree(self.root, root)
        return Library(root, self.encoder, self.counter, vector_search=self.vector_search)

    def add_base(
        self, base: str, scope: str = "public", owner: str = "owner", team: str | None = None
    ) -> None:
        """Make a base."""
        self.store.writer.create_base(BaseId(base), base.title(), owner, team, scope)

    def add_private_bases(self, bases: Sequence[str], owner: str) -> None:
        """Make many private bases in one commit."""
        made = "2026-01-01T00:00:00Z"
        states = [
            BaseState(BaseId(base), 1, base.title(), owner, None, "private", "active", made)
            for base in bases
        ]
        table = self.store.tables.bases
        table.commit(table.snapshot(), table.stage(rows_of(states, BASES_SCHEMA)))

    def add(
        self,
        base: str,
        texts: Sequence[tuple[str, str, str]],
        *,
        language: str = "en",
        revision: str | None = None,
        publish: bool = True,
    ) -> None:
        """Add revisions, given as (item id, title, content)."""
        rows = [
            NewRevision(
                base_id=BaseId(base),
                title=title,
                content=content,
                language=language,
                source_type="file",
                source_ref=f"{item}.md",
                item_id=ItemId(item),
                revision_id=None if revision is None else RevisionId(revision),
            )
            for item, title, content in texts
        ]
        report = self.store.writer.add_revisions(rows, publish=publish)
        assert not report.refused, report.refused

    # --------------------------------------------------------------------------- generations

    def reindex(
        self, shards: int = 1, segments: int = 1, place: Place = shard_of, *, grow: bool = False
    ) -> GenerationRecord:
        """Build and commit the next generation.

        Args:
            shards: how many.
            segments: into how many segments each shard is split.
            place: the shard of an item.
            grow: keep the segments of the newest generation and add what is new.
        """
        start_jvm(512)
        store = self.store
        log = GenerationLog(store.storage)
        newest = log.newest()
        number = 1 if newest is None else newest.number + 1
        catalog = store.writer.catalog()
        moves = catalog.next_generation_moves(number)
        store.writer.set_current(moves, number)
        catalog = store.writer.catalog()
        wanted: list[tuple[ItemId, RevisionId]] = []
        for state in sorted(catalog.items(), key=lambda state: state.item_id):
            revision = catalog.current_at(state.item_id, number)
            if revision is not None and (not grow or (state.item_id, revision) in set(moves)):
                wanted.append((state.item_id, revision))
        built = list(newest.segments) if grow and newest is not None else []
        for shard in range(shards):
            mine = [key for key in wanted if place(key[0], shards) == shard]
            for part in range(segments):
                segment = self._segment(store, mine[part::segments], shard)
                if segment is not None:
                    built.append(segment)
        record = GenerationRecord(
            number=number,
            shards=shards,
            encoder=self.encoder.fingerprint,
            dimension=self.encoder.dimension,
            passages_config="{}",
            reference=newest.reference if newest else self._reference(store),
            created_at="2026-01-01T00:00:00Z",
            segments=tuple(built),
        )
        log.commit(record)
        return record

    def _segment(
        self, store: Store, keys: Sequence[tuple[ItemId, RevisionId]], shard: int
    ) -> SegmentRecord | None:
        revisions = [store.revisions.read(*key) for key in keys]
        passages, entries, inputs = self._rows([r for r in revisions if r is not None])
        if not inputs:
            return None
        self.counter += 1
        name = f"seg-{shard}-{self.counter:04d}"
        return build_segment(
            store.storage.local_path(f"segments/{name}"),
            pa.Table.from_pylist(passages, schema=PASSAGES),
            pa.Table.from_pylist(entries, schema=ENTRIES),
            self.encoder.encode_passages(inputs),
            SegmentHeader(
                shard, self.encoder.fingerprint, self.encoder.dimension, self.vector_search
            ),
        )

    def _rows(
        self, revisions: Sequence[Revision]
    ) -> tuple[list[dict[str, object]], list[dict[str, object]], list[tuple[str, str]]]:
        passages: list[dict[str, object]] = []
        entries: list[dict[str, object]] = []
        inputs: list[tuple[str, str]] = []
        for number, revision in enumerate(revisions):
            entries.append({name: getattr(revision, name) for name in ENTRIES.names})
            spans = cut(revision.content, revision.title, self.encoder.count_tokens, PASSAGE_TOKENS)
            for span in spans:
                text = revision.content[span.start : span.end]
                digest = hashlib.blake2b(f"{revision.title}\n{text}".encode(), digest_size=16)
                passages.append(
                    {
                        "entry": number,
                        "char_start": span.start,
                        "char_end": span.end,
                        "text": text,
                        "text_hash": digest.digest(),
                    }
                )
                inputs.append((revision.title, text))
        return passages, entries, inputs

    def _reference(self, store: Store) -> Reference:
        rows = self.encoder.encode_passages([("", text) for text in reference_sentences()])
        file = io.BytesIO()
        np.save(file, rows, allow_pickle=False)
        digest = hashlib.sha256(file.getvalue()).hexdigest()
        key = f"reference/{digest}.npy"
        store.storage.put_bytes_atomic(key, file.getvalue())
        return Reference(key, digest)


def reopen(root: Path) -> Store:
    """Open a store again, as another process would."""
    return open_store(root)
