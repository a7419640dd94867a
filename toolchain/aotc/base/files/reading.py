"""Reading files that others wrote: plain ones only, a limit on their size, digests, models.

Whatever a user or a checkout names is opened by `open_plain`, which tests/architecture requires.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.files import confined
from aotc.base.files.failures import cannot_read

if TYPE_CHECKING:
    import io

_BLOCK = 1 << 20
_MAX_LOOKED_AT = 100
# A pipe without a writer is opened without waiting for one, and a terminal is not taken over.
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_KINDS: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_plain(path: str | Path) -> io.BufferedReader:
    """Open a regular file for reading, behind links too, without ever waiting.

    Raises OSError for anything else: reading a device may never end, and a pipe may never begin;
    and AOTC-I052 for a confined path that leads elsewhere.
    """
    # Opening a device can already have an effect, so most are refused before; the descriptor
    # decides, as the name may be another file's by then.
    descriptor = confined.open_confined(path, _READ)
    if descriptor is None:
        _require_plain(Path(path).stat(), path)
        descriptor = os.open(path, _READ)
    try:
        _require_plain(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _require_plain(found: os.stat_result, path: str | Path) -> None:
    if stat.S_ISREG(found.st_mode):
        return
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((name for test, name in _KINDS if test(found.st_mode)), "a special file")
    raise OSError(errno.EINVAL, f"it is {kind}, not a plain file", str(path))


FileState = tuple[int, ...]
"""What tells one content of a file from another, without reading it."""


def file_state(path: str | Path) -> FileState:
    """Changes whenever the file is written or replaced; raises OSError."""
    # Unlike the modification time, the change time cannot be set.
    found = Path(path).stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def read_at_most(path: str | Path, limit: int) -> bytes:
    """A plain file's bytes, at most `limit` and one more, so that a larger one can be refused.

    Of a confined one those of the first time.  Raises as `open_plain` does.
    """

    def read() -> bytes:
        with open_plain(path) as file:
            # What is reserved follows the file, not the limit.
            size = max(os.fstat(file.fileno()).st_size, _BLOCK)
            return file.read(min(size, limit) + 1)

    return confined.first_read(path, read) if confined.is_confined(path) else read()


def file_sha256(
    path: Path,
    start: int = 0,
    length: int | None = None,
    *,
    told: Callable[[int], None] = lambda count: None,
) -> str:
    """The sha256 (hex) of `length` bytes from `start`; None or beyond the end: to the end.

    `told` is called with the size of each block that was read.  Raises OSError as `open_plain`.
    """
    import hashlib

    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    remaining = length
    with open_plain(path) as file:
        file.seek(start)
        while count := file.readinto(
            buffer if remaining is None else buffer[: min(remaining, _BLOCK)]
        ):
            digest.update(buffer[:count])
            told(count)
            remaining = None if remaining is None else remaining - count
    return digest.hexdigest()


def require_model_file(path: Path) -> None:
    """Raise AOTC-I001 if there is no plain file to read at `path`, I002 if it is a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise AotcError("AOTC-I001", "no such model file", where=str(path)) from None
    except OSError as error:
        raise cannot_read(error, "cannot read the model", str(path)) from None
    if stat.S_ISDIR(mode):
        raise AotcError(
            "AOTC-I002",
            "the path is a folder, not a model file",
            where=str(path),
            fix=_model_in(path),
        )
    if not stat.S_ISREG(mode):
        raise AotcError("AOTC-I001", "the path is not a plain file", where=str(path))


def _model_in(folder: Path) -> str:
    """What to name instead of a folder."""
    if (folder / "saved_model.pb").exists():
        return (
            "Convert this TensorFlow SavedModel first: python -m tf2onnx.convert --saved-model "
            f"{folder.name} --output model.onnx."
        )
    if (folder / "payload" / "aotc.json").exists():
        return f"It is an artifact, and built already: see aotc inspect {folder.name}."
    found = sorted(
        path.relative_to(folder).as_posix()
        for pattern in ("*.onnx", "onnx/*.onnx")
        for path in itertools.islice(folder.glob(pattern), _MAX_LOOKED_AT)
    )
    if not found:
        return "Name the .onnx file itself; there is none in this folder."
    more = f" (or one of {len(found) - 1} others)" if len(found) > 1 else ""
    return f"Name the model in it: {folder / found[0]}{more}."
