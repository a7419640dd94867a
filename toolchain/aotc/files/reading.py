"""Reading untrusted files with a limit on their size."""

from __future__ import annotations

from pathlib import Path


def read_at_most(path: Path, limit: int) -> bytes:
    """A file's bytes, at most `limit` and one more, so that the caller can refuse a larger file.

    Raises OSError.
    """
    with path.open("rb") as file:
        return file.read(limit + 1)
