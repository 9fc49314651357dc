"""Where the server's processes write what happened: one JSON object a line, in one file.

Fields only: never query text, passage text or tokens.
"""

from __future__ import annotations

import logging
import logging.handlers
import traceback
from pathlib import Path
from typing import Any

import orjson

from engine.config import Config

_LOGGERS = ("engine", "serve")
_KEEP_BYTES = 10 * 2**20
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_path(config: Config) -> Path | None:
    """Return the log file of a store on this machine's disk; None for one elsewhere."""
    return None if "://" in config.root else Path(config.root) / "logs" / "serve.jsonl"


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, its fields, its error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[0] is not None:
            kind, error, trace = record.exc_info
            line["error"] = kind.__name__
            line["text"] = str(error)
            line["trace"] = traceback.format_tb(trace)
        return orjson.dumps(line, default=str).decode("utf-8")


def open_log(config: Config) -> None:
    """Let this process append warnings and worse to the log file. Lines of several may mix."""
    path = log_path(config)
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.handlers.WatchedFileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(JsonLines())
    handler.setLevel(logging.WARNING)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(handler)


def set_aside_long_log(config: Config) -> None:
    """Rename a log file that grew long, so that a new one begins; the one before it is lost."""
    path = log_path(config)
    if path is not None and path.exists() and path.stat().st_size > _KEEP_BYTES:
        path.replace(path.with_suffix(".jsonl.1"))
