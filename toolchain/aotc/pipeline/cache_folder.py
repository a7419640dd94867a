"""The folder of the build cache, and copies of files that are hashed while they are copied."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files import work_folders
from aotc.base.files.failures import cannot_use
from aotc.base.files.folders import PRIVATE, cache_folder
from aotc.base.files.locks import lock_or_close, locked
from aotc.base.files.ownership import Unsafe, can_check_owners, open_folder
from aotc.base.files.replacing import erase, move_aside, share_blocks
from aotc.base.records import record
from aotc.spec.command_reports import chunk_count
from aotc.spec.payload import CHUNK_BYTES

DEFAULT_LIMIT: Final = 10 << 30
LOCK: Final = "lock"
NEW: Final = ".new-"
OLD: Final = ".old-"
# A half-written folder of this age with a free lock was left by a process that ended.
STALE_SECONDS = 60.0
# How long a prune waits for another one to end.
_LOCK_SECONDS = 5.0
# Small enough to stay in the second-level cache from the read to the hash and the write.
_BUFFER_BYTES = 256 << 10
# Below this many bytes a pool of threads costs more than it saves.
_MIN_PARALLEL = 4 << 20
_MAX_THREADS = 8


def default_folder() -> Path:
    """$AOTC_CACHE, or aotc/build in $XDG_CACHE_HOME or ~/.cache; raises R014 without a home."""
    stated = os.environ.get("AOTC_CACHE")
    if stated:
        return Path(stated).absolute()
    cache = cache_folder()
    if cache is None:
        raise AotcError("AOTC-R014", "this user has no home folder for a cache")
    return cache / "aotc" / "build"


def default_limit() -> int:
    """The limit in bytes: $AOTC_CACHE_BYTES, or 10 GiB; raises R014 if it is not a number."""
    stated = os.environ.get("AOTC_CACHE_BYTES")
    if not stated:
        return DEFAULT_LIMIT
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 15):
        raise AotcError(
            "AOTC-R014",
            "the size of the cache is not a number of bytes",
            where="AOTC_CACHE_BYTES",
            expected="at most 15 digits",
            found=stated,
            fix="Set AOTC_CACHE_BYTES to a number of bytes, or not at all.",
        )
    return int(stated)


def unusable(error: OSError, place: Path) -> AotcError:
    """The refusal R014 for a failed call; `place` is used if the error names no file."""
    return cannot_use(
        error,
        "the cache",
        str(error.filename or place),
        "AOTC-R014",
        when_full="the disk is full",
        further_fix="Or point AOTC_CACHE at a folder of yours, or build with --no-cache.",
    )


def is_usable(folder: Path, *, make: bool = False) -> bool:
    """Whether the folder exists; with `make` it is made for this user alone if it does not.

    Raises R014 if anybody but this user and root can change it or a folder above it: they could
    store files under the key of a build, with matching digests.
    """
    try:
        if not can_check_owners():
            if make:
                folder.mkdir(parents=True, exist_ok=True)
            return folder.is_dir()
        os.close(open_folder(folder, (os.geteuid(),), make=PRIVATE if make else None))
    except FileNotFoundError:
        return False
    except (NotADirectoryError, FileExistsError):
        raise AotcError("AOTC-R014", "the cache is not a folder", where=str(folder)) from None
    except OSError as error:
        raise unusable(error, folder) from None
    except Unsafe as error:
        raise error.refusal("AOTC-R014", "the cache", "AOTC_CACHE") from None
    return True


def is_own(entry: Path) -> bool:
    """Whether only this user and root can change an entry and the folder that contains it.

    A cache that once belonged to another user may contain their entries.  Raises OSError.
    """
    if not can_check_owners():
        return True
    try:
        os.close(open_folder(entry, (os.geteuid(),)))
    except Unsafe:
        return False
    return True


def draft(root: Path) -> AbstractContextManager[Path]:
    """A new folder in `root` to fill and rename; locked, and removed if it was not renamed.

    Raises OSError if it cannot be made.
    """
    return work_folders.locked_folder(root, NEW)


@contextmanager
def locked_for_pruning(root: Path) -> Iterator[None]:
    """Keep other prunes out of `root`; raises R014 if one does not end."""
    path = root / LOCK
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(path, seconds=_LOCK_SECONDS, code="AOTC-R014"))
        except OSError as error:
            raise unusable(error, path) from None
        yield


def remove_entry(path: Path, root: Path) -> bool:
    """Rename an entry out of sight, then remove it; whether it existed.

    Raises OSError if it cannot be moved or, in a lower layer of an overlay, removed.
    """
    old = root / work_folders.name_with_owner(OLD)
    if not move_aside(path, old):
        return False
    erase(old)
    return True


def remove_leftovers(root: Path, seconds: float) -> int:
    """Remove what ended processes left half-written; the number of removed folders.

    A folder whose name does not state its owner is removed if its lock is free and it is at least
    `seconds` old; without `seconds` this applies to every folder.
    """
    found = 0
    for folder in list(root.iterdir()):
        if folder.name.startswith(OLD):
            erase(folder)
            found += 1
        elif folder.name.startswith(NEW):
            stated = work_folders.has_owner(folder.name)
            dead = work_folders.remove_abandoned(folder)
            if not dead and (not stated or not seconds):
                dead = _remove_stale(folder, seconds)
            found += dead
    return found


def _remove_stale(folder: Path, seconds: float) -> bool:
    try:
        # The owner of a young one may be about to lock it.
        if time.time() - folder.stat().st_mtime < seconds:
            return False
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not lock_or_close(descriptor):
            return False
    except OSError:
        return False
    erase(folder)
    os.close(descriptor)
    return True


# Copies of files, hashed while they are copied, chunk by chunk on several threads.
#
# The digest is that of the copy: bytes go from one buffer to the hash and to the copy or, if the
# file system can share blocks between files, the copy is made first and then read for the hash.
# `hashlib`, reads and writes release the interpreter lock.


@record(kw_only=False)
class Copy:
    """A file to copy: the size that it must have, and its digest if that is already known."""

    source: Path
    target: Path
    size: int
    known: str = ""


@record(kw_only=False)
class _Span:
    copy: Copy
    offset: int
    length: int
    shared: bool
    """Whether the target already shares the source's blocks."""


