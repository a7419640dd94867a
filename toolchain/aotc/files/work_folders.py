"""Work folders: where something is made before it takes its name, each of which says whose it is.

    <folder>/.<output>.aotc-<owner>       beside an output
    <temporary folder>/aotc-<purpose>-<owner>
    <owner> is <boot>-<pid namespace>-<pid>-<start>-<random>

They are gone at the end of whoever made them, unless that was killed.  The next command of ours
that works in the same folder removes those of the dead.  The owner is part of the name, as a file
within would not be there at every moment.  What may belong to a process that lives stays:

- Whoever works in one holds its lock (flock), which ends with the process: one that is locked is in
  use, whoever asks, from another container too.
- Where the lock is free, a process of this boot and PID namespace is looked up, by its start too,
  as numbers of processes come again.  That settles the moment before a lock is taken, and file
  systems without locks.
- A process of another PID namespace of this boot cannot be looked up, but the same kernel keeps
  both locks, so that a free one means death, except in the moment before it is taken: a minute.
- Another boot is this machine's earlier one or, on a shared file system, another machine whose
  locks may not be seen here: there nothing may have been written for a day.

Those of other users stay in any case.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.errors import AotcError
from aotc.files.failures import cannot_write, is_full
from aotc.files.locking import lock_or_close
from aotc.files.removing import erase
from aotc.files.replacing import NEW, OLD, check_output, recover

# How long what cannot be looked up must have been left alone.
MINUTE_SECONDS = 60.0
DAY_SECONDS = 86400.0
_UNKNOWN_BOOT: Final = "0" * 12
_OWNER: Final = re.compile(
    r"(?P<place>.*)aotc(?P<cut>x?)-(?:[a-z]+-)?"
    r"(?P<boot>[0-9a-f]{12})-(?P<space>\d+)-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{16}",
    re.DOTALL,
)
# Most file systems take 255 bytes of a name, and an owner some 70 of them.
_MOST_BYTES: Final = 160
_PROC: Final = Path("/proc")
_TRIES: Final = 8
_LOOKS: Final = 200
_PAUSE_SECONDS: Final = 0.005
_OPEN: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


def prepare_output(
    place: Path,
    *,
    folder: bool = False,
    force: bool = False,
    fix: str = "",
) -> None:
    """Remove what the dead left beside an output, then `check_output`; raises what that does."""
    remove_dead_in(place.absolute().parent, place.name)
    check_output(place, folder=folder, force=force, fix=fix)


@contextlib.contextmanager
def beside(place: Path) -> Iterator[Path]:
    """A new folder beside an output, for its draft; gone at the end with all that is in it.

    What the dead left there goes first.  Raises I018 and I026 where it cannot be made, and I018
    for a full disk within.
    """
    parent = place.absolute().parent
    remove_dead_in(parent, place.name)
    stem, cut = _stem(place.name)
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(held(parent, f".{stem}.", cut=cut))
        except OSError as error:
            raise cannot_write(error, "cannot write beside the output", str(place)) from None
        try:
            yield work
        except OSError as error:
            if is_full(error):
                raise AotcError("AOTC-I018", "no space left", where=str(place)) from None
            raise


@contextlib.contextmanager
def drafted(place: Path) -> Iterator[Path]:
    """The path of a draft, to be `replacing.put` in its place, in a folder as `beside` makes it.

    An OSError within is one of writing: I018 where the disk is full, else I026.
    """
    try:
        with beside(place) as work:
            yield work / NEW
    except OSError as error:
        raise cannot_write(error, "cannot write the output", str(place)) from None


@contextlib.contextmanager
def temporary(purpose: str) -> Iterator[Path]:
    """A new temporary folder, gone at the end; `purpose` is a word of small letters.

    What the dead left goes first.  Raises I018 and I026 where it cannot be made.
    """
    parent = Path(tempfile.gettempdir()).resolve()
    remove_dead_in(parent)
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(held(parent, purpose=purpose))
        except OSError as error:
            raise cannot_write(error, "cannot write temporary files", str(parent)) from None
        yield work


@contextlib.contextmanager
def held(parent: Path, prefix: str = "", *, purpose: str = "", cut: bool = False) -> Iterator[Path]:
    """A new folder of this process's in `parent`, locked; gone at the end unless it was renamed.

    Its name begins with `prefix`.  Raises OSError where it cannot be made.
    """
    made: list[Path] = []
    descriptor: int | None = None
    try:
        for _ in range(_TRIES):
            # Known before it is there, as a signal may come between.
            made.append(parent / new_name(prefix, purpose=purpose, cut=cut))
            made[-1].mkdir(mode=0o700)
            descriptor = _lock_own(made[-1])
            if made[-1].is_dir():
                break
            # Taken for a dead one's before it was locked.
            if descriptor is not None:
                os.close(descriptor)
                descriptor = None
        else:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(parent))
        yield made[-1]
    finally:
        for each in made:
            erase(each)
        if descriptor is not None:
            os.close(descriptor)


def new_name(prefix: str = "", *, purpose: str = "", cut: bool = False) -> str:
    """A name, beginning with `prefix`, that says that this process made what has it."""
    pid = os.getpid()
    marks = (_boot(), _namespace(), str(pid), str(_start(pid) or 0), secrets.token_hex(8))
    word = f"{purpose}-" if purpose else ""
    return f"{prefix}aotc{'x' if cut else ''}-{word}{'-'.join(marks)}"


def states_owner(name: str) -> bool:
    """Whether a name says whose it is."""
    return _OWNER.fullmatch(name) is not None


def lock(path: Path) -> int | None:
    """A descriptor that holds the lock of a file or folder; None where the system has none.

    Raises BlockingIOError where another process holds it, and OSError where it cannot be opened.
    """
    if sys.platform == "win32":
        return None
    descriptor = os.open(path, _OPEN)
    try:
        if lock_or_close(descriptor):
            return descriptor
    except OSError:
        return None
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))


def _lock_own(path: Path) -> int | None:
    """The lock of a new folder, on which somebody may sit who looks whether it is a dead one's."""
    for _ in range(_LOOKS):
        try:
            return lock(path)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
    return None


