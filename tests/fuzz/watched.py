"""What is done to a folder, by whichever process: asked of the kernel, by inotify(7)."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

IN_ACCESS, IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_OPEN = 1, 2, 4, 8, 0x20
IN_MOVED, IN_CREATE, IN_DELETE, IN_GONE = 0xC0, 0x100, 0x200, 0x400 | 0x800
WRITTEN = IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED | IN_CREATE | IN_DELETE | IN_GONE
"""A change of any kind."""
TOUCHED = WRITTEN | IN_ACCESS | IN_OPEN
"""A file is opened, as a mapping of it would be read without another event; or a change."""
_NAMES = {
    IN_ACCESS: "read",
    IN_MODIFY: "written",
    IN_ATTRIB: "changed in its attributes",
    IN_CLOSE_WRITE: "closed after writing",
    IN_OPEN: "opened",
    0x40: "moved away",
    0x80: "moved in",
    IN_CREATE: "made",
    IN_DELETE: "removed",
    0x400: "removed itself",
    0x800: "moved itself",
}
_HEAD = struct.Struct("iIII")


def can_watch() -> bool:
    """Whether this system tells what is done to files."""
    return sys.platform == "linux"


class Watch:
    """Folders that are watched, with everything below them."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._places: dict[int, Path] = {}

    def add(self, paths: Iterable[Path], events: int) -> None:
        """Watch files and folders, each by itself."""
        for path in paths:
            number = self._libc.inotify_add_watch(self._file, os.fsencode(path), events)
            if number < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch", str(path))
            self._places[number] = path

    def found(self) -> list[str]:
        """What happened since this was asked last, one line each."""
        lines = []
        while True:
            try:
                data = os.read(self._file, 1 << 16)
            except BlockingIOError:
                return list(dict.fromkeys(lines))
            while data:
                number, mask, _, size = _HEAD.unpack_from(data)
                name = data[_HEAD.size : _HEAD.size + size].rstrip(b"\0")
                data = data[_HEAD.size + size :]
                place = self._places.get(number, Path("?")) / os.fsdecode(name)
                words = [text for bit, text in _NAMES.items() if mask & bit]
                lines.append(f"{place}: {', '.join(words)}")
