"""The file of `--log-file`: what a call did and when, one line each, with the time in UTC."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

from aotc.cli import streams
from aotc.cli.render import write_lines
from aotc.errors import AotcError
from aotc.escaping import printable
from aotc.files.failures import cannot_write

_LONGEST = 4000


class CallLog:
    """Lines are added to a file that exists, so that several calls share one."""

    def __init__(self, path: Path) -> None:
        """Raises AOTC-I018 or I026 where it cannot be written, I055 where it is standard output."""
        self._path = path
        self._lock = threading.Lock()
        if str(path) == "-":
            raise _mixed(path)
        try:
            self._file: TextIO | None = path.open("a", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise cannot_write(error, "cannot write the log", str(path)) from None
        if _is_standard_output(self._file):
            self._file.close()
            raise _mixed(path)

    def write(self, text: str) -> None:
        """Add a line, at once; of a file that can no longer be written, the first loss is told."""
        now = time.time()
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        line = f"{moment}.{int(now % 1 * 1000):03}Z  {printable(text, _LONGEST)}\n"
        with self._lock:
            if self._file is None:
                return
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                streams.silence(self._file)
                self._file = None
                with streams.may_be_lost(sys.stderr):
                    what = f"warning: the log {self._path} is incomplete: {error.strerror}"
                    write_lines((what,), file=sys.stderr)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None


def _mixed(path: Path) -> AotcError:
    return AotcError(
        "AOTC-I055", "the log would be mixed with the answer", where=f"--log-file {path}"
    )


def _is_standard_output(file: TextIO) -> bool:
    try:
        log, answer = os.fstat(file.fileno()), os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        return False
    return os.path.samestat(log, answer) and not os.path.samestat(log, os.stat(os.devnull))  # noqa: PTH116
