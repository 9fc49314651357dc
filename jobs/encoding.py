"""Stage one of a reindex: revisions read, cut into passages, encoded and staged, block by block.

The steps are plain classes over the engine; what Ray Data runs are the thin callables at the end.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.config import Config, EncoderConfig, undump_config
from engine.encoders.encoder import Encoder
from engine.encoders.opening import open_encoder
from engine.errors import EncoderError, NotFoundError
from engine.ids import ItemId, RevisionId
from engine.store.layout import REVISIONS
from engine.store.revisions import Revisions
from engine.store.storage import LocalStorage
from engine.store.tables import Table
from engine.text.chunking import Span, cut
from jobs.staging import (
    CUT_SCHEMA,
    STAGED_SCHEMA,
    Block,
    BlockReport,
    Key,
    Stage,
    ipc_bytes,
    text_hash,
)
from jobs.vectorcache import VectorCache, open_vector_cache
from jobs.vectorstock import VectorStock

_COLUMNS = (
    "item_id",
    "revision_id",
    "base_id",
    "title",
    "content",
    "language",
    "source_type",
    "source_ref",
    "content_sha256",
)


@dataclass(frozen=True, slots=True)
class EncodingOrder:
    """What every worker of stage one is told.

    Attributes:
        config: the configuration, as `dump_config` writes it.
        job: the key of the job, which names its stage.
        fingerprint: of the encoder that earlier vectors were made with; empty: any.
        stock: paths of the segments' vectors, in the order of the stock; empty: no stock.
        stock_fingerprint: of the encoder that made the stock.
    """

    config: str
    job: str
    fingerprint: str = ""
    stock: tuple[str, ...] = ()
    stock_fingerprint: str = ""


class Cutter:
    """Reads the revisions of a block and cuts them into passages."""

    def __init__(self, config: Config, encoder: Encoder) -> None:
        """Take the store of a configuration, and the encoder that measures."""
        self._revisions = Revisions(Table(LocalStorage(config.root), REVISIONS))
        self._encoder = encoder
        self._max_tokens = min(config.passages.max_tokens, encoder.max_tokens)

    def cut(self, keys: Sequence[Key]) -> pa.Table:
        """Return the passages of some revisions, `CUT_SCHEMA`, one row a revision, by key.

        Raises:
            NotFoundError: a revision is not in the store.
        """
        rows = {}
        for batch in self._revisions.scan(keys, _COLUMNS):
            for row in batch.to_pylist():
                rows[ItemId(row["item_id"]), RevisionId(row["revision_id"])] = self._cut(row)
        for item, revision in keys:
            if (item, revision) not in rows:
                raise NotFoundError(f"there is no revision {revision} of item {item}")
        return pa.Table.from_pylist([rows[key] for key in sorted(rows)], schema=CUT_SCHEMA)

    def _cut(self, row: dict[str, Any]) -> dict[str, Any]:
        content, title = row.pop("content"), row["title"]
        spans = cut(content, title, self._encoder.count_tokens, self._max_tokens) or [Span(0, 0)]
        texts = [content[span.start : span.end] for span in spans]
        return row | {
            "starts": [span.start for span in spans],
            "ends": [span.end for span in spans],
            "texts": texts,
            "hashes": [text_hash(title, text) for text in texts],
        }


class VectorMaker:
    """Gives the passages of a block their vectors: copied where one is stored, else encoded.

    What the store's own segments hold comes first, then what the cache holds.
    """

    def __init__(
        self, encoder: Encoder, stock: VectorStock | None, cache: VectorCache | None = None
    ) -> None:
        """Take the encoder, and the stored vectors of its space, if there are any.

        Args:
            encoder: makes what is stored nowhere.
            stock: the vectors of the newest generation's segments.
            cache: the vectors of the encoder's space that lie outside the root; gets new ones.
        """
        self._encoder = encoder
        self._stock = stock
        self._cache = cache

    def fill(self, table: pa.Table) -> tuple[pa.Table, BlockReport]:
        """Return a cut block with its vectors (`STAGED_SCHEMA`), and the report."""
        passages: dict[bytes, tuple[str, str]] = {}
        rows = table.to_pylist()
        for row in rows:
            for key, text in zip(row["hashes"], row["texts"], strict=True):
                passages.setdefault(key, (row["title"], text))
        found, encoded = self._vectors(passages)
        blobs = [np.stack([found[key] for key in row["hashes"]]).tobytes() for row in rows]
        column = pa.array(blobs, pa.large_binary())
        total = sum(len(row["hashes"]) for row in rows)
        report = BlockReport(
            revisions=len(rows),
            passages=total,
            encoded=encoded,
            copied=total - encoded,
            fingerprint=self._encoder.fingerprint,
            dimension=self._encoder.dimension,
        )
        return table.append_column(STAGED_SCHEMA.field("vectors"), column), report

    def _vectors(
        self, passages: dict[bytes, tuple[str, str]]
    ) -> tuple[dict[bytes, NDArray[np.float32]], int]:
        found = {}
        if self._stock is not None:
            for key in passages:
                row = self._stock.find(key)
                if row is not None:
                    found[key] = row
        if self._cache is not None:
            found |= self._cache.find(key for key in passages if key not in found)
        missing = [key for key in passages if key not in found]
        if missing:
            vectors = self._encoder.encode_passages([passages[key] for key in missing])
            made = dict(zip(missing, np.asarray(vectors, np.float32), strict=True))
            if self._cache is not None:
                self._cache.store(made)
            found |= made
        return found, len(missing)


# ------------------------------------------------------------------- what Ray Data calls


def _opened(order: EncodingOrder, encoder_config: EncoderConfig) -> Encoder:
    encoder = open_encoder(encoder_config)
    if order.fingerprint and encoder.fingerprint != order.fingerprint:
        raise EncoderError(
            f"the newest generation was encoded as {order.fingerprint[:12]}, the configured "
            f"encoder is {encoder.fingerprint[:12]}: `octavo reindex --rebuild` encodes all anew"
        )
    return encoder


def _maker(order: EncodingOrder, config: Config, encoder: Encoder, stage: Stage) -> VectorMaker:
    usable = order.stock and order.stock_fingerprint == encoder.fingerprint
    stock = VectorStock(stage.folder, [Path(p) for p in order.stock]) if usable else None
    return VectorMaker(encoder, stock, open_vector_cache(config.jobs, encoder))


def _keys(row: dict[str, NDArray[Any]]) -> list[Key]:
    return [(ItemId(item), RevisionId(revision)) for item, revision in json.loads(row["keys"][0])]


def _place(order: EncodingOrder) -> tuple[Config, Stage]:
    config = undump_config(order.config)
    return config, Stage(LocalStorage(config.root), order.job)


def _staged(
    stage: Stage, row: dict[str, NDArray[Any]], table: pa.Table, report: BlockReport
) -> dict[str, NDArray[Any]]:
    stage.put_block(str(row["block"][0]), table, report)
    return {"block": row["block"], "report": np.array([report.encode()], object)}


class CutAndEncode:
    """Both steps in one actor: what a machine without a GPU runs."""

    def __init__(self, order: EncodingOrder) -> None:
        """Take the order; what it names is opened with the first block.

        An error in an actor's constructor would reach the caller as text only.
        """
        self._order = order
        self._steps: tuple[Cutter, VectorMaker, Stage] | None = None

    def __call__(self, row: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Stage the block that a row names; return its report."""
        if self._steps is None:
            config, stage = _place(self._order)
            encoder = _opened(self._order, config.encoder)
            maker = _maker(self._order, config, encoder, stage)
            self._steps = (Cutter(config, encoder), maker, stage)
        cutter, maker, stage = self._steps
        table, report = maker.fill(cutter.cut(_keys(row)))
        return _staged(stage, row, table, report)