def remove_dead_in(folder: Path, place: str = "") -> int:
    """Remove what dead processes left in a folder, as far as that goes; how many there were.

    An old artifact that one of them had moved aside is put back first where nothing stands in its
    place.  `place` names the output that is worked on.
    """
    try:
        with os.scandir(folder) as found:
            names = [each.name for each in found if _OWNER.fullmatch(each.name)]
    except OSError:
        return 0
    return sum(remove_dead(folder / name, place) for name in names)


def remove_dead(path: Path, place: str = "") -> bool:
    """Remove what has a name by `new_name` if its process is dead; whether it was."""
    found = _OWNER.fullmatch(path.name)
    if found is None:
        return False
    descriptor: int | None = None
    try:
        status = path.lstat()
        if status.st_uid != getattr(os, "geteuid", lambda: status.st_uid)():
            return False
        if not _is_dead(found, path, locked=True):
            return False
        descriptor = lock(path)
        if not _is_dead(found, path, locked=descriptor is not None):
            return False
        name = _output(found, place)
        if all(os.path.lexists(path / each) for each in (NEW, OLD)):
            if name is None:
                return False
            if name:
                recover(path / OLD, path.with_name(name))
        erase(path)
    except OSError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return not os.path.lexists(path)


def _is_dead(found: re.Match[str], path: Path, *, locked: bool) -> bool:
    """Whether nobody works in it, as far as that can be known; its lock is free."""
    boot = found["boot"]
    if boot == _UNKNOWN_BOOT or boot != _boot():
        return _unchanged(path, DAY_SECONDS)
    if found["space"] == _namespace():
        return not _lives(int(found["pid"]), int(found["start"]))
    return _unchanged(path, MINUTE_SECONDS if locked else DAY_SECONDS)


def _unchanged(path: Path, seconds: float) -> bool:
    """Whether nothing in it changed for so long."""
    latest = path.lstat().st_mtime
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                latest = max(latest, Path(folder, name).lstat().st_mtime)
    return time.time() - latest >= seconds


def _lives(pid: int, start: int) -> bool:
    """Whether the process that was started then is there still."""
    if _start(pid) is not None:
        return _start(pid) == start
    try:
        # It may be hidden (hidepid of proc).
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return _state(pid) not in ("Z", "X")


def _start(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None where it is none that works."""
    fields = _status(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _state(pid: int) -> str:
    return (_status(pid) or [""])[0]


def _status(pid: int) -> list[str]:
    try:
        # The name of the program, which may hold anything, ends with the last parenthesis.
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _boot() -> str:
    """Digits that no other boot of any machine has; zeros where they are not to be had."""
    try:
        text = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return _UNKNOWN_BOOT
    digits = re.sub(r"[^0-9a-f]", "", text)[:12]
    return digits if len(digits) == 12 else _UNKNOWN_BOOT


def _namespace() -> str:
    """The PID namespace's number; 0 where there is none."""
    try:
        return str((_PROC / "self" / "ns" / "pid").stat().st_ino)
    except OSError:
        return "0"


def _stem(name: str) -> tuple[str, bool]:
    """An output's name as a work folder's holds it, and whether it had to be cut."""
    if len(os.fsencode(name)) <= _MOST_BYTES:
        return name, False
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    while len(os.fsencode(name)) > _MOST_BYTES - len(digest):
        name = name[:-1]
    return name + digest, True


def _output(found: re.Match[str], place: str) -> str | None:
    """The name of the output that a work folder is beside; empty where there is none.

    None where it was cut and is not `place`, the one that is asked for.
    """
    stem = found["place"]
    if len(stem) < 3 or stem[0] != "." or stem[-1] != ".":
        return ""
    if not found["cut"]:
        return stem[1:-1]
    return place if _stem(place)[0] == stem[1:-1] else None
