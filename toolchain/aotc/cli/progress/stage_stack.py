"""Stages that are under way, one within the other, and a thread that tells of the long ones."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Sequence

from aotc.cli.call_log import CallLog
from aotc.cli.fixture_words import with_fixtures_in_words
from aotc.escaping import printable
from aotc.watching import BYTES, Count, Poll, Watcher


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
    def told(self, text: str) -> None:
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
            self.told(text)

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
    from aotc.cli.render import size

    if count.unit == BYTES:
        return size(count.done) + (f" of {size(count.total)}" if count.total is not None else "")
    share = f"{count.done} of {count.total}" if count.total is not None else str(count.done)
    return f"{share} {count.unit}"


def _shown(text: str) -> str:
    return printable(with_fixtures_in_words(text))
