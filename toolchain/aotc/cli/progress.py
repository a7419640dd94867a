"""The progress of a call, on standard error and in its log; never on standard output."""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

from aotc.base.progress import BYTES, Count, Poll, Watcher, watched
from aotc.base.text import printable, size
from aotc.cli.grammar import current
from aotc.cli.output import CallLog
from aotc.cli.terminal import may_be_lost, write_lines
from aotc.report.sheet import with_fixtures_in_words

if TYPE_CHECKING:
    from rich.console import RenderableType


@contextmanager
def stages(*, quiet: bool = False) -> Iterator[Watcher | None]:
    """What to tell of stages; None where nobody wants to know.

    Nothing is shown with `quiet`, such as for `--json`, unless every step is asked for.  What is
    hashed meanwhile is told, too.
    """
    asked = current()
    shown = asked.verbose or not (quiet or asked.quiet)
    if not shown and asked.log is None:
        yield None
        return
    if shown and sys.stderr.isatty():
        watcher: TerminalProgress | PlainProgress = TerminalProgress(
            asked.log, verbose=asked.verbose
        )
    else:
        watcher = PlainProgress(asked.log, shown=shown, verbose=asked.verbose)
    failed = True
    try:
        with watched(watcher):
            yield watcher
        failed = False
    finally:
        watcher.close(failed=failed)


# Stages that are under way, one within the other, and a thread that tells of the long ones.


class Stage:
    """A stage that has begun: what it is called, since when, and what is known of its progress."""

    def __init__(self, title: str, *, open_ended: bool) -> None:
        self.title = title
        self.since = time.monotonic()
        self.open_ended = open_ended
        self.step = ""
        self.polls: dict[str, Poll] = {}

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.since

    def counts(self) -> list[Count]:
        """How much of it is done, where it can be told; each count is within the one before."""
        return [count for poll in self.polls.values() if (count := poll()) is not None]


class StageStack(Watcher):
    """Keeps the stages, writes all of them to `log`, and has the class below it show them.

    What is shown is shown under `lock`: steps come from several threads, and `tick` from another.
    """

    # Seconds between two calls of `tick`.
    every: float

    def __init__(self, log: CallLog | None) -> None:
        self.lock = threading.RLock()
        self.under_way: list[Stage] = []
        self._log = log
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def began(self, stage: Stage) -> None:
        """Show that a stage began: the last of `under_way`."""

    @abstractmethod
    def ended(self, stage: Stage, text: str) -> None:
        """Show that a stage ended, which `under_way` no longer holds."""

    @abstractmethod
    def noted(self, text: str) -> None:
        """Show a step."""

    @abstractmethod
    def show_line(self, text: str) -> None:
        """Show a line."""

    @abstractmethod
    def tick(self) -> None:
        """Show that time passes."""

    def __call__(self, what: str) -> None:
        """See `Watcher`."""
        with self.lock:
            if self.under_way and self.under_way[-1].open_ended:
                self.end(failed=False)
            self._begin(Stage(_shown(what), open_ended=True))

    def begin(self, name: str, detail: str) -> None:
        """See `Watcher`."""
        self._begin(Stage(_shown(f"{name} ({detail})" if detail else name), open_ended=False))

    def end(self, *, failed: bool) -> None:
        """See `Watcher`."""
        with self.lock:
            stage = self.under_way.pop()
            text = f"{stage.title}  {seconds(stage.seconds)}{', not finished' if failed else ''}"
            self.log(text)
            self.ended(stage, text)

    def note(self, what: str) -> None:
        """See `Watcher`."""
        with self.lock:
            text = _shown(what)
            if self.under_way:
                self.under_way[-1].step = text
            self.log(f"  {text}")
            self.noted(text)

    def finished(self, what: str, seconds_taken: float) -> None:
        """See `Watcher`."""
        with self.lock:
            text = f"{_shown(what)}  {seconds(seconds_taken)}"
            self.log(text)
            self.show_line(text)

    def follow(self, unit: str, poll: Poll) -> None:
        """See `Watcher`."""
        with self.lock:
            if self.under_way:
                self.under_way[-1].polls[unit] = poll

    def close(self, *, failed: bool) -> None:
        """End what is under way, and the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        while self.under_way:
            self.end(failed=failed)

    def counts(self) -> list[Count]:
        """How much is done, of the outermost stage first."""
        return [count for stage in self.under_way for count in stage.counts()]

    def log(self, text: str) -> None:
        """Add a line to the log."""
        if self._log is not None:
            self._log.write(text)

    def _begin(self, stage: Stage) -> None:
        with self.lock:
            self.under_way.append(stage)
            self.log(f"{stage.title} ...")
            self.began(stage)
            if self._thread is None:
                self._thread = threading.Thread(target=self._pass_time, daemon=True)
                self._thread.start()

    def _pass_time(self) -> None:
        while not self._over.wait(self.every):
            with self.lock:
                if self.under_way:
                    self.tick()


def seconds(passed: float) -> str:
    """Seconds as a stage's line tells them."""
    return f"{passed:.1f} s"