class Cut:
    """The first step alone, on CPUs beside GPU encoders."""

    def __init__(self, order: EncodingOrder) -> None:
        """Take the order; what it names is opened with the first block."""
        self._order = order
        self._cutter: Cutter | None = None

    def __call__(self, row: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the block's passages as one Arrow IPC file: one row is never split."""
        if self._cutter is None:
            config, _ = _place(self._order)
            counting = config.encoder.model_copy(update={"device": "cpu"})
            self._cutter = Cutter(config, _opened(self._order, counting))
        table = self._cutter.cut(_keys(row))
        return {"block": row["block"], "table": np.array([ipc_bytes(table)], object)}


class Encode:
    """The second step alone, on a GPU."""

    def __init__(self, order: EncodingOrder) -> None:
        """Take the order; what it names is opened with the first block."""
        self._order = order
        self._steps: tuple[VectorMaker, Stage] | None = None

    def __call__(self, row: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Stage the block; return its report."""
        if self._steps is None:
            config, stage = _place(self._order)
            encoder = _opened(self._order, config.encoder)
            self._steps = (_maker(self._order, config, encoder, stage), stage)
        maker, stage = self._steps
        cut_table = pa.ipc.open_file(pa.py_buffer(row["table"][0])).read_all()
        table, report = maker.fill(cut_table)
        return _staged(stage, row, table, report)


def encode_blocks(
    order: EncodingOrder, blocks: Iterable[Block], *, own: bool = False
) -> Iterator[tuple[str, BlockReport]]:
    """Run stage one over blocks with Ray Data; yield each block's name and report as it is staged.

    Needs Ray. Encoders run in an actor pool of `jobs.encoder_actors`; with `jobs.gpus_per_encoder`
    cutting gets a pool of its own.

    Args:
        order: what to do.
        blocks: which.
        own: whether only jobs run on this Ray; else actors that die are started again.

    Raises:
        EncoderError: the encoder cannot be opened or is not the newest generation's.
        StorageFullError: no space is left; staged blocks stay, the job can go on later.
    """
    import ray.data

    config = undump_config(order.config)
    items = [{"block": block.name, "keys": json.dumps(block.keys)} for block in blocks]
    actors = min(config.jobs.encoder_actors, len(items))
    pool = ray.data.ActorPoolStrategy(size=actors)
    gpus = config.jobs.gpus_per_encoder
    rows: ray.data.Dataset = ray.data.from_items(items, override_num_blocks=len(items))
    shared: dict[str, Any] = {"fn_constructor_args": (order,), "batch_size": 1, "compute": pool}
    if own:
        shared["max_restarts"] = 0  # else Ray complains on the terminal about its own arguments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of max_restarts, from Ray 2.64 on
        if gpus:
            rows = rows.map_batches(Cut, num_cpus=1, **shared)
            rows = rows.map_batches(Encode, num_gpus=gpus, num_cpus=0, **shared)
        else:
            rows = rows.map_batches(CutAndEncode, num_cpus=1, **shared)
    for row in rows.iter_rows():
        yield str(row["block"]), BlockReport.decode(bytes(row["report"]))
