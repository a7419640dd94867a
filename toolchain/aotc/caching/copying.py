"""Copies of files, hashed while they are copied, chunk by chunk on several threads.

The digest is that of the copy: bytes go from one buffer to the hash and to the copy or, if the file
system can share blocks between files, the copy is made first and then read for the hash.
`hashlib`, reads and writes release the interpreter lock.
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
from aotc.contract.results.cache_reports import chunk_count
from aotc.files.cloning import share_blocks
from aotc.records import record

# Small enough to stay in the second-level cache from the read to the hash and the write.
_BUFFER_BYTES = 256 << 10
# Below this many bytes a pool of threads costs more than it saves.
_MIN_PARALLEL = 4 << 20
_MAX_THREADS = 8


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
