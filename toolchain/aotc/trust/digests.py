"""Digests of many or large files: streamed in parallel, with little memory.

Threads share the chunks of a file that has chunk digests; `hashlib` and `readinto` release the
interpreter lock.  Files are not memory-mapped, so a file that shrinks is a mismatch and not a
signal. With a sink, the hashed bytes are also written, from the same buffer.  Bytes that the folder
of the sink has already, and that are right, are not read from the artifact.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import Final, Protocol, TypeAlias

from aotc.base.errors import AotcError
from aotc.base.files.failures import cannot_read
from aotc.base.interruptions import stop_if_interrupted
from aotc.base.progress import BYTES, Tally, hashing
from aotc.base.records import record
from aotc.spec.payload import CHUNK_BYTES
from aotc.trust.container import ArtifactFile, Container

# Small enough to stay in a core's caches between the read and the hash, and large enough that a
# thread seldom has to wait for the interpreter's lock while another one imports modules.
BUFFER_BYTES = 1 << 20
# Below this, threads cost more than they save.
PARALLEL_BYTES = 4 << 20
MAX_THREADS = 16
# Of what comes over a network, other threads are for the time that one waits.
_MIN_TRANSFERS: Final = 2
_MAX_TRANSFERS: Final = 4


# A refusal, or None; the bytes that were hashed for it, and whether they were there already.
_Result: TypeAlias = "tuple[AotcError | None, int, bool]"


class Writer(Protocol):
    """Writes to one file of a sink at offsets; several writers may share a file."""

    def write(self, offset: int, data: memoryview) -> None:
        """Write all of `data` at `offset`."""

    def close(self) -> None:
        """Close the file."""


class Sink(Protocol):
    """The destination of a copy that is made while files are hashed."""

    def open(self, path: str) -> Writer:
        """A writer for one file, which is created if necessary; called from any thread."""


@record(kw_only=False)
class ExpectedFile:
    """A file with its expected size and digests; `size` is None if only the digest is known.

    `chunks` are the digests of its chunks of `CHUNK_BYTES`, for a larger file.
    """

    path: str
    sha256: str
    size: int | None = None
    chunks: tuple[str, ...] = ()


@record(kw_only=False)
class DigestResult:
    """At most one refusal per file, and the number of bytes that were hashed."""

    problems: tuple[AotcError, ...]
    bytes_hashed: int
    bytes_present: int = 0
    """Of these, the bytes that the sink's folder had."""


@record(kw_only=False)
class _Span:
    wanted: ExpectedFile
    sha256: str
    offset: int = 0
    length: int | None = None
    copy: bool = True
    checksum: bool = False
    """Whether to check the CRC-32 that a packed artifact states."""

    def byte_count(self) -> int:
        return self.length if self.length is not None else self.wanted.size or 0


def check_files(
    container: Container,
    files: Iterable[ExpectedFile],
    *,
    sink: Sink | None = None,
    present: Container | None = None,
    full: bool = False,
) -> DigestResult:
    """Hash `files` of `container` and compare their sizes and digests.

    With `full`, files with chunks are also hashed as a whole, and the CRC-32s of a packed artifact
    are checked.  With `sink`, the files are copied there; `present` is its folder, in which an
    earlier copy may have ended halfway: what has the expected digest there is not copied again.
    Raises only what the sink raises, and what ends a transfer.  The problems of the result, sorted
    by path, are files that are missing (AOTC-G006), not regular (G008), not readable (I001),
    different (G005) or of another CRC-32 (G039).
    """
    spans = sorted(
        (span for wanted in files for span in _spans(wanted, full)),
        key=lambda span: -span.byte_count(),
    )
    threads = min(len(spans), _processors(), MAX_THREADS)
    if container.origin:
        threads = min(len(spans), max(_MIN_TRANSFERS, min(threads, _MAX_TRANSFERS)))
    total = sum(span.byte_count() for span in spans)
    with hashing(total, "fetch" if container.origin else "hash") as tally:

        def check_span(span: _Span) -> _Result:
            if present is not None and span.copy and _is_present(present, span):
                tally.add(span.byte_count())
                return None, span.byte_count(), True
            return _check_span(container, span, sink, tally)

        if threads > 1 and total >= PARALLEL_BYTES:
            results = _in_threads(threads, check_span, spans)
        else:
            results = [check_span(span) for span in spans]
    problems: dict[str, AotcError] = {}
    for problem, _, _ in results:
        if problem is not None:
            problems.setdefault(problem.where, problem)
    return DigestResult(
        problems=tuple(problems[path] for path in sorted(problems)),
        bytes_hashed=sum(count for _, count, _ in results),
        bytes_present=sum(count for _, count, there in results if there),
    )


