"""A job on another machine: its files come by their content, and so does what it leaves.

Whoever sends it has an `Order` made, and whoever runs it yields messages as they come:

    ("begin",)                its files are there, and its time begins
    ("log", lines)            what the job wrote
    ("piece", path, bytes)    the next bytes of a file below `out`
    ("shared", path, name)    a file below `out` that lies in the shared folder
    ("error", AotcError)      what ended the job
    ("end", Ended)            its value, and the digest of each file; always the last one

Large files are kept by their content in the build cache of the machine, so that a model of many
cells travels there once.  Small ones are not, so that no key stays there.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import IO, Any, Final

from aotc.base.errors import AotcError
from aotc.base.files.failures import refusal_of, system_message
from aotc.base.files.reading import file_sha256, open_plain
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import field, record
from aotc.fleet.executors.base import OUT, PERFORM, Job, call_of
from aotc.pipeline.cache import BuildCache
from aotc.session.worker_pool import LOG
from aotc.spec.codec import Json
from aotc.spec.profile import WorkerLimits
from aotc.tools.model_sandbox import Sandbox

PIECE_BYTES: Final = 16 << 20
# What is smaller is not kept on the machine; what is larger goes through a shared folder, if any.
_KEPT_BYTES: Final = 1 << 20
SHARED_BYTES: Final = 64 << 20
_CONTENT: Final = "content"
_TICK_SECONDS: Final = 0.1
# A digest, and what tells equal files apart.
_SHARED_NAME: Final = re.compile(r"[0-9a-f]{64}-[0-9a-f]{8}")

Message = tuple[Any, ...]
Fetch = Callable[[Any], bytes]


@record
class Carried:
    """A file of a job: where it lies below the job's files, and how its bytes are had.

    `pieces` are what the sender's `Fetch` takes; empty: it lies in the shared folder.
    """

    path: str
    sha256: str
    size: int
    pieces: tuple[Any, ...] = ()


@record
class Order:
    """A job as it is sent, with the files that it reads; `shared` is the shared folder, if any."""

    job: Job
    files: tuple[Carried, ...]
    memory_bytes: int | None = None
    shared: str = ""


@record
class Ended:
    """How a job ended: its value, and the digest of each file below `out`, by its path."""

    value: Json = None
    digests: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_bytes: int | None = None


# The side that sends.


def files_of(job: Job) -> dict[str, Path]:
    """The files that a job reads, those of folders too, by their paths to each other."""
    found = {}
    for name, path in job.files.items():
        if path.is_dir():
            for file in sorted(each for each in path.rglob("*") if each.is_file()):
                found[f"{name}/{file.relative_to(path).as_posix()}"] = file
        else:
            found[name] = path
    return found


def _below(folder: Path) -> list[Path]:
    """The files of a folder, at any depth; none behind links, and none where it is missing."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def pieces_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, some MiB at a time."""
    with open_plain(path) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _copy(source: Path, target: Path) -> None:
    with target.open("xb") as file:
        for piece in pieces_of(source):
            file.write(piece)


def share(path: Path, name: str, shared: Path) -> None:
    """Have a file in the shared folder by a name, which is its digest; raises AOTC-I173."""
    place = shared / name
    draft = shared / f".{name}-{secrets.token_hex(4)}"
    try:
        # What a machine was writing when it lost its power may be shorter.
        if place.is_file() and place.stat().st_size == path.stat().st_size:
            return
        _copy(path, draft)
        draft.replace(place)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise _unusable(error, shared) from None


class Received:
    """What a job left in `out`, as it comes: written below `folder`, verified at the end."""

    def __init__(self, folder: Path, shared: str = "") -> None:
        self.folder = folder
        self._shared = Path(shared)
        self._open: tuple[str, IO[bytes]] | None = None
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise refusal_of(error, str(folder)) from None

    def take(self, message: Message) -> None:
        """Write what a message `piece` or `shared` brings; raises AOTC-R054, I173 or I018."""
        kind, path, *rest = message
        place = self.folder / path
        try:
            self._make_room(path)
            if kind == "shared":
                self.close()
                # It is removed, and no other file of this machine is.
                if not _SHARED_NAME.fullmatch(rest[0]):
                    raise _other(path, "a name in the shared folder", rest[0])
                found = self._shared / rest[0]
                _copy(found, place)
                with suppress(OSError):
                    found.unlink()
                return
            if self._open is None or self._open[0] != path:
                self.close()
                self._open = (path, place.open("xb"))
            self._open[1].write(rest[0])
        except OSError as error:
            raise refusal_of(error, str(place)) from None

    def close(self) -> None:
        """Close the file that was written last; raises AOTC-I018."""
        last, self._open = self._open, None
        if last is not None:
            try:
                last[1].close()
            except OSError as error:
                raise refusal_of(error, str(self.folder / last[0])) from None

    def verify(self, digests: Mapping[str, str]) -> None:
        """Raise AOTC-R054 unless each file is there, with its digest, and no other."""
        self.close()
        found = {path.relative_to(self.folder).as_posix(): path for path in _below(self.folder)}
        for name in sorted({*found, *digests}):
            try:
                is_digest = file_sha256(found[name]) if name in found else "no file"
            except OSError as error:
                raise refusal_of(error, str(found[name])) from None
            if is_digest != digests.get(name):
                raise _other(name, digests.get(name, "no file"), is_digest)

    def _make_room(self, path: str) -> None:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
            raise _other(path, "a path below the job's folder", path)
        (self.folder / pure).parent.mkdir(parents=True, exist_ok=True)


