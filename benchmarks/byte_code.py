"""Byte code of what fresh processes import, as pip leaves it: else each compiles it anew."""

from __future__ import annotations

import compileall
from importlib.util import find_spec


def compile_packages(*names: str) -> None:
    """Compile the packages of these names that are installed; an up-to-date one costs nothing."""
    for name in names:
        spec = find_spec(name)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            # Where it may not be written, it was compiled by whoever may.
            compileall.compile_dir(folder, quiet=2)
