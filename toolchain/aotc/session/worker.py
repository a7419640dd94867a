"""Inside the sandboxed worker: set limits, run the job in its folder, write the result."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.files import failures
from aotc.base.progress import Count, Poll
from aotc.spec.codec import Json

REQUEST: Final = "request.json"
RESULT: Final = "result.json"
# Exit status of a worker that could not write its result: no space, or another cause.
NO_SPACE: Final = errno.ENOSPC
NOT_WRITTEN: Final = 74
_FILE: Final = "steps"


def work(memory_limit: int, process_limit: int) -> None:
    """In the worker: run the job in the working directory, and end the process."""
    text = _run_job(memory_limit, process_limit)
    temporary = Path(RESULT + ".part")
    try:
        temporary.write_text(text)
        temporary.rename(RESULT)
    except OSError as error:
        # The error cannot be written to a file, and unwinding would run native destructors.
        with contextlib.suppress(OSError):
            os.write(2, f"{error}\n".encode())
        os._exit(NO_SPACE if failures.is_full(error) else NOT_WRITTEN)
    # Tearing down sessions and numpy would only take time.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run_job(memory_limit: int, process_limit: int) -> str:
    """The job's result or failure, as JSON."""
    from importlib import import_module

    failure: Mapping[str, Json]
    try:
        _limit_memory(memory_limit)
        _limit_processes(process_limit)
        call = json.loads(Path(REQUEST).read_text())
        if call["custom_ops"]:
            from aotc.providers.ort import register_everywhere

            register_everywhere([Path(path) for path in call["custom_ops"]])
        module, _, name = call["job"].partition(":")
        function: Callable[[Json], Json] = getattr(import_module(module), name)
        value = function(call["request"])
        return json.dumps({"value": value, "peak_memory_bytes": peak_memory_bytes()})
    except AotcError as error:
        _, *others = error.every()
        failure = {**error.to_dict(), "also": [other.to_dict() for other in others]}
    except MemoryError:
        failure = {"code": "AOTC-I015", "what": "out of memory"}
    except Exception as error:
        failure = _failure(error)
    return json.dumps({"error": failure})


def _failure(error: Exception) -> dict[str, str]:
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return {"code": "AOTC-I015", "what": "out of memory"}
    import traceback

    text = "".join(traceback.format_exception(error))
    refused = failures.uncaught_refusal(error)
    if refused is None:
        return {"internal": text}
    return {"code": refused.code, "what": str(error), "fix": refused.fix, "trace": text}


def peak_memory_bytes() -> int:
    """Peak resident set size of this process in bytes.

    Without /proc from `ru_maxrss`, which may include that of the parent before exec.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def waited_seconds() -> float | None:
    """For how long this thread could have run, and waited for a CPU; None where that is unknown."""
    try:
        # Seconds on a CPU, seconds of waiting for one, and slices, as Linux counts them.
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return None


def _limit_memory(limit: int) -> None:
    # RLIMIT_DATA counts private writable memory; RLIMIT_AS would also count mapped weights.
    import resource

    if hasattr(resource, "RLIMIT_DATA"):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_processes(limit: int) -> None:
    # Counts all processes and threads of the user, which stops endless forking.
    import resource

    if hasattr(resource, "RLIMIT_NPROC"):
        soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        allowed = [value for value in (limit, soft, hard) if value != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_NPROC, (min(allowed), hard))


def tell_steps(done: int, total: int) -> None:
    """In the worker: `done` of `total` steps are done.  A count that cannot be kept is not told."""
    with contextlib.suppress(OSError):
        number = os.open(_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            # Of one length, so that a reader never finds two counts mixed.
            os.write(number, f"{done:>10}{total:>10}".encode())
        finally:
            os.close(number)


def steps_of(folder: Path, unit: str) -> Poll:
    """What the job in `folder` told last, in `unit`."""

    def poll() -> Count | None:
        try:
            text = (folder / _FILE).read_text()
            return Count(int(text[:10]), int(text[10:20]), unit)
        except (OSError, ValueError):
            return None

    return poll