def open_regular(path: Path) -> tuple[int, int]:
    """A descriptor for reading and the file's size; raises OSError if it is not a regular file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor, found.st_size


def copy_all(copies: Sequence[Copy], made: list[Path]) -> tuple[tuple[str, ...], ...]:
    """Copy files to unused paths; for each copy, the digests of its chunks.

    Folders and files are added to `made` when they are made, so that the caller can remove them.
    Raises OSError if a source cannot be read, or has another size; R014 if a target cannot be
    written.
    """
    shares = sys.platform == "linux"
    spans: list[_Span] = []
    for copy in copies:
        shares = _create(copy, made, shares=shares)
        spans += (
            _Span(copy, start, min(CHUNK_BYTES, copy.size - start), shares)
            for start in range(0, chunk_count(copy.size) * CHUNK_BYTES, CHUNK_BYTES)
        )
    digests = iter(_copy_spans(spans))
    return tuple(tuple(next(digests) for _ in range(chunk_count(copy.size))) for copy in copies)


def _create(copy: Copy, made: list[Path], *, shares: bool) -> bool:
    """Make the target and its folders; whether it now shares the source's blocks."""
    source, size = open_regular(copy.source)
    try:
        if size != copy.size:
            text = f"{size} bytes instead of {copy.size}"
            raise OSError(errno.EINVAL, text, str(copy.source))
        try:
            _make_folders(copy.target.parent, made)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            target = os.open(copy.target, flags, 0o666)
        except OSError as error:
            raise unusable(error, copy.target) from None
        made.append(copy.target)
        try:
            return shares and share_blocks(source, target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _make_folders(folder: Path, made: list[Path]) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent, made)
    folder.mkdir()
    made.append(folder)


def _copy_spans(spans: Sequence[_Span]) -> list[str]:
    """The digests of the spans, in order."""
    threads = min(len(spans), len(os.sched_getaffinity(0)), _MAX_THREADS)
    if threads < 2 or sum(span.length for span in spans) < _MIN_PARALLEL:
        return [_copy_span(span) for span in spans]
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_copy_span, span) for span in spans]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _copy_span(span: _Span) -> str:
    copy = span.copy
    known = copy.known if chunk_count(copy.size) == 1 else ""
    if known and span.shared:
        return known
    source, _ = open_regular(copy.target if span.shared else copy.source)
    try:
        if span.shared:
            return _stream(source, None, span)
        target = _open_for_writing(copy.target)
        try:
            return _stream(source, target, span, known)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _open_for_writing(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unusable(error, path) from None


def _stream(source: int, target: int | None, span: _Span, known: str = "") -> str:
    """Read a span, and write it if there is a target; its digest, hashed unless known."""
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(min(_BUFFER_BYTES, span.length)))
    position, end = span.offset, span.offset + span.length
    while position < end:
        count = os.preadv(source, [buffer[: end - position]], position)
        if not count:
            raise OSError(errno.EINVAL, "truncated while it was read", str(span.copy.source))
        if not known:
            hasher.update(buffer[:count])
        if target is not None:
            _write(target, buffer[:count], position, span.copy.target)
        position += count
    return known or hasher.hexdigest()


def _write(target: int, data: memoryview, position: int, path: Path) -> None:
    try:
        while data:
            count = os.pwrite(target, data, position)
            data, position = data[count:], position + count
    except OSError as error:
        raise unusable(error, path) from None