def share(counts: Sequence[Count]) -> float | None:
    """The share that is done, from 0 to 1, of what counts that are within one another tell."""
    done = 0.0
    for count in reversed(counts):
        # Of what is within an unknown number of others, the share says nothing of the whole.
        if not count.total:
            return None
        done = min((count.done + done) / count.total, 1.0)
    return done if counts else None


def counted(count: Count) -> str:
    """A count in words: `3 of 8 fixtures`, `120.0 MB of 1.2 GB`, `17 probes`."""
    if count.unit == BYTES:
        return size(count.done) + (f" of {size(count.total)}" if count.total is not None else "")
    share = f"{count.done} of {count.total}" if count.total is not None else str(count.done)
    return f"{share} {count.unit}"


def _shown(text: str) -> str:
    return printable(with_fixtures_in_words(text))


# Progress where nobody watches: a line for each stage that ended, and now and then a sign of life.
#
# Nothing is drawn: the lines are read later, in the log of a pipeline.


# Seconds without a line after which one says what is under way; 0 for none.
HEARTBEAT = "AOTC_HEARTBEAT"
_USUAL = 30.0
_NEVER = 365 * 86400.0


class PlainProgress(StageStack):
    """Lines on standard error; with `verbose` for stages within stages and for steps, too."""

    def __init__(self, log: CallLog | None, *, shown: bool, verbose: bool) -> None:
        super().__init__(log)
        self._shown = shown
        self._verbose = verbose
        self._interval = heartbeat()
        # The thread wakes more often than it speaks, as a line may have been written meanwhile.
        self.every = self._interval / 4
        self._last = time.monotonic()

    def began(self, stage: Stage) -> None:
        """Nothing: its line comes when its time is known."""

    def ended(self, stage: Stage, text: str) -> None:
        """A line with its time."""
        depth = len(self.under_way)
        if not depth or self._verbose:
            self.show_line(f"{'  ' * depth}{text}")

    def noted(self, text: str) -> None:
        """A line, if every step is wanted."""
        if self._verbose:
            self.show_line(f"{'  ' * len(self.under_way)}{text}")

    def show_line(self, text: str) -> None:
        """A line, at once."""
        self._last = time.monotonic()
        if self._shown:
            with may_be_lost(sys.stderr):
                write_lines((text,), file=sys.stderr)

    def tick(self) -> None:
        """After a long silence, what is under way, for how long, and how much of it is done."""
        if time.monotonic() - self._last < self._interval * 0.99:
            return
        stage = self.under_way[-1]
        text = f"still in {stage.title}, {stage.seconds:.0f} s"
        known = [*([stage.step] if stage.step else []), *map(counted, self.counts())]
        if known:
            text += f": {', '.join(known)}"
        self.log(text)
        self.show_line(text)


def heartbeat() -> float:
    """Seconds of silence after which a sign of life comes, as the environment sets them."""
    try:
        wanted = float(os.environ.get(HEARTBEAT, ""))
    except ValueError:
        return _USUAL
    return min(wanted, _NEVER) if wanted > 0 else _NEVER


# Progress on a terminal: one row that moves, and above it a line for each stage that ended.


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
            self.show_line(f"{'  ' * len(self.under_way)}{text}")
        self._row(self.under_way[-1] if self.under_way else None)

    def noted(self, text: str) -> None:
        """The step stands in the row; with `verbose` it stays."""
        if self._verbose:
            self.show_line(f"{'  ' * len(self.under_way)}{text}")
        self.tick()

    def follow(self, unit: str, poll: Poll) -> None:
        """See `Watcher`; the bar is there at once."""
        with self.lock:
            super().follow(unit, poll)
            self.tick()
            self._shown.refresh()

    def show_line(self, text: str) -> None:
        """A line above the row."""
        # Cut: of a line that the terminal breaks, the rest would begin a line of its own.
        with may_be_lost(sys.stderr):
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
