"""The real command with a real terminal at its standard error, or at both outputs."""

from __future__ import annotations

import os
import pty
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path

from command import SCRIPT, Command

# Without an answer for so long, the command hangs.
_SECONDS = 300


def on_a_terminal(
    command: Command,
    *words: str | Path,
    only_error: bool = False,
    from_terminal: bool = False,
    change: Mapping[str, str] = {},
    columns: int = 100,
) -> tuple[int, str, str]:
    """Exit status, what the terminal was sent, and what came by a pipe in place of it.

    With `only_error` the terminal is at standard error alone, as in `aotc build > FILE`.
    """
    ours, theirs = pty.openpty()
    environment = {**command.environment(), "TERM": "xterm-256color", **change}
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'stty cols {columns} <&2 && exec "$0" "$@"', str(SCRIPT), *words],
        stdin=theirs if from_terminal else subprocess.DEVNULL,
        stdout=subprocess.PIPE if only_error else theirs,
        stderr=theirs,
        cwd=command.folder,
        env=environment,
    )
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], _SECONDS)[0]:
        try:
            block = os.read(ours, 1 << 16)
        except OSError:  # The other end is closed.
            break
        if not block:
            break
        said += block
    os.close(ours)
    piped = process.stdout.read() if process.stdout is not None else b""
    status = process.wait(_SECONDS)
    if process.stdout is not None:
        process.stdout.close()
    return status, said.decode("utf-8").replace("\r\n", "\n"), piped.decode("utf-8")
