"""Progress on a terminal: one row that moves, and above it a line for each stage that ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from aotc.cli import streams
from aotc.cli.call_log import CallLog
from aotc.cli.progress.stage_stack import Stage, StageStack, counted, share

if TYPE_CHECKING:
    from rich.console import RenderableType

_BAR = 20
_WHOLE = 1000.0


class _WhereKnown(ProgressColumn):
    """A column of rich's, empty as long as it is unknown how much there is to do."""

    def __init__(self, column: ProgressColumn) -> None:
        super().__init__()
        self._column = column

    def render(self, task: Task) -> RenderableType:
        return self._column(task) if task.total is not None else Text()


class TerminalProgress(StageStack):
    """A spinner with the share done and the time left, where they can be known."""

    every = 0.25

    def __init__(self, log: CallLog | None, *, verbose: bool) -> None:
        super().__init__(log)
        self._verbose = verbose
        self._console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _WhereKnown(BarColumn(bar_width=_BAR)),
            TextColumn("{task.fields[done]}", markup=False),
            TimeElapsedColumn(),
            _WhereKnown(TimeRemainingColumn(compact=True)),
            _WhereKnown(TextColumn("left", markup=False)),
        )
        self._shown = Progress(*columns, console=self._console, transient=True)
        self._task: TaskID | None = None

    def began(self, stage: Stage) -> None:
        """A new row in place of the stage that this one is within."""
        # Not before: it wipes its line, on which a password may be asked for.
        self._shown.start()
        self._row(stage)

    def ended(self, stage: Stage, text: str) -> None:
        """A line with its time, and the row of the stage that it was within."""
        if not self.under_way or self._verbose:
            self.told(f"{'  ' * len(self.under_way)}{text}")
        self._row(self.under_way[-1] if self.under_way else None)

    def noted(self, text: str) -> None:
        """The step stands in the row; with `verbose` it stays."""
        if self._verbose:
            self.told(f"{'  ' * len(self.under_way)}{text}")
        self.tick()

    def told(self, text: str) -> None:
        """A line above the row."""
        # Cut: of a line that the terminal breaks, the rest would begin a line of its own.
        with streams.may_be_lost(sys.stderr):
            self._console.print(f"  {text}", no_wrap=True, overflow="ellipsis")

    def tick(self) -> None:
        """How much of the stage is done."""
        if self._task is None or not self.under_way:
            return
        stage = self.under_way[-1]
        counts = self.counts()
        done = share(counts)
        self._shown.update(
            self._task,
            description=_title(stage),
            total=None if done is None else _WHOLE,
            completed=0 if done is None else done * _WHOLE,
            done=", ".join(map(counted, counts)),
        )

    def close(self, *, failed: bool) -> None:
        """Remove the row."""
        super().close(failed=failed)
        self._shown.stop()

    def _row(self, stage: Stage | None) -> None:
        if self._task is not None:
            self._shown.remove_task(self._task)
            self._task = None
        if stage is not None:
            self._task = self._shown.add_task(_title(stage), total=None, done="")
            self.tick()


def _title(stage: Stage) -> str:
    return f"{stage.title}: {stage.step}" if stage.step else stage.title
