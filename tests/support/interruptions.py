"""Calls that are interrupted as by a signal's handler: at a line, or at a step within a line."""

from __future__ import annotations

import dis
import gc
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import aotc

# After these, the interpreter looks for signals (3.11 to 3.14).
LOOKS = frozenset(
    opcode
    for name, opcode in dis.opmap.items()
    if name in ("RESUME", "JUMP_BACKWARD") or name.startswith("CALL")
)
_OURS = str(Path(aotc.__file__).parent) + os.sep


class Interruption(Exception):
    """What a handler raises, as the time-out of a task queue is."""


class Stop(BaseException):
    """The same, as KeyboardInterrupt is."""


def interrupted(
    call: Callable[[], Any], place: int | None, error: type[BaseException], *, steps: bool = False
) -> int:
    """Call, and raise `error` at a line of ours, the `place`th that this thread comes to.

    Handlers run in the main thread, so that only its lines count; with `steps`, all the places
    where it looks for signals.  Returns their number, if the call ended before it (`place` None:
    always).
    """
    seen = 0
    wanted = "opcode" if steps else "line"
    before_that: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        frame.f_trace_opcodes = steps
        if event == wanted:
            if steps:
                code = frame.f_code.co_code
                last = before_that.get(frame)
                before_that[frame] = frame.f_lasti
                if last is None or code[last] not in LOOKS:
                    return trace
            seen += 1
            if seen == place:
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        before_that.clear()
    return seen


def opened() -> dict[str, list[str]]:
    """What this process has open: files, threads, children, and what is in the temporary folder."""
    gc.collect()
    files = []
    for number in Path("/proc/self/fd").iterdir():
        try:
            files.append(str(number.readlink()))
        except FileNotFoundError:
            continue  # The one that lists them.
    return {
        "files": sorted(files),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "temporary": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
    }
