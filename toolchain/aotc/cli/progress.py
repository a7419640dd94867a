"""The stage that is under way, on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aotc.cli.fixture_words import with_fixtures_in_words
from aotc.escaping import printable


@contextmanager
def stages(*, quiet: bool = False) -> Iterator[Callable[[str], None] | None]:
    """A function to call with the name of each stage as it begins; None where nothing is shown."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    shown = Progress(*columns, console=console, transient=True)
    task: TaskID | None = None
    name, since = "", time.monotonic()

    def begin(stage: str) -> None:
        nonlocal task, name, since
        now = time.monotonic()
        if task is not None:
            shown.remove_task(task)
            console.print(f"  {name}  {now - since:.1f} s")
        name, since = printable(with_fixtures_in_words(stage)), now
        # Not before: it wipes its line, on which a password may be asked for.
        shown.start()
        task = shown.add_task(name, total=None)

    try:
        yield begin
    finally:
        shown.stop()
