"""The reference sample: vectors of unrelated texts, which say what cosine chance gives.

Made with a store's first generation and inherited by the next ones (contract, "Scoring").
"""

from __future__ import annotations

import hashlib
import heapq
import io
from collections.abc import Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from engine.config import EncoderConfig
from engine.encoders.opening import open_encoder
from engine.ids import BaseId
from engine.index.generation import GenerationRecord, Reference
from engine.store.storage import Storage
from engine.text.reference import reference_sentences
from jobs.staging import Stage, vectors_of

SAMPLE_VECTORS = 256


def reference_sample(
    encoder: EncoderConfig,
    storage: Storage,
    previous: GenerationRecord | None,
    staged: tuple[Stage, Iterable[str]],
    space: tuple[str, int],
    public: Collection[BaseId],
) -> Reference:
    """Return the sample that the next generation names.

    Args:
        encoder: makes vectors when there are too few passages.
        storage: where the sample is kept, under its hash.
        previous: the generation to inherit from, if its vectors are of the same space.
        staged: the stage and the names of its blocks.
        space: fingerprint and dimension of the vectors.
        public: the bases that everybody may read: other texts must not move anybody's scores.
    """
    fingerprint, dimension = space
    if previous is not None and previous.encoder == fingerprint:
        return previous.reference
    stage, blocks = staged
    vectors = _smallest(_hashed(stage, blocks, dimension, public), dimension)
    if len(vectors) < SAMPLE_VECTORS:
        vectors = np.concatenate([vectors, _sentences(encoder, SAMPLE_VECTORS - len(vectors))])
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(vectors, np.float32), allow_pickle=False)
    digest = hashlib.sha256(file.getvalue()).hexdigest()
    key = f"reference/{digest}.npy"
    storage.put_bytes_atomic(key, file.getvalue())
    return Reference(key, digest)


def _hashed(
    stage: Stage, blocks: Iterable[str], dimension: int, public: Collection[BaseId]
) -> Iterator[tuple[bytes, NDArray[np.float32]]]:
    for name in blocks:
        block = stage.read_block(name)
        columns = (block[name].to_pylist() for name in ("base_id", "hashes", "vectors"))
        for base, keys, row in zip(*columns, strict=True):
            if base not in public:
                continue
            yield from zip(keys or (), vectors_of(bytes(row or b""), dimension), strict=True)


def _smallest(
    rows: Iterator[tuple[bytes, NDArray[np.float32]]], dimension: int
) -> NDArray[np.float32]:
    """Return the vectors of the smallest distinct hashes: a sample that hangs on texts alone."""
    held: dict[bytes, NDArray[np.float32]] = {}
    largest: list[tuple[int, bytes]] = []  # a heap: the largest hash held is popped first
    for key, vector in rows:
        if key in held:
            continue
        held[key] = vector
        heapq.heappush(largest, (-int.from_bytes(key, "big"), key))
        if len(held) > SAMPLE_VECTORS:
            del held[heapq.heappop(largest)[1]]
    chosen = [held[key] for key in sorted(held)]
    return np.stack(chosen) if chosen else np.empty((0, dimension), np.float32)


def _sentences(encoder: EncoderConfig, count: int) -> NDArray[np.float32]:
    sentences = reference_sentences()[:count]
    vectors = open_encoder(encoder).encode_passages([("", sentence) for sentence in sentences])
    return np.asarray(vectors, np.float32)
