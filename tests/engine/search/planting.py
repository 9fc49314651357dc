"""Corpora built to order: each passage has the words and the cosine that a test wants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.ids import BaseId, ItemId, RevisionId
from engine.index.segment import ENTRIES, PASSAGES
from engine.index.segment_builder import SegmentHeader, SegmentRecord, build_segment
from engine.store.opening import Store
from engine.store.revisions import NewRevision
from tests.engine.search.building import DIMENSION, Library
from tests.engine.search.oracle import Text, text_of

TITLE = "note"


@dataclass(frozen=True, slots=True)
class Planted:
    """A passage: its words, and its cosine with the query that the library is planted for."""

    words: str
    cosine: float


@dataclass(frozen=True, slots=True)
class Plant:
    """One revision of an item, made of planted passages."""

    item: str
    passages: tuple[Planted, ...]
    base: str = "open"
    revision: str = "r1"

    @property
    def content(self) -> str:
        """Return the stored text: the passages, a line each."""
        return "\n".join(passage.words for passage in self.passages)

    @property
    def starts(self) -> list[int]:
        """Return where each passage starts in the content."""
        lengths = [len(passage.words) + 1 for passage in self.passages]
        return [0, *accumulate(lengths[:-1])]


@dataclass(slots=True)
class PlantedLibrary(Library):
    """A library whose segments hold planted passages in place of cut and encoded ones.

    Attributes:
        query: what cosines are planted for.
        plants: every revision that was ever planted.
    """

    query: str = ""
    plants: dict[tuple[ItemId, RevisionId], Plant] = field(default_factory=dict)

    def plant(self, plants: Sequence[Plant]) -> None:
        """Add and publish revisions; `reindex` makes them current."""
        self.plants |= {(ItemId(one.item), RevisionId(one.revision)): one for one in plants}
        report = self.store.writer.add_revisions(
            [
                NewRevision(
                    base_id=BaseId(one.base),
                    title=TITLE,
                    content=one.content,
                    language="en",
                    source_type="file",
                    source_ref=one.item,
                    item_id=ItemId(one.item),
                    revision_id=RevisionId(one.revision),
                )
                for one in plants
            ],
            publish=True,
        )
        assert not report.refused

    def transplanted(self, root: Path) -> PlantedLibrary:
        """Return a copy of everything under another folder."""
        copy = self.copy(root)
        return PlantedLibrary(root, copy.encoder, copy.counter, self.query, self.plants)

    def planted_vectors(self, plants: Sequence[Plant]) -> NDArray[np.float32]:
        """Return unit rows with the planted cosines: float32 of shape (passages, dimension)."""
        query = self.encoder.encode_queries([self.query])[0].astype(np.float64)
        query /= np.linalg.norm(query)
        return np.concatenate([_vectors(one, query) for one in plants])

    def texts(self, keys: Iterable[tuple[str, str]]) -> list[Text]:
        """Return the passages of some (item, revision) as the oracle takes them."""
        plants = [self.plants[ItemId(item), RevisionId(revision)] for item, revision in keys]
        places = [
            (one, passage, start)
            for one in plants
            for passage, start in zip(one.passages, one.starts, strict=True)
        ]
        return [
            text_of((one.base, one.item), start, "en", f"{TITLE}\n{passage.words}", vector)
            for (one, passage, start), vector in zip(
                places, self.planted_vectors(plants), strict=True
            )
        ]

    def _segment(
        self, store: Store, keys: Sequence[tuple[ItemId, RevisionId]], shard: int
    ) -> SegmentRecord | None:
        if not keys:
            return None
        self.counter += 1
        name = f"seg-{shard}-{self.counter:04d}"
        plants = [self.plants[key] for key in keys]
        return build_segment(
            store.storage.local_path(f"segments/{name}"),
            pa.Table.from_pylist(_passages(plants), schema=PASSAGES),
            pa.Table.from_pylist([_entry(one) for one in plants], schema=ENTRIES),
            self.planted_vectors(plants),
            SegmentHeader(shard, self.encoder.fingerprint, self.encoder.dimension),
        )


def _vectors(plant: Plant, query: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the query turned away by the planted angles, each in a direction of its own."""
    seed = hashlib.sha256(f"{plant.item}@{plant.revision}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(seed[:8], "big"))
    aside = rng.standard_normal((len(plant.passages), DIMENSION))
    aside -= np.outer(aside @ query, query)
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    cosines = np.array([passage.cosine for passage in plant.passages])[:, None]
    rows = cosines * query + np.sqrt(1.0 - cosines**2) * aside
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def _passages(plants: Sequence[Plant]) -> list[dict[str, object]]:
    return [
        {
            "entry": number,
            "char_start": start,
            "char_end": start + len(passage.words),
            "text": passage.words,
            "text_hash": hashlib.blake2b(passage.words.encode(), digest_size=16).digest(),
        }
        for number, one in enumerate(plants)
        for passage, start in zip(one.passages, one.starts, strict=True)
    ]


def _entry(plant: Plant) -> dict[str, str]:
    return {
        "item_id": plant.item,
        "revision_id": plant.revision,
        "base_id": plant.base,
        "title": TITLE,
        "language": "en",
        "source_type": "file",
        "source_ref": plant.item,
        "content_sha256": hashlib.sha256(plant.content.encode()).hexdigest(),
    }
