"""The audit trail: one record a request, out of band. Fields only, and of those only names and ids.

Written by the logger `octavo.audit` as JSON lines, each by one write, so that the lines of several
processes do not mix. The contract's answers hold nothing of it.
"""

from __future__ import annotations

import errno
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import orjson

from engine.config import Config
from engine.errors import ConfigurationError
from serve.visit import Visit

NAME = "octavo.audit"
logger = logging.getLogger(NAME)

Count = Callable[[str, str], None]
"""Counts one request, by its kind and its outcome."""


def _uncounted(kind: str, outcome: str) -> None:
    """Count nothing."""


class Trail:
    """Writes the records and counts the requests."""

    def __init__(self, count: Count = _uncounted) -> None:
        self._count = count

    def record(self, visit: Visit, *, method: str, status: int, latency_s: float) -> None:
        """Write the record of one request that was answered.

        Args:
            visit: what is known of it.
            method: of HTTP, if it is a known one.
            status: of HTTP.
            latency_s: from its head to the head of the answer.
        """
        self._count(visit.kind, visit.outcome)
        fields = {
            "request": visit.request_id,
            "subject": visit.principal.subject,
            "kind": visit.kind,
            "outcome": visit.outcome,
            "method": method,
            "status": status,
            "latency_ms": round(latency_s * 1000.0, 3),
        }
        if visit.reason:
            fields["reason"] = visit.reason
        if visit.asked:
            fields["asked"] = visit.asked
        if visit.answered:
            fields["answered"] = visit.answered
        logger.info("request", extra={"audit": fields})


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}"
        time += self.formatTime(record, "%z")
        fields = getattr(record, "audit", {})
        return orjson.dumps({"time": time, "pid": record.process, **fields}).decode("utf-8")


class _AuditFile(logging.handlers.WatchedFileHandler):
    """Appends lines to a file that only its owner may read; follows it when it is rotated."""

    _torn = False

    def _open(self) -> FileIO:  # type: ignore[override]  # bytes: one write a line
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return FileIO(descriptor, "ab")

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line at once. A line that cannot be written is reported in the server's log."""
        try:
            self.reopenIfNeeded()
            stream: FileIO = self.stream  # type: ignore[assignment]  # as `_open` made it
            line = self.format(record).encode("utf-8") + b"\n"
            if self._torn:  # what is left of the line before must not spoil this one
                line = b"\n" + line
            written = stream.write(line)
            self._torn = 0 < written < len(line) or (self._torn and not written)
            if written < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            extra = {"reason": error.strerror or type(error).__name__}
            logging.getLogger(__name__).error("audit record not written", extra=extra)


def audit_path(config: Config, *, credentials: bool) -> Path | None:
    """Return the file of the audit trail; None: there is none.

    Args:
        config: of it `audit` and `root`.
        credentials: whether callers are known; `auto` keeps no trail of nobody.
    """
    wanted = config.audit.destination
    if wanted in ("off", "stderr"):
        return None
    if wanted != "auto":
        return Path(wanted)
    if not credentials or "://" in config.root:
        return None
    return Path(config.root) / "logs" / "audit.jsonl"


def open_audit(config: Config, *, credentials: bool) -> None:
    """Let this process append to the audit trail; one that was opened before is closed.

    Raises:
        ConfigurationError: its file cannot be opened.
    """
    wanted = config.audit.destination
    path = audit_path(config, credentials=credentials)
    handler: logging.Handler | None = None
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handler = _AuditFile(path)
        except OSError as error:
            reason = f"audit.destination {path}: cannot be opened: {error.strerror}"
            raise ConfigurationError(reason) from None
    elif wanted == "stderr" or (wanted == "auto" and credentials):
        handler = logging.StreamHandler(sys.stderr)
    close_audit()
    if handler is not None:
        handler.setFormatter(_Lines())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.propagate = False


def close_audit() -> None:
    """Close what `open_audit` opened."""
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
