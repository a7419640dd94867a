"""The progress of a call, on standard error and in its log; never on standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aotc.cli.grammar.verbosity import current

if TYPE_CHECKING:
    from aotc.watching import Watcher


@contextmanager
def stages(*, quiet: bool = False) -> Iterator[Watcher | None]:
    """What to tell of stages; None where nobody wants to know.

    Nothing is shown with `quiet`, such as for `--json`, unless every step is asked for.
    """
    asked = current()
    shown = asked.verbose or not (quiet or asked.quiet)
    if not shown and asked.log is None:
        yield None
        return
    if shown and sys.stderr.isatty():
        from aotc.cli.progress.terminal_progress import TerminalProgress

        watcher: TerminalProgress | PlainProgress = TerminalProgress(
            asked.log, verbose=asked.verbose
        )
    else:
        from aotc.cli.progress.plain_progress import PlainProgress

        watcher = PlainProgress(asked.log, shown=shown, verbose=asked.verbose)
    failed = True
    try:
        yield watcher
        failed = False
    finally:
        watcher.close(failed=failed)
