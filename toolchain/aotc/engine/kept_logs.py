"""Logs of steps that crashed or hung, kept for those who look into it after the build is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Final

from aotc.files.folders import belongs_to_others, make_folder
from aotc.files.names import file_name

_MOST: Final = 20
_MOST_BYTES: Final = 4 << 20


def folder() -> Path:
    """`$XDG_STATE_HOME/aotc/logs`, else `~/.local/state/aotc/logs`."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "aotc" / "logs"


def kept_log(log: Path) -> str:
    """Copy the log of a step to the user's folder of logs: ` (log: PATH)`, empty where it cannot.

    The newest 20 logs stay; of a large one the end.
    """
    try:
        if not log.is_file() or not log.stat().st_size:
            return ""
        place = folder()
        make_folder(place)
        if belongs_to_others(place) or belongs_to_others(place.parent):
            return ""
        told = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{log.parent.name}"
        kept = place / file_name(told, ".log")
        with log.open("rb") as source, kept.open("wb") as target:
            source.seek(max(0, log.stat().st_size - _MOST_BYTES))
            shutil.copyfileobj(source, target)
        for old in sorted(place.glob("*.log"), key=lambda path: path.stat().st_mtime)[:-_MOST]:
            with contextlib.suppress(OSError):
                old.unlink()
    except (OSError, RuntimeError):
        return ""
    return f" (log: {kept})"
