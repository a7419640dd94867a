"""Progress where nobody watches: a line for each stage that ended, and now and then a sign of life.

Nothing is drawn: the lines are read later, in the log of a pipeline.
"""

from __future__ import annotations

import os
import sys
import time

from aotc.cli import streams
from aotc.cli.call_log import CallLog
from aotc.cli.progress.stage_stack import Stage, StageStack, counted
from aotc.cli.render import write_lines

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
            self.told(f"{'  ' * depth}{text}")

    def noted(self, text: str) -> None:
        """A line, if every step is wanted."""
        if self._verbose:
            self.told(f"{'  ' * len(self.under_way)}{text}")

    def told(self, text: str) -> None:
        """A line, at once."""
        self._last = time.monotonic()
        if self._shown:
            with streams.may_be_lost(sys.stderr):
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
        self.told(text)


def heartbeat() -> float:
    """Seconds of silence after which a sign of life comes, as the environment sets them."""
    try:
        wanted = float(os.environ.get(HEARTBEAT, ""))
    except ValueError:
        return _USUAL
    return min(wanted, _NEVER) if wanted > 0 else _NEVER
