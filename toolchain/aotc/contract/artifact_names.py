"""How an artifact is named: by a path, or by `sha256-<id>`, which names an entry of a store.

`sha256-` and 64 hexadecimal digits are always an id, even if the working directory has a folder of
that name; such a folder is named `./sha256-…`.  Everything else is a path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ID_PREFIX: Final = "sha256-"
_NAME: Final = re.compile(rf"{ID_PREFIX}([0-9a-f]{{64}})")


def stated_id(name: str | Path) -> str | None:
    """The id (64 hexadecimal digits) if `name` is `sha256-<id>`, or None if it is a path."""
    match = _NAME.fullmatch(str(name))
    return match[1] if match else None


def artifact_path(name: str | Path) -> Path:
    """`name` as a path that still is an id or a path, whichever `name` was.

    `Path` would turn the paths `./sha256-…` and `sha256-…/` into an id, so they become absolute.
    """
    path = Path(name)
    if stated_id(path) is not None and stated_id(name) is None:
        return path.absolute()
    return path
