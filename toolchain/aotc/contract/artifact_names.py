"""How an artifact is named: by a path, or by `sha256-<id>`, which is an entry of a store.

`sha256-` and 64 digits is always an id, whatever lies in the working directory; a folder of that
name is `./sha256-…`.  Any other word is a path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ENTRY: Final = "sha256-"
_NAME: Final = re.compile(rf"{ENTRY}([0-9a-f]{{64}})")


def id_in(word: str | Path) -> str | None:
    """The id that a word states, and None for a path."""
    found = _NAME.fullmatch(str(word))
    return found[1] if found else None


def artifact_path(word: str | Path) -> Path:
    """A word as a path that keeps what it means: only an id looks like one.

    `Path` takes away what makes `./sha256-…` and `sha256-…/` paths.
    """
    path = Path(word)
    if id_in(path) is not None and id_in(word) is None:
        return path.absolute()
    return path
