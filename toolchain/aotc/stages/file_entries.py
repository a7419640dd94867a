"""Entries of payload files: size, digest, and digests of the chunks of large ones."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from aotc.contract.manifest import CHUNK_BYTES, FileEntry

_BLOCK = 1 << 20


def file_entry(
    path: Path, root: Path, role: Literal["package", "model", "weights", "fixture"]
) -> FileEntry:
    """Size and digests of a file; the chunks of a large one are digested beside the whole."""
    size = path.stat().st_size
    chunks: tuple[str, ...] = ()
    if size > CHUNK_BYTES:
        with ThreadPoolExecutor(2) as pool:
            whole = pool.submit(_sha256, path, 0, size)
            starts = range(0, size, CHUNK_BYTES)
            chunks = tuple(pool.map(lambda start: _sha256(path, start, CHUNK_BYTES), starts))
            digest = whole.result()
    else:
        digest = _sha256(path, 0, size)
    return FileEntry(
        path=path.relative_to(root).as_posix(),
        size=size,
        sha256=digest,
        role=role,
        chunks=chunks,
    )


def _sha256(path: Path, start: int, length: int) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while length and (count := file.readinto(buffer[: min(length, _BLOCK)])):
            digest.update(buffer[:count])
            length -= count
    return digest.hexdigest()
