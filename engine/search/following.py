"""Following a store: the catalog and the generations, each polled by a thread of its own.

A generation is announced only after the catalog has been polled once more, so whoever pins it also
sees the items' rows that its commit wrote before it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import threading
import time
from collections.abc import Callable

import numpy as np

from engine.config import CatalogConfig
from engine.errors import EngineError, NotFoundError, SegmentRefusedError, StoreError
from engine.index.generation import GenerationLog, GenerationRecord
from engine.index.jvm import detach, jvm_running
from engine.search.group import ShardGroup
from engine.search.request import Float32
from engine.search.views import CatalogViews
from engine.store.opening import Store

logger = logging.getLogger(__name__)

_ANNOUNCED = 3
_RETRY_S = 10.0


class Follower:
    """What one process holds of a store: its catalog, and the shards of one group or none.

    Attributes:
        store: the store that is followed.
        views: its catalog.
        group: the shards that this process holds, or None.
        refusal: why a generation could not be opened last, or None.
    """

    def __init__(
        self,
        store: Store,
        log: GenerationLog,
        views: CatalogViews,
        group: ShardGroup | None,
        config: CatalogConfig,
    ) -> None:
        """Join the parts; nothing is read before `follow`."""
        self.store = store
        self.views = views
        self.group = group
        self._log = log
        self._poll_s = config.poll_s
        self._announced: dict[int, GenerationRecord] = {}
        self._retry_at: dict[int, float] = {}
        self.refusal: SegmentRefusedError | None = None
        self._samples: dict[str, Float32] = {}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    # ------------------------------------------------------------------------------- polling

    def follow(self) -> None:
        """Poll once: the generations, then the catalog. Blocking; opens what is new.

        A generation that is refused is logged and tried again later; the last good one serves.

        Raises:
            StoreError: the store cannot be read.
        """
        with self._lock:
            self.views.poll()
            newest = self._log.newest()
            if newest is not None and newest.number not in self._announced:
                if time.monotonic() >= self._retry_at.get(newest.number, 0.0):
                    self._open(newest)
                self._open_predecessor(newest.number)
            if self.group is not None:
                self.group.close_old()

    def _open(self, record: GenerationRecord) -> None:
        try:
            if self.group is not None:
                self.group.open_generation(record)
            self.sample(record)
        except SegmentRefusedError as error:
            extra = {"generation": record.number, "segment": error.segment, "why": error.reason}
            logger.error("generation refused", extra=extra)
            self.refusal = error
            self._retry_at[record.number] = time.monotonic() + _RETRY_S
            return
        self.views.poll()
        kept = sorted({**self._announced, record.number: record}.items())[-_ANNOUNCED:]
        self._announced = dict(kept)

    def _open_predecessor(self, number: int) -> None:
        """Open the generation before one: coordinators may be pinned to it, the new one refused."""
        if number < 2 or number - 1 in self._announced:
            return
        if time.monotonic() < self._retry_at.get(number - 1, 0.0):
            return
        try:
            before = self._log.get(number - 1)
        except NotFoundError:
            return
        self._open(before)

    def records(self) -> tuple[GenerationRecord, ...]:
        """Return the generations that may be pinned, newest first."""
        announced = self._announced
        return tuple(announced[number] for number in sorted(announced, reverse=True))

    def sample(self, record: GenerationRecord) -> Float32:
        """Return the reference sample of a generation, float32 of shape (m, dimension).

        Raises:
            SegmentRefusedError: it is missing, damaged, or of another dimension.
        """
        key = record.reference.sha256
        if key not in self._samples:
            self._samples = {**self._samples, key: self._read_sample(record)}
        return self._samples[key]

    def _read_sample(self, record: GenerationRecord) -> Float32:
        name = record.reference.path
        try:
            data = self.store.storage.read_bytes(name)
            rows: Float32 = np.load(io.BytesIO(data), allow_pickle=False)
        except (NotFoundError, StoreError, ValueError) as error:
            raise SegmentRefusedError(name, "it cannot be read") from error
        if hashlib.sha256(data).hexdigest() != record.reference.sha256:
            raise SegmentRefusedError(name, "it has changed since it was written")
        if rows.ndim != 2 or rows.shape[1] != record.dimension or not len(rows):
            raise SegmentRefusedError(name, f"its shape is {rows.shape}")
        return np.ascontiguousarray(rows, np.float32)

    # ------------------------------------------------------------------------------- threads

    def start(self) -> None:
        """Begin to follow the store, in threads that end with `close`. A second call does nothing.

        One thread confirms the catalog; another opens generations, which may take long.
        """
        if self._threads:
            return
        loops = {"catalog": self._confirm, "generations": self._follow}
        for name, work in loops.items():
            thread = threading.Thread(target=work, name=f"follow-{name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _confirm(self) -> None:
        while not self._stopping.is_set():
            self._logged("catalog", self.views.poll)
            self.views.wanted.wait(self._poll_s)
            self.views.wanted.clear()

    def _follow(self) -> None:
        while not self._stopping.wait(self._poll_s):
            self._logged("generations", self.follow)
        if jvm_running():
            detach()

    def _logged(self, what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except EngineError as error:
            logger.warning(
                "store not followed", extra={"what": what, "code": error.code, "why": str(error)}
            )

    def healthy(self) -> bool:
        """Say whether the catalog is confirmed and the threads, if started, run."""
        return self.views.confirmed() and all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """End the threads and close every segment."""
        self._stopping.set()
        self.views.wanted.set()
        for thread in self._threads:
            thread.join()
        if self.group is not None:
            self.group.close()
