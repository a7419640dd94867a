"""Work folders: drafts are made in them; their names state the process that owns them.

    <folder>/.<output>.aotc-<owner>       next to an output
    <temporary folder>/aotc-<purpose>-<owner>
    <owner> is <boot>-<pid namespace>-<pid>-<start>-<random>

Their process removes them at its end, unless it is killed.  The next command of ours that works in
the same folder removes the abandoned ones.  The owner is part of the name because a file within
would be missing at the beginning and at the end.  What may belong to a running process stays:

- The owner holds the folder's lock (flock), which ends with the process: a locked folder is in use,
  even if another container asks.
- If the lock is free, a process of this boot and PID namespace is looked up, with its start time,
  because process ids are reused.  That decides for the moment before the lock is taken, and for
  file systems without locks.
- A process of another PID namespace of this boot cannot be looked up, but the same kernel keeps
  both locks.  A free lock means that it ended, except in the moment before it is taken: a minute.
- Another boot is an earlier one of this machine or, on a shared file system, another machine whose
  locks may not be visible here: then nothing may have been written for a day.

Folders of other users always stay.

A folder of a transfer, whose purpose is `part`, is kept where the transfer ended halfway: the next
one to the same output takes it over.  It is removed like others once it is a day old.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_write, is_full
from aotc.base.files.locks import lock_or_close
from aotc.base.files.replacing import (
    ARTIFACT,
    NEW,
    OLD,
    FolderKind,
    check_output,
    erase,
    recover,
)

# How long a folder whose process cannot be looked up must be unchanged.
MINUTE_SECONDS = 60.0
DAY_SECONDS = 86400.0
_UNKNOWN_BOOT: Final = "0" * 12
_OWNER: Final = re.compile(
    r"(?P<place>.*)aotc(?P<cut>x?)-(?:(?P<purpose>[a-z]+)-)?"
    r"(?P<boot>[0-9a-f]{12})-(?P<space>\d+)-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{16}",
    re.DOTALL,
)
# Most file systems take 255 bytes for a name; an owner needs about 70 of them.
_MAX_STEM_BYTES: Final = 160
_PART: Final = "part"
_PROC: Final = Path("/proc")
_TRIES: Final = 8
_MAX_LOCK_TRIES: Final = 200
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
    kind: FolderKind = ARTIFACT,
    force: bool = False,
    fix: str = "",
) -> None:
    """Remove abandoned folders next to an output, then call `check_output`; raises what it does."""
    remove_abandoned_in(place.absolute().parent, place.name)
    check_output(place, folder=folder, kind=kind, force=force, fix=fix)


@contextlib.contextmanager
def work_folder(place: Path) -> Iterator[Path]:
    """A new folder next to the output `place`, for its draft; removed at the end with its contents.

    Abandoned ones are removed first.  Raises I018 and I026 if it cannot be made, and I018 for a
    full disk within.
    """
    parent = place.absolute().parent
    remove_abandoned_in(parent, place.name)
    stem, cut = _stem(place.name)
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(locked_folder(parent, f".{stem}.", cut=cut))
        except OSError as error:
            raise cannot_write(error, "cannot write next to the output", str(place)) from None
        try:
            yield work
        except OSError as error:
            if is_full(error):
                raise AotcError("AOTC-I018", "no space left", where=str(place)) from None
            raise


@contextlib.contextmanager
def draft_path(place: Path) -> Iterator[Path]:
    """The path of a draft in a `work_folder`, to be renamed by `replacing.put_in_place`.

    An OSError within becomes I018 if the disk is full, else I026.
    """
    try:
        with work_folder(place) as work:
            yield work / NEW
    except OSError as error:
        raise cannot_write(error, "cannot write the output", str(place)) from None


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A new temporary folder, removed at the end; `purpose` is a word of small letters.

    Abandoned ones are removed first.  Raises I018 and I026 if it cannot be made.
    """
    parent = Path(tempfile.gettempdir()).resolve()
    remove_abandoned_in(parent)
    with contextlib.ExitStack() as stack:
        try:
            work = stack.enter_context(locked_folder(parent, purpose=purpose))
        except OSError as error:
            raise cannot_write(error, "cannot write temporary files", str(parent)) from None
        yield work


