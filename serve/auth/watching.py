"""A small file that decides about access: followed, and never trusted longer than a bound.

The value in force was read from the file less than `BOUND_S` ago. When the file cannot be read or
understood for so long, nothing is answered from the old value: it may have been a revocation that
somebody just wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.errors import ConfigurationError, OverloadedError

logger = logging.getLogger(__name__)

POLL_S = 0.25
"""Seconds between two readings while the file is asked about."""
BOUND_S = 0.75
"""Seconds for which one reading counts; with the answer's way to its reader, below one second."""
_MAX_BYTES = 16 * 2**20


class WatchedFile[T]:
    """The parsed content of a file, read again when it is asked for, in a thread."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[str, str], T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file.

        Args:
            path: of the file.
            parse: makes the value of the text and the name of the file; raises ConfigurationError.
            clock: monotonic seconds.

        Raises:
            ConfigurationError: it cannot be read, is too large, or `parse` refuses it.
        """
        self._path = path
        self._parse = parse
        self._clock = clock
        self._digest = b""
        self._fault = ""
        # its own: threads that wait for the store must not delay a revocation
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="credentials")
        self._looking: asyncio.Task[None] | None = None
        self._tried_at = self._confirmed_at = clock()
        data = self._bytes()
        self._value = self._parsed(data)
        self._digest = hashlib.sha256(data).digest()

    async def value(self) -> T:
        """Return the file's content as it was less than `BOUND_S` ago.

        Raises:
            OverloadedError: it could not be confirmed for so long; the log says why.
        """
        now = self._clock()
        age = now - self._confirmed_at
        if age < POLL_S:
            return self._value
        looking = self._look(now)
        if age < BOUND_S:
            return self._value
        if looking is not None:
            await asyncio.wait({looking}, timeout=BOUND_S)
        if self._clock() - self._confirmed_at >= BOUND_S:
            raise OverloadedError("credentials cannot be confirmed at the moment")
        return self._value

    def _look(self, now: float) -> asyncio.Task[None] | None:
        """Begin a reading unless one runs or ended just now; return the one that runs."""
        if self._looking is not None and not self._looking.done():
            return self._looking
        if now - self._tried_at < POLL_S:
            return None
        self._tried_at = now
        self._looking = asyncio.create_task(self._confirm(now))
        return self._looking

    async def _confirm(self, now: float) -> None:
        try:
            loop = asyncio.get_running_loop()
            value, digest = await loop.run_in_executor(self._reader, self._read)
        except ConfigurationError as error:
            if str(error) != self._fault:
                self._fault = str(error)
                logger.error("credentials file refused", extra={"reason": str(error)})
            return
        if self._fault:
            self._fault = ""
            logger.warning("credentials file accepted again", extra={"path": str(self._path)})
        self._value, self._digest = value, digest
        self._confirmed_at = now  # before the reading began: the file was not newer than that

    def _read(self) -> tuple[T, bytes]:
        data = self._bytes()
        digest = hashlib.sha256(data).digest()
        return (self._value if digest == self._digest else self._parsed(data)), digest

    def _bytes(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise ConfigurationError(f"{self._path}: cannot be read: {error.strerror}") from None
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{self._path}: has more than {_MAX_BYTES} bytes")
        return data

    def _parsed(self, data: bytes) -> T:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise ConfigurationError(f"{self._path}: cannot be read: is not UTF-8") from None
        return self._parse(text, str(self._path))
