"""Jobs that executors of a fleet run in tests: functions of JSON, each in a process of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def held(request: Any) -> Any:
    """Write down that it runs, for as long as two more need to begin; what it ran on, and when."""
    began = time.monotonic()
    place = Path(request["folder"])
    (place / f"{os.getpid()}").touch()
    until = began + request["seconds"]
    while time.monotonic() < until and len(list(place.iterdir())) < request.get("until", 1 << 30):
        time.sleep(0.005)
    cores = sorted(os.sched_getaffinity(0))
    return {"began": began, "ended": time.monotonic(), "cores": cores, "pid": os.getpid()}


def leave(request: Any) -> Any:
    """Leave what a file says in the folder that comes back."""
    Path("out/said.txt").write_text(Path(request["file"]).read_text())
    return {"name": Path(request["file"]).name, "beside": request["plain"]}


def abort(request: Any) -> Any:
    """End the process as a crash does."""
    print("about to crash", flush=True)
    os.abort()


def hungry(request: Any) -> Any:
    """Touch so many bytes."""
    return len(bytearray(os.urandom(1)) * request["bytes"])
