"""Records the shapes of production's requests, and nothing else, in a file of limited size."""

from __future__ import annotations

import atexit
import errno
import json
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from aotc.base.errors import AotcError
from aotc.base.files.locks import wait_for_lock
from aotc.base.files.reading import read_at_most
from aotc.base.files.writing import write_atomically
from aotc.base.interruptions import uninterrupted
from aotc.graph.values import Data

# Lines wait in memory up to this number or time: a write per line would cost more than a call.
_MAX_WAITING = 256
_MAX_WAIT_SECONDS = 2.0
_MAX_KNOWN = 4096
# How long a request waits for another process that is writing the file.
_LOCK_SECONDS = 0.25
_APPEND = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
# With a lower limit, thinning would leave nothing.
MIN_BYTES = 4096


class ShapeRecorder:
    """Appends one JSON object per request: the shape of each tensor input by name.

    The file never exceeds `limit` bytes: when it would, every second line is dropped, and from then
    on only every second request is recorded, then every fourth, and so on; the file remains an even
    sample.  Values are never written.  Safe for many threads, and for processes that share the
    file.  `{pid}` in the path is replaced by the process id: a process that continues the thinned
    file of another would give its own requests more weight.  Waiting lines are written by `close`,
    or when the interpreter ends.
    """

    def __init__(self, path: str | Path, *, limit: int = 16 << 20) -> None:
        self.path = Path(str(path).replace("{pid}", str(os.getpid())))
        self.lost = 0
        """Requests that could not be written."""
        if limit < MIN_BYTES:
            raise AotcError(
                "AOTC-I027",
                "the size limit of the record leaves no room for requests",
                where="record_bytes",
                expected=f">= {MIN_BYTES}",
                found=str(limit),
            )
        self._limit = limit
        self._lock = threading.Lock()
        self._sample_every = 1
        self._seen = 0
        self._lines: list[str] = []
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], str] = {}
        self._flushed = time.monotonic()
        self._closed = False
        atexit.register(self.close)

    def record(self, inputs: Mapping[str, Data]) -> None:
        """Note the shapes of the arrays of one request, by name; never raises."""
        # On one line: what a tracer raises where a longer `with` ends would leave it locked.
        with self._lock: self._record(inputs)  # fmt: skip # noqa: E701

    def _record(self, inputs: Mapping[str, Data]) -> None:
        self._seen += 1
        if self._seen % self._sample_every:
            return
        shapes = tuple(
            (name, shape)
            for name, value in inputs.items()
            if isinstance(shape := getattr(value, "shape", None), tuple)
        )
        if not shapes:
            return
        line = self._known.get(shapes)
        self._lines.append(self._line_for(shapes) if line is None else line)
        waiting_seconds = time.monotonic() - self._flushed
        # A call that was running when the model was closed may be the last.
        if len(self._lines) >= _MAX_WAITING or waiting_seconds > _MAX_WAIT_SECONDS or self._closed:
            self._flush()

    def _line_for(self, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
        """The line for `shapes`; those of common requests are cached."""
        named = {str(name): shape for name, shape in shapes}
        line = json.dumps(named, separators=(",", ":")) + "\n"
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[shapes] = line
        return line

    def close(self) -> None:
        """Write the waiting lines."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            self._flush()

    def leave_to_parent(self) -> None:
        """In a forked child: write nothing, as the waiting lines are the parent's."""
        atexit.unregister(self.close)
        self._lock = threading.Lock()
        self._lines = []

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        lines, self._lines = self._lines, []
        if not lines:
            return
        self._write(lines)

    @uninterrupted
    def _write(self, lines: list[str]) -> None:
        data = "".join(lines).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked_file(self.path) as file:
                if os.fstat(file.fileno()).st_size + len(data) > self._limit:
                    self._thin(data)
                else:
                    file.write(data)
        except (OSError, AotcError):
            # A request must not fail because it cannot be recorded.
            self.lost += len(lines)

    def _thin(self, data: bytes) -> None:
        """Drop every second line until the file and `data` fit, with room to grow."""
        lines = (read_at_most(self.path, self._limit) + data).splitlines(keepends=True)
        sample_every = self._sample_every
        while lines and sum(map(len, lines)) > self._limit // 2:
            lines = lines[1::2]
            sample_every *= 2
        write_atomically(self.path, b"".join(lines))
        self._sample_every = sample_every


@contextmanager
def _locked_file(path: Path) -> Iterator[BinaryIO]:
    """The open file, locked against other recorders; raises OSError.

    Thinning replaces the file: what was then written to the old file would be lost.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with os.fdopen(_open_plain(path), "ab") as file:
            # On a file system without locks it is written without one.
            with suppress(OSError):
                if not wait_for_lock(file.fileno(), seconds=max(0.0, deadline - time.monotonic())):
                    raise AotcError("AOTC-G041", "another process holds the lock", where=str(path))
            if _is_still_at(path, file.fileno()):
                yield file
                return


def _open_plain(path: Path) -> int:
    """Open a plain file only: for a pipe, the request would wait for its reader."""
    descriptor = os.open(path, _APPEND, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return descriptor


def _is_still_at(path: Path, descriptor: int) -> bool:
    """Whether `path` still leads to the opened file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
