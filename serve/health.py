"""When a replica is beyond help: it has not followed its store for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.errors import InternalError


class Health:
    """Tolerates an outage of the store, which a restart would not mend, for some seconds."""

    def __init__(
        self,
        healthy: Callable[[], bool],
        *,
        patience_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._healthy = healthy
        self._patience_s = patience_s
        self._clock = clock
        self._well_at = clock()

    def require(self) -> None:
        """Check that the replica was well not long ago.

        Raises:
            InternalError: it was not; Serve then replaces it.
        """
        now = self._clock()
        if self._healthy():
            self._well_at = now
        elif now - self._well_at >= self._patience_s:
            raise InternalError("the replica does not follow its store")