@contextlib.contextmanager
def locked_folder(
    parent: Path, prefix: str = "", *, purpose: str = "", cut: bool = False
) -> Iterator[Path]:
    """A new, locked folder of this process in `parent`; removed at the end unless it was renamed.

    Its name begins with `prefix`.  Raises OSError if it cannot be made.
    """
    made: list[Path] = []
    descriptor: int | None = None
    try:
        for _ in range(_TRIES):
            # Listed before it is made, because a signal may arrive in between.
            made.append(parent / name_with_owner(prefix, purpose=purpose, cut=cut))
            made[-1].mkdir(mode=0o700)
            descriptor = _lock_new(made[-1])
            if made[-1].is_dir():
                break
            # Another process removed it as abandoned before it was locked.
            if descriptor is not None:
                os.close(descriptor)
                descriptor = None
        else:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(parent))
        yield made[-1]
    finally:
        for folder in made:
            erase(folder)
        if descriptor is not None:
            os.close(descriptor)


def name_with_owner(prefix: str = "", *, purpose: str = "", cut: bool = False) -> str:
    """A name that begins with `prefix` and states this process as the owner."""
    pid = os.getpid()
    marks = (_boot_id(), _namespace(), str(pid), str(_start_ticks(pid) or 0), secrets.token_hex(8))
    word = f"{purpose}-" if purpose else ""
    return f"{prefix}aotc{'x' if cut else ''}-{word}{'-'.join(marks)}"


def has_owner(name: str) -> bool:
    """Whether a name states an owner."""
    return _OWNER.fullmatch(name) is not None


