"""Keeps logs of steps that crashed or hung, for inspection after the build."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from aotc.files.folders import belongs_to_others, make_folder
from aotc.files.names import file_name

_MAX_LOGS: Final = 20
_MAX_LOG_BYTES: Final = 4 << 20


def log_folder() -> Path:
    """`$XDG_STATE_HOME/aotc/logs`, by default `~/.local/state/aotc/logs`."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "aotc" / "logs"


def keep_log(log: Path) -> str:
    """Copy the log of a step to the user's log folder.

    Returns ` (log: PATH)` for a message, or "" if there is nothing to keep or it cannot be copied.
    The newest 20 logs remain; of a large log, its end.
    """
    try:
        if not log.is_file() or not log.stat().st_size:
            return ""
        place = log_folder()
        make_folder(place)
        if belongs_to_others(place) or belongs_to_others(place.parent):
            return ""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{log.parent.name}"
        kept = place / file_name(name, ".log")
        with log.open("rb") as source, kept.open("wb") as target:
            source.seek(max(0, log.stat().st_size - _MAX_LOG_BYTES))
            shutil.copyfileobj(source, target)
        for old in sorted(place.glob("*.log"), key=lambda path: path.stat().st_mtime)[:-_MAX_LOGS]:
            with contextlib.suppress(OSError):
                old.unlink()
    except (OSError, RuntimeError):
        return ""
    return f" (log: {kept})"