def _in_threads(
    count: int, check_span: Callable[[_Span], _Result], spans: Sequence[_Span]
) -> list[_Result]:
    """The results of the spans, computed by this thread and `count - 1` others.

    Importing `concurrent.futures` would take as long as hashing some megabytes.  Raises the first
    exception of a thread; the threads then take no further span, and have ended.
    """
    pending = deque(enumerate(spans))
    results: dict[int, _Result] = {}
    failures: list[BaseException] = []

    def work() -> None:
        while not failures:
            try:
                number, span = pending.popleft()
            except IndexError:
                return
            try:
                results[number] = check_span(span)
            except BaseException as error:
                failures.append(error)

    others: list[Thread] = []
    try:
        for _ in range(count - 1):
            others.append(Thread(target=work, name="aotc-digests"))
            others[-1].start()
        work()
    except RuntimeError:
        work()  # The system has no more threads: those that were started do the work as well.
    except BaseException as error:
        failures.append(error)
    for other in others:
        _join(other, failures)
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(spans))]


def _join(thread: Thread, failures: list[BaseException]) -> None:
    """Wait for a thread whatever interrupts: none may read the artifact after it is closed."""
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:
            failures.append(error)


def _spans(wanted: ExpectedFile, full: bool) -> Iterable[_Span]:
    if not wanted.chunks or wanted.size is None:
        yield _Span(wanted, wanted.sha256, length=wanted.size, checksum=full)
        return
    if full:
        yield _Span(wanted, wanted.sha256, length=wanted.size, copy=False, checksum=True)
    for number, digest in enumerate(wanted.chunks):
        offset = number * CHUNK_BYTES
        yield _Span(wanted, digest, offset, min(CHUNK_BYTES, wanted.size - offset))


def _is_present(present: Container, span: _Span) -> bool:
    """Whether the sink's folder has these bytes, by their digest alone."""
    length = span.byte_count()
    try:
        with present.open(span.wanted.path) as file:
            if file.size < span.offset + length:
                return False
            file.seek(span.offset)
            uncounted = Tally(length, BYTES)
            sha256, _, _ = _stream(file, span.offset, length, None, uncounted, checksum=False)
    except (AotcError, OSError):
        return False
    return sha256 == span.sha256


def _check_span(container: Container, span: _Span, sink: Sink | None, tally: Tally) -> _Result:
    wanted = span.wanted
    try:
        file = container.open(wanted.path)
    except AotcError as refusal:
        if container.origin and not refusal.code.startswith("AOTC-G"):
            raise  # A registry that cannot be reached for one file cannot be for the others.
        return refusal, 0, False
    with file:
        if wanted.size is not None and file.size != wanted.size:
            found = _mismatch(wanted.path, f"{wanted.size} bytes", f"{file.size} bytes")
            return found, 0, False
        length = file.size if span.length is None else span.length
        stated = file.crc32 if span.checksum else None
        file.seek(span.offset)
        writer = sink.open(wanted.path) if sink is not None and span.copy else None
        try:
            sha256, crc32, count = _stream(
                file, span.offset, length, writer, tally, checksum=stated is not None
            )
        except OSError as error:
            what = "a file of the artifact cannot be read"
            return cannot_read(error, what, wanted.path), 0, False
        finally:
            if writer is not None:
                writer.close()
    problem: AotcError | None = None
    if sha256 != span.sha256:
        part = f" from byte {span.offset}" if wanted.chunks else ""
        problem = _mismatch(wanted.path, f"sha256 {span.sha256}{part}", f"sha256 {sha256}")
    elif stated is not None and crc32 != stated:
        what = "the file's CRC-32 is not the one that the archive states"
        problem = AotcError(
            "AOTC-G039", what, where=wanted.path, expected=f"{crc32:08x}", found=f"{stated:08x}"
        )
    return problem, count, False


def _stream(
    file: ArtifactFile,
    offset: int,
    length: int,
    writer: Writer | None,
    tally: Tally,
    *,
    checksum: bool,
) -> tuple[str, int, int]:
    """The sha256 (hex), the CRC-32 if `checksum`, and the number of bytes of a part of a file."""
    hasher = hashlib.sha256()
    crc32 = 0
    buffer = memoryview(bytearray(min(BUFFER_BYTES, length)))
    done = 0
    while done < length:
        stop_if_interrupted()
        count = file.readinto(buffer[: length - done])
        if not count:
            break
        hasher.update(buffer[:count])
        if checksum:
            crc32 = zlib.crc32(buffer[:count], crc32)
        if writer is not None:
            writer.write(offset + done, buffer[:count])
        done += count
        tally.add(count)
    return hasher.hexdigest(), crc32, done


def _mismatch(path: str, expected: str, found: str) -> AotcError:
    what = "the file's bytes are not the ones that were signed"
    return AotcError("AOTC-G005", what, where=path, expected=expected, found=found)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
