"""Work in a fresh process, whose records come back one by one: `FUNCTION REQUEST` as arguments.

FUNCTION is a generator `module:name` of this package; REQUEST is JSON.  A record that was printed
stays, whatever happens to the process later.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from benchmarks.fresh import ROOT

Record = dict[str, Any]
# With less than this nothing is started.
_LEAST_SECONDS = 5
_deadline = math.inf


def end_after(seconds: float) -> None:
    """End every process of this run, whatever its own limit, after `seconds` from now."""
    global _deadline
    _deadline = time.monotonic() + seconds


class OutOfTimeError(Exception):
    """The run's time is over; what is missing is for the next one."""


class ChildFailedError(Exception):
    """A process that ended badly or took too long; the message has its last line."""


def records(
    function: str, request: Record, *, seconds: float, environment: dict[str, str] | None = None
) -> Iterator[Record]:
    """The records of a fresh process, as they come.

    Raises ChildFailedError after them, and OutOfTimeError at the end of the run's time.
    """
    left = _deadline - time.monotonic()
    if left < _LEAST_SECONDS:
        raise OutOfTimeError
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.child", function, json.dumps(request)],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(min(seconds, left), end)
    timer.start()
    last: Record = {}
    try:
        assert child.stdout is not None
        for line in child.stdout:
            last = json.loads(line)
            if "failed" not in last:
                yield last
        child.wait()
    finally:
        timer.cancel()
        child.kill()
        child.wait()
    if late.is_set() and left < seconds:
        raise OutOfTimeError
    if late.is_set():
        raise ChildFailedError(f"{function}: ended after {seconds:.0f} s")
    if child.returncode or "failed" in last:
        raise ChildFailedError(last.get("failed", f"{function}: status {child.returncode}"))


def one_record(
    function: str, request: Record, *, seconds: float, environment: dict[str, str] | None = None
) -> Record:
    """The only record of a fresh process."""
    (found,) = records(function, request, seconds=seconds, environment=environment)
    return found


def main() -> int:
    """Print the records of the function that the command line names, or how it failed."""
    # Libraries print to standard output: only records may go into the pipe.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, name = sys.argv[1].partition(":")
    try:
        for found in getattr(import_module(f"benchmarks.gpu.{module}"), name)(
            json.loads(sys.argv[2])
        ):
            print(json.dumps(found), file=answers, flush=True)
    except Exception as error:
        import traceback

        traceback.print_exc()
        text = f"{type(error).__name__}: {error}".splitlines()[0][:600]
        print(json.dumps({"failed": text}), file=answers, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Libraries of GPUs may crash when an interpreter ends: the records are out.
    os._exit(status)
