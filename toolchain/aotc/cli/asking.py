"""Questions on a terminal: what a command needs and was not given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aotc.cli.render import write_lines
from aotc.errors import AotcError

# Listed, and how far below the folder they are looked for.
_MAX_MODELS: Final = 20
_MAX_DEPTH: Final = 3


def chosen_model(folder: Path) -> Path:
    """The model that the user names or chooses among those in `folder`.

    Raises AOTC-I070 if there is no terminal to ask on, or no answer.
    """
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise AotcError("AOTC-I070", "there is no model, and no terminal to ask for it on")
    found = sorted(_models(folder))[:_MAX_MODELS]
    offer = f"a number, or a path [{found[0]}]" if found else "its path"
    rows = (f"{number:>3}  {path}" for number, path in enumerate(found, 1))
    write_lines([*rows, f"Model ({offer}):"], file=sys.stderr)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    stated = answer.strip()
    if stated.isascii() and stated.isdigit() and 0 < int(stated) <= len(found):
        return found[int(stated) - 1]
    if stated:
        return Path(stated)
    # An empty line takes the first one; the end of the input takes nothing.
    if answer and found:
        return found[0]
    raise AotcError("AOTC-I070", "no model was named")


def _models(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        depth = len(here.relative_to(folder).parts)
        # An artifact holds models, which are not the user's.
        folders[:] = [
            name
            for name in folders
            if depth < _MAX_DEPTH and not name.startswith(".") and not name.endswith(".aotc")
        ]
        yield from (here / name for name in files if name.endswith(".onnx"))
