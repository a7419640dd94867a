"""One entry of the build cache: a folder whose files are as its index says, or it is damaged.

    <entry>/index.json      what it holds (`CacheIndex`), as canonical JSON; its time: creation
    <entry>/index.sha256    digest of index.json; its time: the last use
    <entry>/files/          the files, and nothing else

The digest of the index finds damage alone: that nobody else wrote it is the folder's matter.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from aotc.caching.cache_folder import unusable
from aotc.caching.copying import Copy, copy_all, open_plain
from aotc.contract.codec.canonical import canonical_json
from aotc.contract.codec.parsing import (
    MAX_JSON_BYTES,
    Json,
    ParseError,
    decode,
    encode,
    strict_json,
)
from aotc.contract.results.cache_reports import CachedFile, CacheIndex, chunks_of
from aotc.records import replace

INDEX: Final = "index.json"
SEAL: Final = "index.sha256"
FILES: Final = "files"
# Its name: the digest of all that it was made from.
KEY: Final = re.compile(r"[0-9a-f]{64}")
# They say something of this process or of its rights, and nothing of the entry.
_NO_DAMAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)


class Damaged(Exception):
    """An entry is not what its index says, or has none."""


def read_index(entry: Path, key: str) -> CacheIndex:
    """The index of an entry; raises `Damaged`, or R014 where it may not be read."""
    try:
        if {each.name for each in entry.iterdir()} != {INDEX, SEAL, FILES}:
            raise Damaged("files are missing or added beside the index")
        data = _read(entry / INDEX)
        if hashlib.sha256(data).hexdigest().encode() != _read(entry / SEAL):
            raise Damaged("the index has another digest")
        index = decode(CacheIndex, strict_json(data))
    except ParseError as error:
        raise Damaged(f"the index: {error}") from None
    except OSError as error:
        raise _blame(error, entry) from None
    if index.key != key:
        raise Damaged(f"the index is of {index.key}")
    return index


def touch(entry: Path) -> None:
    """Note that the entry is used now; a cache that may only be read is left as it is."""
    now = time.time_ns()
    try:
        os.utime(entry / SEAL, ns=(now, now))
    except OSError:
        return


def take(entry: Path, index: CacheIndex, into: Path) -> None:
    """Copy the files of an entry into a folder, and verify the copies.

    Raises `Damaged`, or R014 where a copy cannot be made; then `into` is as it was.
    """
    made: list[Path] = []
    try:
        wanted = {each.path: each.size for each in index.files}
        if dict(_listed(entry / FILES)) != wanted:
            raise Damaged("files are missing, added or of another size")
        copies = [
            Copy(entry / FILES / each.path, into / each.path, each.size) for each in index.files
        ]
        for file, chunks in zip(index.files, copy_all(copies, made), strict=True):
            if chunks != file.chunks:
                raise Damaged(f"{file.path} has another digest")
    except OSError as error:
        _undo(made)
        raise _blame(error, entry) from None
    except BaseException:
        _undo(made)
        raise


def plan(key: str, kind: str, document: Json, sizes: Mapping[str, int]) -> CacheIndex:
    """The index of an entry to be, with no digests yet; raises ValueError for what none can hold.

    What is written must be readable: keys, kinds, paths and the document are checked as they
    are read.
    """
    if document is None:
        raise ValueError("no document: None says that there is no entry")
    unknown = "0" * 64
    index = CacheIndex(
        key=key,
        kind=kind,
        document=document,
        files=tuple(
            CachedFile(path=path, size=size, chunks=(unknown,) * chunks_of(size))
            for path, size in sizes.items()
        ),
    )
    return decode(CacheIndex, strict_json(canonical_json(encode(index, full=True))))


def fill(entry: Path, index: CacheIndex, folder: Path, digests: Mapping[str, str]) -> None:
    """Write an entry: copies of the index's files, from `folder`, and the index with digests.

    Raises R014 where a file cannot be read or written.
    """
    files = entry / FILES
    copies = [
        Copy(folder / each.path, files / each.path, each.size, digests.get(each.path, ""))
        for each in index.files
    ]
    try:
        files.mkdir(mode=0o700)
        hashed = copy_all(copies, [])
        stored = tuple(
            replace(file, chunks=chunks) for file, chunks in zip(index.files, hashed, strict=True)
        )
        data = canonical_json(encode(replace(index, files=stored), full=True))
        (entry / INDEX).write_bytes(data)
        (entry / SEAL).write_bytes(hashlib.sha256(data).hexdigest().encode())
        touch(entry)  # More exactly than the file system's own clock.
    except OSError as error:
        raise unusable(error, entry) from None


def _listed(folder: Path, above: str = "") -> Iterator[tuple[str, int]]:
    """Paths and sizes of all files; raises `Damaged` for what is neither file nor folder."""
    with os.scandir(folder) as found:
        for each in found:
            path = f"{above}{each.name}"
            if each.is_dir(follow_symlinks=False):
                yield from _listed(folder / each.name, f"{path}/")
            elif each.is_file(follow_symlinks=False):
                yield path, each.stat(follow_symlinks=False).st_size
            else:
                raise Damaged(f"{path} is no plain file")


def _read(path: Path) -> bytes:
    descriptor, size = open_plain(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(min(size, MAX_JSON_BYTES) + 1)


def _blame(error: OSError, entry: Path) -> Exception:
    """Whether a failed read says that the entry is damaged, or that it may not be read."""
    if error.errno in _NO_DAMAGE:
        return unusable(error, entry)
    name = Path(error.filename).name if error.filename else "a file"
    return Damaged(f"{name}: {error.strerror}")


def _undo(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):  # Something else may be in a folder by now.
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
