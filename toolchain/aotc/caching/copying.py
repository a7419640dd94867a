"""Copies of files that are hashed on the way, chunk by chunk on several threads.

What is hashed is what the copy holds: bytes go from one buffer to the hash and to the copy, or,
where the file system lets two files share blocks, the copy is made first and read for the hash.
`hashlib`, reads and writes release the interpreter's lock.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotc.caching.cache_folder import unusable
from aotc.contract.manifest.payload_files import CHUNK_BYTES
from aotc.contract.results.cache_reports import chunks_of
from aotc.files.cloning import share_blocks
from aotc.records import record

# Small enough to stay in the second-level cache between the read, the hash and the write.
_BUFFER = 256 << 10
# Below this a pool of threads costs more than it saves.
_PARALLEL = 4 << 20
_THREADS = 8


@record(kw_only=False)
class Copy:
    """A file to copy: its size as it must be, and the digest where it need not be computed."""

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
    """Whether the target has the source's bytes already."""


def open_plain(path: Path) -> tuple[int, int]:
    """A descriptor to read a file from, and the file's size; raises OSError for what is no file."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return descriptor, found.st_size


def copy_all(copies: Sequence[Copy], made: list[Path]) -> tuple[tuple[str, ...], ...]:
    """Copy files to places where nothing is yet; the digests of each one's chunks.

    Folders and files are added to `made` as they are made, so that the caller can undo.
    Raises OSError where a source cannot be read, or has another size; R014 where a target
    cannot be written.
    """
    shares = sys.platform == "linux"
    spans: list[_Span] = []
    for copy in copies:
        shares = _create(copy, made, shares=shares)
        spans += (
            _Span(copy, start, min(CHUNK_BYTES, copy.size - start), shares)
            for start in range(0, chunks_of(copy.size) * CHUNK_BYTES, CHUNK_BYTES)
        )
    digests = iter(_run(spans))
    return tuple(tuple(next(digests) for _ in range(chunks_of(each.size))) for each in copies)


def _create(copy: Copy, made: list[Path], *, shares: bool) -> bool:
    """Make the target, its folders too; whether it shares the source's blocks now."""
    source, size = open_plain(copy.source)
    try:
        if size != copy.size:
            text = f"{size} bytes and not {copy.size}"
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


def _run(spans: Sequence[_Span]) -> list[str]:
    """Digests of the spans, in their order."""
    threads = min(len(spans), len(os.sched_getaffinity(0)), _THREADS)
    if threads < 2 or sum(span.length for span in spans) < _PARALLEL:
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
    known = copy.known if chunks_of(copy.size) == 1 else ""
    if known and span.shared:
        return known
    source, _ = open_plain(copy.target if span.shared else copy.source)
    try:
        if span.shared:
            return _stream(source, None, span)
        target = _reopened(copy.target)
        try:
            return _stream(source, target, span, known)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _reopened(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise unusable(error, path) from None


def _stream(source: int, target: int | None, span: _Span, known: str = "") -> str:
    """Read a span, and write it where there is a target; its digest, hashed where not known."""
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(min(_BUFFER, span.length)))
    place, end = span.offset, span.offset + span.length
    while place < end:
        count = os.preadv(source, [buffer[: end - place]], place)
        if not count:
            raise OSError(errno.EINVAL, "cut while it was read", str(span.copy.source))
        if not known:
            hasher.update(buffer[:count])
        if target is not None:
            _write(target, buffer[:count], place, span.copy.target)
        place += count
    return known or hasher.hexdigest()


def _write(target: int, data: memoryview, place: int, path: Path) -> None:
    try:
        while data:
            count = os.pwrite(target, data, place)
            data, place = data[count:], place + count
    except OSError as error:
        raise unusable(error, path) from None