def lock_path(path: Path) -> int | None:
    """A descriptor that holds the lock of a file or folder; None if the system has no locks.

    Raises BlockingIOError if another process holds it, and OSError if it cannot be opened.
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


def _lock_new(path: Path) -> int | None:
    """The lock of a new folder; a process that looks for abandoned ones may hold it briefly."""
    for _ in range(_MAX_LOCK_TRIES):
        try:
            return lock_path(path)
        except FileNotFoundError:
            return None
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
    return None


def remove_abandoned_in(folder: Path, place: str = "") -> int:
    """Remove abandoned work folders in a folder, as far as possible; the number of removed ones.

    If one contains an old artifact that was moved aside and nothing has its name, that artifact is
    restored first.  `place` names the output that is being written.
    """
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in found if _OWNER.fullmatch(entry.name)]
    except OSError:
        return 0
    return sum(remove_abandoned(folder / name, place) for name in names)


def remove_abandoned(path: Path, place: str = "") -> bool:
    """Remove a folder that `name_with_owner` named if its process ended; whether it was removed."""
    found = _OWNER.fullmatch(path.name)
    if found is None:
        return False
    descriptor: int | None = None
    try:
        status = path.lstat()
        if status.st_uid != getattr(os, "geteuid", lambda: status.st_uid)():
            return False
        if not _is_abandoned(found, path, locked=True):
            return False
        if (path / NEW).exists() and is_resumable(path):
            return False
        descriptor = lock_path(path)
        if not _is_abandoned(found, path, locked=descriptor is not None):
            return False
        name = _output_name(found, place)
        if all(os.path.lexists(path / name) for name in (NEW, OLD)):
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


def resumable_name(prefix: str, *, cut: bool = False) -> str:
    """The name of a folder of a transfer; as `name_with_owner`."""
    return name_with_owner(prefix, purpose=_PART, cut=cut)


def is_resumable(path: Path) -> bool:
    """Whether a folder is of a transfer that ended less than a day ago, so that it is kept."""
    found = _OWNER.fullmatch(path.name)
    if found is None or found["purpose"] != _PART:
        return False
    try:
        return not _is_unchanged(path, DAY_SECONDS)
    except OSError:
        return False  # Gone: its transfer ended meanwhile, or goes on under another name.


def take_over(parent: Path, prefix: str, *, cut: bool = False) -> tuple[Path, int] | None:
    """A folder in which a transfer ended halfway, under a name of this process, and its lock.

    `prefix` is what its name begins with.  None if there is none, or none that can be locked.
    """
    for path in sorted(parent.glob(f"{glob.escape(prefix)}aotc{'x' if cut else ''}-{_PART}-*")):
        if _OWNER.fullmatch(path.name) is None:
            continue
        descriptor: int | None = None
        try:
            descriptor = lock_path(path)
            if descriptor is None:
                return None
            opened = os.fstat(descriptor)
            if stat.S_ISDIR(opened.st_mode) and opened.st_uid == os.geteuid():
                own = parent / resumable_name(prefix, cut=cut)
                path.rename(own)
                return own, descriptor
        except OSError:
            pass  # In use, or taken over by another process.
        if descriptor is not None:
            os.close(descriptor)
    return None


@contextlib.contextmanager
def resumable_folder(place: Path, keeps: Callable[[BaseException], bool]) -> Iterator[Path]:
    """A folder next to the output `place` for a transfer, with what an earlier one left in it.

    It is removed at the end, but for an exception for which `keeps` is true.  Raises as
    `work_folder`.
    """
    parent = place.absolute().parent
    remove_abandoned_in(parent, place.name)
    stem, cut = _stem(place.name)
    try:
        work, descriptor = take_over(parent, f".{stem}.", cut=cut) or _new_resumable(
            parent, f".{stem}.", cut=cut
        )
    except OSError as error:
        raise cannot_write(error, "cannot write next to the output", str(place)) from None
    keep = False
    try:
        with contextlib.suppress(OSError):
            recover(work / OLD, place)
        yield work
    except BaseException as error:
        keep = keeps(error)
        if isinstance(error, OSError):
            raise cannot_write(error, "cannot write the output", str(place)) from None
        raise
    finally:
        if not keep:
            erase(work)
        if descriptor is not None:
            os.close(descriptor)


def _new_resumable(parent: Path, prefix: str, *, cut: bool) -> tuple[Path, int | None]:
    for _ in range(_TRIES):
        made = parent / resumable_name(prefix, cut=cut)
        made.mkdir(mode=0o700)
        descriptor = _lock_new(made)
        if made.is_dir():
            return made, descriptor
        if descriptor is not None:
            os.close(descriptor)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(parent))


def _is_abandoned(found: re.Match[str], path: Path, *, locked: bool) -> bool:
    """Whether no process works in it, as far as can be known; its lock is free."""
    boot = found["boot"]
    if boot == _UNKNOWN_BOOT or boot != _boot_id():
        return _is_unchanged(path, DAY_SECONDS)
    if found["space"] == _namespace():
        return not _is_running(int(found["pid"]), int(found["start"]))
    return _is_unchanged(path, MINUTE_SECONDS if locked else DAY_SECONDS)


def _is_unchanged(path: Path, seconds: float) -> bool:
    """Whether nothing in it changed for `seconds`."""
    latest = path.lstat().st_mtime
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                latest = max(latest, Path(folder, name).lstat().st_mtime)
    return time.time() - latest >= seconds


def _is_running(pid: int, start: int) -> bool:
    """Whether the process that started at `start` is still running."""
    if _start_ticks(pid) is not None:
        return _start_ticks(pid) == start
    try:
        # It may be hidden (hidepid of proc).
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return _stat_fields(pid)[:1] not in (["Z"], ["X"])


def _start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None if it is not running."""
    fields = _stat_fields(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _stat_fields(pid: int) -> list[str]:
    try:
        # The program's name may contain anything and ends with the last parenthesis.
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    """Digits that no other boot of any machine has; zeros if they are unknown."""
    try:
        text = (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return _UNKNOWN_BOOT
    digits = re.sub(r"[^0-9a-f]", "", text)[:12]
    return digits if len(digits) == 12 else _UNKNOWN_BOOT


def _namespace() -> str:
    """The number of the PID namespace; 0 if unknown."""
    try:
        return str((_PROC / "self" / "ns" / "pid").stat().st_ino)
    except OSError:
        return "0"


def _stem(name: str) -> tuple[str, bool]:
    """An output's name as part of a work folder's name, and whether it was cut."""
    if len(os.fsencode(name)) <= _MAX_STEM_BYTES:
        return name, False
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:8]
    while len(os.fsencode(name)) > _MAX_STEM_BYTES - len(digest):
        name = name[:-1]
    return name + digest, True


def _output_name(found: re.Match[str], place: str) -> str | None:
    """The name of the output that a work folder belongs to; empty if it belongs to none.

    None if the name was cut and is not that of `place`, the output in question.
    """
    stem = found["place"]
    if len(stem) < 3 or stem[0] != "." or stem[-1] != ".":
        return ""
    if not found["cut"]:
        return stem[1:-1]
    return place if _stem(place)[0] == stem[1:-1] else None
