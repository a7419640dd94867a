"""The real command with a real terminal at its standard error, or at both outputs."""

from __future__ import annotations

import atexit
import functools
import os
import pty
import select
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from command import Command
from ready_command import write_program

# Without an answer for so long, the command hangs.
_SECONDS = 300


@functools.cache
def _program() -> str:
    """The path of `aotc`, which starts at once where it may."""
    folder = tempfile.mkdtemp(prefix="program-")
    atexit.register(shutil.rmtree, folder)
    write_program(Path(folder))
    return f"{folder}/aotc"


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
        ["/bin/sh", "-c", f'stty cols {columns} <&2 && exec "$0" "$@"', _program(), *words],
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
