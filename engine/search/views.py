"""The catalog as one process follows it: the newest view, recent ones, and how old they may be."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable

from engine.authorization import Principal, readable_bases
from engine.errors import OverloadedError
from engine.ids import BaseId
from engine.search.cache import BoundedCache
from engine.search.request import Readable
from engine.store.catalog import Catalog, CatalogReader

_KEPT_VIEWS = 32
_KEPT_CALLERS = 1024
_LOOK_S = 0.005

Clock = Callable[[], float]


class CatalogViews:
    """Recent views of one store's catalog. Thread-safe."""

    def __init__(
        self, reader: CatalogReader, max_staleness_s: float, clock: Clock = time.monotonic
    ) -> None:
        """Take the reader; nothing is read before the first `poll`.

        Args:
            reader: of the store.
            max_staleness_s: a view not confirmed for so long is not answered from.
            clock: monotonic seconds, the one that the reader uses.
        """
        self._reader = reader
        self._max_staleness_s = max_staleness_s
        self._clock = clock
        self._recent: BoundedCache[str, Catalog] = BoundedCache(_KEPT_VIEWS)
        self._newest: Catalog | None = None
        self._confirmed_at = -math.inf
        self._lock = threading.Lock()
        self.wanted = threading.Event()

    def poll(self) -> Catalog:
        """Look for new commits and return the newest view.

        Raises:
            StoreError: the catalog cannot be read; the view grows old.
        """
        with self._lock:
            catalog = self._reader.poll()
            self._newest = catalog
            self._recent.put(catalog.version, catalog)
            # Last: whoever takes the view for young must find this one, or a younger one.
            self._confirmed_at = self._reader.confirmed_at
            return catalog

    @property
    def newest(self) -> Catalog:
        """Return the view polled last, however old.

        Raises:
            OverloadedError: none was polled yet.
        """
        if self._newest is None:
            raise OverloadedError("the catalog is not loaded yet")
        return self._newest

    def confirmed(self) -> bool:
        """Say whether the newest view is young enough to answer from."""
        age = self._clock() - self._confirmed_at
        return self._newest is not None and age <= self._max_staleness_s

    async def fresh(self) -> Catalog:
        """Return the newest view, young enough to answer from.

        An old one is asked for again first, by whoever polls; `wanted` tells.

        Raises:
            OverloadedError: it could not be confirmed for too long.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._max_staleness_s
        while not self.confirmed():
            if loop.time() >= give_up:
                raise OverloadedError("the catalog could not be confirmed in time")
            self.wanted.set()
            await asyncio.sleep(_LOOK_S)
        return self.newest

    def at(self, version: str) -> Catalog | None:
        """Return the view of a version; a replica that is behind polls once."""
        return self._recent.get(version) or self._polled_at(version)

    def _polled_at(self, version: str) -> Catalog | None:
        catalog = self.poll()
        return catalog if catalog.version == version else self._recent.get(version)


class Access:
    """Which bases callers may read, remembered per view."""

    def __init__(self, organization: str) -> None:
        """Name the organization of the deployment; empty matches nobody."""
        self._organization = organization
        self._known: BoundedCache[tuple[str, Principal], frozenset[BaseId]] = BoundedCache(
            _KEPT_CALLERS
        )

    def bases(self, catalog: Catalog, principal: Principal) -> frozenset[BaseId]:
        """Return the active bases that a caller may read."""
        key = (catalog.version, principal)
        known = self._known.get(key)
        if known is None:
            known = readable_bases(principal, catalog.bases(), self._organization)
            self._known.put(key, known)
        return known

    def readable(self, catalog: Catalog, principal: Principal) -> Readable:
        """Return the same, None when it is every active base."""
        bases = self.bases(catalog, principal)
        active = sum(base.active for base in catalog.bases())
        return None if len(bases) == active else bases
