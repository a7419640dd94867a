"""The bytes of files: those of a whole folder, and one flipped bit."""

from __future__ import annotations

from pathlib import Path


def contents_of(folder: Path) -> dict[str, bytes]:
    """The bytes of all files in a folder and its subfolders by relative path, sorted by it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip_bit(path: Path, at: int | None = None) -> None:
    """Flip the lowest bit of a file's byte `at`, an index, or of the middle one."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)
