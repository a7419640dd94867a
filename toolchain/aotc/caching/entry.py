"""One entry of the build cache: a folder whose files match its index; otherwise it is damaged.

    <entry>/index.json      what it contains (`CacheIndex`), as canonical JSON; mtime: creation
    <entry>/index.sha256    digest of index.json; mtime: the last use
    <entry>/files/          the files, and nothing else

The digest of the index detects damage only; the folder's permissions protect it from other users.
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
from aotc.caching.copying import Copy, copy_all, open_regular
from aotc.contract.codec.canonical import canonical_json
from aotc.contract.codec.parsing import Json, ParseError, decode, encode
from aotc.contract.codec.strict_json import MAX_JSON_BYTES, strict_json
from aotc.contract.results.cache_reports import CachedFile, CacheIndex, chunk_count
from aotc.records import replace

INDEX: Final = "index.json"
SEAL: Final = "index.sha256"
FILES: Final = "files"
# An entry's name: the digest of everything it was made from.
KEY: Final = re.compile(r"[0-9a-f]{64}")
# Errors that concern this process or its permissions, not the entry.
_NOT_DAMAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)


class Damaged(Exception):
    """An entry does not match its index, or has none."""


def read_index(entry: Path, key: str) -> CacheIndex:
    """The index of an entry; raises `Damaged`, or R014 if it cannot be read."""
    try:
        if {child.name for child in entry.iterdir()} != {INDEX, SEAL, FILES}:
            raise Damaged("files are missing or added next to the index")
        data = _read(entry / INDEX)
        if hashlib.sha256(data).hexdigest().encode() != _read(entry / SEAL):
            raise Damaged("the index has another digest")
        index = decode(CacheIndex, strict_json(data))
    except ParseError as error:
        raise Damaged(f"the index: {error}") from None
    except OSError as error:
        raise _damage_or_refusal(error, entry) from None
    if index.key != key:
        raise Damaged(f"the index belongs to {index.key}")
    return index


def touch(entry: Path) -> None:
    """Record that the entry is used now; a read-only cache stays unchanged."""
    now = time.time_ns()
    try:
        os.utime(entry / SEAL, ns=(now, now))
    except OSError:
        return


def copy_files(entry: Path, index: CacheIndex, into: Path) -> None:
    """Copy the files of an entry into a folder, and verify the copies.

    Raises `Damaged`, or R014 if a copy cannot be made; then `into` is unchanged.
    """
    made: list[Path] = []
    try:
        wanted = {file.path: file.size for file in index.files}
        if dict(_files_below(entry / FILES)) != wanted:
            raise Damaged("files are missing, added or of another size")
        copies = [
            Copy(entry / FILES / file.path, into / file.path, file.size) for file in index.files
        ]
        for file, chunks in zip(index.files, copy_all(copies, made), strict=True):
            if chunks != file.chunks:
                raise Damaged(f"{file.path} has another digest")
    except OSError as error:
        _undo(made)
        raise _damage_or_refusal(error, entry) from None
    except BaseException:
        _undo(made)
        raise


def draft_index(key: str, kind: str, document: Json, sizes: Mapping[str, int]) -> CacheIndex:
    """The index of a future entry, without digests; raises ValueError for what no entry can hold.

    What is written must be readable, so keys, kinds, paths and the document are checked in the
    same way as when they are read.
    """
    if document is None:
        raise ValueError("no document: None means that there is no entry")
    unknown = "0" * 64
    index = CacheIndex(
        key=key,
        kind=kind,
        document=document,
        files=tuple(
            CachedFile(path=path, size=size, chunks=(unknown,) * chunk_count(size))
            for path, size in sizes.items()
        ),
    )
    return decode(CacheIndex, strict_json(canonical_json(encode(index, full=True))))


def write_entry(entry: Path, index: CacheIndex, folder: Path, digests: Mapping[str, str]) -> None:
    """Write an entry: copies of the index's files from `folder`, and the index with digests.

    Raises R014 if a file cannot be read or written.
    """
    files = entry / FILES
    copies = [
        Copy(folder / file.path, files / file.path, file.size, digests.get(file.path, ""))
        for file in index.files
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
        touch(entry)  # More precise than the file system's own clock.
    except OSError as error:
        raise unusable(error, entry) from None


def _files_below(folder: Path, above: str = "") -> Iterator[tuple[str, int]]:
    """Paths and sizes of all files; raises `Damaged` for anything but files and folders."""
    with os.scandir(folder) as found:
        for child in found:
            path = f"{above}{child.name}"
            if child.is_dir(follow_symlinks=False):
                yield from _files_below(folder / child.name, f"{path}/")
            elif child.is_file(follow_symlinks=False):
                yield path, child.stat(follow_symlinks=False).st_size
            else:
                raise Damaged(f"{path} is not a regular file")


def _read(path: Path) -> bytes:
    descriptor, size = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(min(size, MAX_JSON_BYTES) + 1)


def _damage_or_refusal(error: OSError, entry: Path) -> Exception:
    """`Damaged`, or the refusal R014 if a failed read does not say that the entry is damaged."""
    if error.errno in _NOT_DAMAGE:
        return unusable(error, entry)
    name = Path(error.filename).name if error.filename else "a file"
    return Damaged(f"{name}: {error.strerror}")


def _undo(made: list[Path]) -> None:
    for path in reversed(made):
        with suppress(OSError):  # A folder may contain something else by now.
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