def _other(path: str, expected: str, found: str) -> AotcError:
    return AotcError(
        "AOTC-R054",
        "a file of a job was changed on the way",
        where=path,
        expected=expected,
        found=found,
    )


def _unusable(error: OSError, shared: Path) -> AotcError:
    return AotcError(
        "AOTC-I173",
        "the shared folder cannot be used",
        where=str(shared),
        found=system_message(error),
    )


# The side that runs.


def run_order(order: Order, fetch: Fetch, sandbox: Sandbox) -> Iterator[Message]:
    """Run a job in a process and a folder of its own; the messages, as they come."""
    started = monotonic()
    with temporary_folder("fleet") as work:
        folder = work / "job"
        result = None
        try:
            files = _bring(order, work / "files", fetch)
            yield ("begin",)
            with ThreadPoolExecutor(1) as pool:
                future = pool.submit(
                    sandbox.run,
                    PERFORM,
                    call_of(order.job, files),
                    folder=folder,
                    where=order.job.name,
                    seconds=order.job.seconds,
                )
                told, done = 0, False
                while not done:
                    wait_for([future], timeout=_TICK_SECONDS)
                    done = future.done()
                    while lines := _lines(folder / LOG, told, all_of=done):
                        told += len(lines)
                        yield "log", lines.decode("utf-8", "replace").splitlines()
                result = future.result()
        except AotcError as error:
            yield "error", error
        except OSError as error:
            yield "error", refusal_of(error, order.job.name)
        value = result.value if result is not None else {"value": None, "memory_bytes": None}
        digests: dict[str, str] = {}
        try:
            for path in _below(folder / OUT):
                name = path.relative_to(folder / OUT).as_posix()
                digests[name] = file_sha256(path)
                yield from _sent(path, name, digests[name], order.shared)
        except AotcError as error:
            yield "error", error
        except OSError as error:
            yield "error", refusal_of(error, order.job.name)
        yield (
            "end",
            Ended(
                value=value["value"],
                digests=digests,
                seconds=monotonic() - started,
                peak_memory_bytes=value["memory_bytes"],
            ),
        )


def limits_for(memory_bytes: int | None) -> WorkerLimits:
    """Limits of the processes of jobs; memory where it is stated, else that of any build."""
    limits = WorkerLimits()
    return WorkerLimits(memory_bytes=memory_bytes or limits.memory_bytes, parallel=1)


def _sent(path: Path, name: str, sha256: str, shared: str) -> Iterator[Message]:
    if shared and path.stat().st_size > SHARED_BYTES:
        # It is removed when it was taken: another job may leave equal bytes.
        once = f"{sha256}-{secrets.token_hex(4)}"
        share(path, once, Path(shared))
        yield "shared", name, once
        return
    empty = True
    for piece in pieces_of(path):
        empty = False
        yield "piece", name, piece
    if empty:
        yield "piece", name, b""


def _lines(path: Path, start: int, *, all_of: bool) -> bytes:
    """Complete lines of a log from the byte `start`, as many as one message takes."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(PIECE_BYTES)
    except OSError:
        return b""
    # A line that is longer than that is told in parts.
    return data if all_of or len(data) == PIECE_BYTES else data[: data.rfind(b"\n") + 1]


def _bring(order: Order, folder: Path, fetch: Fetch) -> dict[str, Path]:
    """Lay out the job's files below `folder`; their paths by name."""
    cache = BuildCache()
    for file in order.files:
        place = folder / file.path
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = cache.key(_CONTENT, {"sha256": file.sha256})
        if file.size < _KEPT_BYTES:
            _write(file, place, fetch, order.shared)
            continue
        held = folder / ".held"
        held.mkdir()
        if cache.get(key, held) is None:
            _write(file, held / _CONTENT, fetch, order.shared)
            cache.put(key, held, (_CONTENT,), {"title": file.path})
        (held / _CONTENT).rename(place)
        held.rmdir()
    return {name: folder / name for name in order.job.files}


def _write(file: Carried, place: Path, fetch: Fetch, shared: str) -> None:
    """Write a file from its pieces, or from the shared folder; raises AOTC-R054 or I173."""
    digest = hashlib.sha256()
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        pieces: Iterator[bytes] = map(fetch, file.pieces)
        if file.size and not file.pieces:
            pieces = _shared_pieces(Path(shared), file.sha256)
        for piece in pieces:
            digest.update(piece)
            target.write(piece)
    if digest.hexdigest() != file.sha256:
        raise _other(file.path, file.sha256, digest.hexdigest())


def _shared_pieces(shared: Path, sha256: str) -> Iterator[bytes]:
    try:
        yield from pieces_of(shared / sha256)
    except OSError as error:
        raise _unusable(error, shared) from None
