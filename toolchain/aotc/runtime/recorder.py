"""Record the shapes of production's requests, and nothing else of them, in a bounded file."""

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

from aotc.engine.values import Data
from aotc.errors import AotcError
from aotc.files.locking import wait_for_lock
from aotc.files.writing import write_atomically

# Lines wait in memory up to this many, or this long: a line a write would cost more than a call.
_WAITING = 256
_SECONDS = 2.0
_KEPT = 4096
# How long a request waits for another process that writes the file.
_LOCK_SECONDS = 0.25
_APPEND = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_APPEND
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
# Below this, thinning would leave nothing.
LEAST_BYTES = 4096


class ShapeRecorder:
    """Appends one JSON object a request: the shape of each tensor input by name.

    The file never grows beyond `limit` bytes: when it would, every second line is dropped, and
    from then on only every second request is recorded, then every fourth, and so on; what the
    file holds stays an even sample.  Values are never written.  Safe from many threads, and from
    processes that share the file.  `{pid}` in the path stands for the process id: a process that
    goes on with the thinned file of another gives its own requests more weight.  What waits is
    written by `close`, or when the interpreter ends.
    """

    def __init__(self, path: str | Path, *, limit: int = 16 << 20) -> None:
        self.path = Path(str(path).replace("{pid}", str(os.getpid())))
        self.lost = 0
        """Requests that could not be written."""
        if limit < LEAST_BYTES:
            raise AotcError(
                "AOTC-I027",
                "the bound of a record leaves no room for requests",
                where="record_bytes",
                expected=f">= {LEAST_BYTES}",
                found=str(limit),
            )
        self._limit = limit
        self._lock = threading.Lock()
        self._every = 1
        self._seen = 0
        self._lines: list[str] = []
        self._known: dict[tuple[tuple[str, tuple[int, ...]], ...], str] = {}
        self._flushed = time.monotonic()
        self._closed = False
        atexit.register(self.close)

    def record(self, inputs: Mapping[str, Data]) -> None:
        """Note the shapes of the arrays of one request, by name; raises nothing."""
        with self._lock:
            self._seen += 1
            if self._seen % self._every:
                return
            shapes = tuple(
                (name, shape)
                for name, value in inputs.items()
                if isinstance(shape := getattr(value, "shape", None), tuple)
            )
            if not shapes:
                return
            line = self._known.get(shapes)
            self._lines.append(self._line(shapes) if line is None else line)
            waited = time.monotonic() - self._flushed
            # A call that was under way when the model was closed is the last to be seen.
            if len(self._lines) >= _WAITING or waited > _SECONDS or self._closed:
                self._flush()

    def _line(self, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> str:
        """The line for `shapes`; those of common requests are kept."""
        named = {str(name): shape for name, shape in shapes}
        line = json.dumps(named, separators=(",", ":")) + "\n"
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[shapes] = line
        return line

    def close(self) -> None:
        """Write what waits."""
        atexit.unregister(self.close)
        with self._lock:
            self._closed = True
            self._flush()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        lines, self._lines = self._lines, []
        if not lines:
            return
        data = "".join(lines).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(self.path) as file:
                if os.fstat(file.fileno()).st_size + len(data) > self._limit:
                    self._thin(data)
                else:
                    file.write(data)
        except (OSError, AotcError):
            # A request must not fail for want of a record.
            self.lost += len(lines)

    def _thin(self, data: bytes) -> None:
        """Rewrite the file with every second line, until it and `data` fit with room to grow."""
        lines = (self.path.read_bytes() + data).splitlines(keepends=True)
        every = self._every
        while lines and sum(map(len, lines)) > self._limit // 2:
            lines = lines[1::2]
            every *= 2
        write_atomically(self.path, b"".join(lines))
        self._every = every


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """The open file, which no other recorder adds to or thins meanwhile; raises OSError.

    Whoever thins it replaces it: what was written to the old file would be lost.
    """
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        with os.fdopen(_open_plain(path), "ab") as file:
            # Where the file system has no locks, it is written without.
            with suppress(OSError):
                if not wait_for_lock(file.fileno(), seconds=max(0.0, deadline - time.monotonic())):
                    raise AotcError("AOTC-G041", "another process holds the lock", where=str(path))
            if _leads_to(path, file.fileno()):
                yield file
                return


def _open_plain(path: Path) -> int:
    """A file, and nothing else: a pipe would have the request wait for who reads it."""
    descriptor = os.open(path, _APPEND, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return descriptor


def _leads_to(path: Path, descriptor: int) -> bool:
    """Whether a file is still where it was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
