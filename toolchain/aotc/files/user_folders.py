"""A user's folders for files of programs: the XDG base directory specification."""

from __future__ import annotations

import os
from pathlib import Path


def config_folder() -> Path | None:
    """$XDG_CONFIG_HOME or ~/.config; None for a user without a home folder."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path | None:
    """$XDG_STATE_HOME or ~/.local/state; None for a user without a home folder."""
    return _folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path | None:
    """$XDG_CACHE_HOME or ~/.cache; None for a user without a home folder."""
    return _folder("XDG_CACHE_HOME", ".cache")


def _folder(variable: str, below_home: str) -> Path | None:
    stated = os.environ.get(variable, "")
    # The specification says that relative paths are ignored.
    if stated and Path(stated).is_absolute():
        return Path(stated)
    try:
        return Path.home() / below_home
    except RuntimeError:
        return None
