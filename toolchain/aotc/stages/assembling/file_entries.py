"""Entries of payload files: size, digest, and the chunk digests of large files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aotc.contract.manifest.payload_files import CHUNK_BYTES, FileEntry, Role
from aotc.engine.file_digest import file_sha256


def file_entry(
    path: Path, root: Path, role: Role, told: Callable[[int], None] = lambda count: None
) -> FileEntry:
    """Size and digests of a file; the chunks of a large one are hashed in parallel.

    `told` is called with the size of each block of it, once.
    """
    size = path.stat().st_size
    chunks: tuple[str, ...] = ()
    if size > CHUNK_BYTES:
        with ThreadPoolExecutor(2) as pool:
            complete = pool.submit(file_sha256, path, told=told)
            starts = range(0, size, CHUNK_BYTES)
            chunks = tuple(pool.map(lambda start: file_sha256(path, start, CHUNK_BYTES), starts))
            digest = complete.result()
    else:
        digest = file_sha256(path, told=told)
    return FileEntry(
        path=path.relative_to(root).as_posix(),
        size=size,
        sha256=digest,
        role=role,
        chunks=chunks,
    )
