"""Warnings of the engine, shown to whoever runs a command: what happened, to which, and why."""

from __future__ import annotations

import logging
import sys

from jobs.commands.rendering import harmless

_LOGGERS = ("engine", "jobs")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class OneLine(logging.Formatter):
    """Formats a record as one line, its fields behind the message: `(name value, ...)`.

    Whatever its level it is a warning: the command goes on, and says itself when it fails.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; nothing in it moves the terminal."""
        known = {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and not name.startswith("_")  # Ray adds some of its own
        }
        fields = ", ".join(f"{name} {value}" for name, value in known.items())
        text = f"{record.getMessage()} ({fields})" if fields else record.getMessage()
        return harmless(f"octavo: warning: {' '.join(text.split())}")


class _StandardError(logging.Handler):
    """Writes to whatever standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(self.format(record) + "\n")


_HANDLER = _StandardError(logging.WARNING)
_HANDLER.setFormatter(OneLine())


def show_warnings() -> None:
    """Show warnings and worse of this process on standard error. A second call does nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(_HANDLER)
