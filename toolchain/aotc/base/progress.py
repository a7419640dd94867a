"""What a long call tells of itself: stages that begin and end, and how much of one is done.

Whoever wants to know passes a function of one text, called as each stage begins, or a `Watcher`,
which is told of ends, notes and counts as well.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

# Its counts are told in units of their own.
BYTES: Final = "bytes"

# Less is over before anybody looks.
LONG_BYTES: Final = 64 << 20

Progress = Callable[[str], None]
# Of the call under way, for what is called at many places and may take long: hashing.
_watching: ContextVar[Progress | None] = ContextVar("watching", default=None)


class Count(NamedTuple):
    """How much of a stage is done, in `unit`, such as `probes` or `bytes`; `total` where known."""

    done: int
    total: int | None
    unit: str


# None where nothing is known yet.  Called from another thread, whenever a watcher wants to know.
Poll = Callable[[], Count | None]


class Watcher(ABC):
    """A progress function that is also told what ended, and may ask how much is done."""

    @abstractmethod
    def __call__(self, what: str) -> None:
        """`what` begins; what began in the same way is over."""

    @abstractmethod
    def begin(self, name: str, detail: str) -> None:
        """A stage begins, within those that have begun and not ended."""

    @abstractmethod
    def end(self, *, failed: bool) -> None:
        """The stage that began last has ended."""

    @abstractmethod
    def note(self, what: str) -> None:
        """A step of the stage that is under way."""

    @abstractmethod
    def finished(self, what: str, seconds: float) -> None:
        """One of several items of a stage, perhaps of several at the same time, took `seconds`."""

    @abstractmethod
    def follow(self, unit: str, poll: Poll) -> None:
        """The stage that is under way can be asked how much of it is done, until it ends.

        What is followed later is within one of the units that were followed before.
        """


class Reporter:
    """Tells either kind of progress function; nothing where there is none."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._watcher = progress if isinstance(progress, Watcher) else None

    def begin(self, name: str, detail: str = "") -> None:
        """A stage begins; `end` has to follow."""
        if self._watcher is not None:
            self._watcher.begin(name, detail)
        elif self._progress is not None:
            self._progress(f"{name} {detail}".strip())

    @contextmanager
    def counting(self, name: str, detail: str, tally: Tally) -> Iterator[None]:
        """A stage, of which `tally` counts how much is done."""
        self.begin(name, detail)
        self.follow(tally.unit, tally.poll)
        try:
            yield
        except BaseException:
            self.end(failed=True)
            raise
        self.end()

    def begin_items(self, name: str, total: int, unit: str) -> None:
        """A stage begins whose items are told one by one: by `note`, and `finished`."""
        if self._watcher is not None:
            self._watcher.begin(name, f"{total} {unit if total != 1 else unit.removesuffix('s')}")
            self.count(0, total, unit)

    def end(self, *, failed: bool = False) -> None:
        """The stage that began last has ended."""
        if self._watcher is not None:
            self._watcher.end(failed=failed)

    def note(self, what: str) -> None:
        """A step of the stage that is under way begins."""
        if self._watcher is not None:
            self._watcher.note(what)
        elif self._progress is not None:
            self._progress(what)

    def finished(self, what: str, seconds: float) -> None:
        """One of several items of the stage is done."""
        if self._watcher is not None:
            self._watcher.finished(what, seconds)

    def follow(self, unit: str, poll: Poll) -> None:
        """`poll` answers how much of the stage is done, in any thread; see `Watcher.follow`."""
        if self._watcher is not None:
            self._watcher.follow(unit, poll)

    def count(self, done: int, total: int | None, unit: str) -> None:
        """So much of the stage is done."""
        if self._watcher is not None:
            known = Count(done, total, unit)
            self._watcher.follow(unit, lambda: known)


class Tally:
    """Bytes, or whatever a long step goes through, counted as it does; `poll` tells how many."""

    def __init__(self, total: int | None, unit: str) -> None:
        self.unit = unit
        self._total, self._done = total, 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """So many more are done; threads may call it at once."""
        with self._lock:
            self._done += number

    def poll(self) -> Count:
        """How many are done."""
        return Count(self._done, self._total, self.unit)


@contextmanager
def watched(progress: Progress | None) -> Iterator[None]:
    """What is hashed meanwhile, in this thread, is told to `progress`."""
    before = _watching.set(progress)
    try:
        yield
    finally:
        _watching.reset(before)


@contextmanager
def hashing(total: int, name: str = "hash") -> Iterator[Tally]:
    """A tally of `total` bytes that are hashed, which whoever watches the call is shown if long."""
    tally = Tally(total, BYTES)
    progress = _watching.get()
    if progress is None or total < LONG_BYTES:
        yield tally
        return
    with Reporter(progress).counting(name, "", tally):
        yield tally
