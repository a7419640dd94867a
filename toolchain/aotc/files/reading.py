"""Reading files of others: never more of one than its reader takes."""

from __future__ import annotations

from pathlib import Path


def read_at_most(path: Path, limit: int) -> bytes:
    """A file's bytes, or the first `limit` and one more, which its reader refuses.

    Raises OSError.
    """
    with path.open("rb") as file:
        return file.read(limit + 1)
