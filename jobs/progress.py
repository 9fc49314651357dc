"""A progress bar on standard error: one task, counted in whole steps."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress


class Progress:
    """Shows how far a job is. On anything but a terminal it says nothing."""

    def __init__(self, console: Console, label: str, total: int | None) -> None:
        """Prepare the bar.

        Args:
            console: where it is shown.
            label: what is being done.
            total: how many steps there are; None when that is not known.
        """
        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn()]
        columns += [MofNCompleteColumn(), TimeElapsedColumn()]
        if total is not None:
            columns.append(TimeRemainingColumn())
        quiet = not console.is_terminal
        self._bar = RichProgress(*columns, console=console, transient=True, disable=quiet)
        self._task = self._bar.add_task(label, total=total)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._bar.stop()

    def advance(self, steps: int = 1) -> None:
        """Say that some steps are done."""
        self._bar.advance(self._task, steps)
