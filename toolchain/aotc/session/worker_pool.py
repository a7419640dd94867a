"""Jobs in sandboxed workers: a fresh process per job, limited in time and memory.

ONNX Runtime may crash, hang or allocate without limit on a bad model; here this becomes a reason
code.  A fresh process and a fixed relative working directory also make the bytes that ONNX Runtime
writes reproducible.  Requests and results are JSON files in the job's folder; arrays are in files
next to them.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from aotc.base.errors import AotcError
from aotc.base.files.folders import belongs_to_others, make_folder, state_folder
from aotc.base.files.names import file_name
from aotc.base.records import record, replace
from aotc.session.forkserver import ForkServer
from aotc.session.worker import NO_SPACE, NOT_WRITTEN, REQUEST, RESULT
from aotc.spec.codec import Json
from aotc.spec.profile import WorkerLimits

P = ParamSpec("P")
T = TypeVar("T")

LOG: Final = "log.txt"
"""What a job wrote, in its folder."""
_LIMITS = WorkerLimits()
# How many lines of a log a message shows.
_SHOWN_LINES = 5
# Exit status of a Python process that failed outside the job, and how its log begins then: native
# code may end the process with that status too, as libjpeg does where it meets no JPEG.
_PYTHON_FAILED = 1
_TRACEBACK = "Traceback"
# Environment variables that would change what ONNX Runtime computes or reads; the plugins of a
# build are those of the profile.
_REMOVED_VARIABLES = (
    "AOTC_PLUGINS",
    "ORT_LOAD_CONFIG_FROM_MODEL",
    "OMP_NUM_THREADS",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
)
_OF_THIS_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_MAX_LOGS: Final = 20
_MAX_LOG_BYTES: Final = 4 << 20


@record
class JobResult:
    """A job's return value and cost: seconds of wall time, peak resident bytes."""

    value: Json
    seconds: float
    peak_memory_bytes: int


class Workers:
    """Runs jobs in fresh processes within `limits`; use with `with`.

    `background_imports` are modules that jobs after the first will import.  `forked` is for a job
    that runs jobs of its own: their server is forked from it.
    """

    def __init__(
        self,
        limits: WorkerLimits = _LIMITS,
        background_imports: Sequence[str] = (),
        *,
        forked: bool = False,
        python: str | None = None,
    ) -> None:
        """`limits` bound each job, as `limits` of a profile does; default: a profile's own.

        `python` is the interpreter of another environment, with packages of its own.
        """
        self._limits = limits
        environment = _environment()
        if python is not None:
            environment = for_interpreter(environment)
        self._server = ForkServer(
            environment, background_imports, forked=forked, python=python or sys.executable
        )
        self._pool = ThreadPoolExecutor(limits.parallel)
        self._custom_ops: tuple[str, ...] = ()

    def __enter__(self) -> Workers:
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        # Jobs end with the server, so that none delays the exit.
        self._server.__exit__(*error)
        self._pool.shutdown(cancel_futures=True)

    @property
    def ended(self) -> bool:
        """Whether the process that starts jobs has ended, so that no more jobs can run."""
        return self._server.ended

    def registering(self, libraries: Iterable[Path]) -> Workers:
        """The same workers; every session of their jobs registers these custom operators."""
        others = copy.copy(self)
        others._custom_ops = tuple(str(path.absolute()) for path in libraries)
        return others

    def submit(
        self, function: Callable[P, T], *arguments: P.args, **keywords: P.kwargs
    ) -> Future[T]:
        """Call a function that runs a job in another thread."""
        return self._pool.submit(function, *arguments, **keywords)

    def within(self, seconds: float) -> Workers:
        """The same workers; each of their jobs may take so long."""
        others = copy.copy(self)
        others._limits = replace(self._limits, seconds=seconds)
        return others

    def run(self, job: str, request: Json, *, folder: Path, where: str = "") -> JobResult:
        """Run `module:function` on `request` in a process whose working directory is `folder`.

        The function takes the request and returns JSON-like data.  Raises the job's own
        `AotcError`, or AOTC-I013 (crash), AOTC-I014 (time), AOTC-I015 (memory), I018 (disk), I043
        (the operating system), R999 (our bug).
        """
        folder.mkdir(parents=True, exist_ok=True)
        call = {"job": job, "request": request, "custom_ops": self._custom_ops}
        (folder / REQUEST).write_text(json.dumps(call))
        (folder / RESULT).unlink(missing_ok=True)
        started = time.monotonic()
        limits = self._limits
        arguments = [limits.memory_bytes, limits.processes]
        status = self._server.run(folder, LOG, arguments, limits.seconds)
        if status == -signal.SIGKILL and (exited := self._server.failure_status()) is not None:
            raise AotcError(
                "AOTC-R999",
                f"the process that starts jobs ended with exit status {exited}",
                where=job.partition(":")[2],
                fix="See what 'python -P -m aotc.session.forkserver' says in this environment.",
            )
        if status is None:
            last = _last_lines(folder / LOG)
            raise AotcError(
                "AOTC-I014",
                f"{job.partition(':')[2]} ran longer than {limits.seconds:g} s",
                where=where,
                found=last + keep_log(folder / LOG),
            )
        return _result(folder, job, status, time.monotonic() - started, where, limits)

    def run_once(self, job: str, request: Json, *, folder: Path, where: str = "") -> JobResult:
        """The same; what it came to in `folder` before, which is of this request alone."""
        if (folder / RESULT).is_file():
            return _result(folder, job, 0, 0.0, where, self._limits)
        return self.run(job, request, folder=folder, where=where)


def for_interpreter(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for another interpreter: what they name here would come before its packages."""
    kept = {name: value for name, value in variables.items() if name not in _OF_THIS_INTERPRETER}
    return {**kept, "PYTHONNOUSERSITE": "1"}


def _environment() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in _REMOVED_VARIABLES}
    environment["PYTHONHASHSEED"] = "0"
    environment.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # A thread pool that is created at import would not survive the fork.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    if "PYTHONPATH" in environment:
        # Jobs run in another working directory.
        parts = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(part).resolve()) for part in parts)
    return environment


def _result(
    folder: Path, job: str, status: int, seconds: float, where: str, limits: WorkerLimits
) -> JobResult:
    path, name = folder / RESULT, job.partition(":")[2]
    if not path.exists():
        last = _last_lines(folder / LOG)
        if "bad_alloc" in last or "MemoryError" in last:
            raise _out_of_memory(name, limits, where)
        if status == -signal.SIGPROF:
            raise AotcError(
                "AOTC-I014",
                f"{name} ended by its alarm (one run took too much CPU time)",
                where=where,
                fix="Raise probe.run_seconds in the profile if the model is merely slow.",
            )
        if status == -signal.SIGKILL:
            # Only the system sends it: a timeout was handled above.
            raise AotcError(
                "AOTC-I015",
                f"{name} ended by SIGKILL, most likely because the machine ran out of memory",
                where=where,
                found=last,
                fix="Free memory on this machine (its kernel log names what it killed), lower "
                "limits.parallel in the profile, or lower the bounds of the dims.",
            )
        if status == NO_SPACE:
            raise AotcError("AOTC-I018", f"{name} could not write its result", where=where)
        if status == NOT_WRITTEN:
            raise AotcError(
                "AOTC-I043", f"{name} could not write its result", where=where, found=last
            )
        if status == _PYTHON_FAILED and _TRACEBACK in _log_text(folder / LOG):
            crash = RuntimeError(_log_text(folder / LOG))
            raise AotcError(
                "AOTC-R999", f"{name} ended by exit status 1", where=where, found=last
            ) from crash
        cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise AotcError(
            "AOTC-I013",
            f"{name} ended by {cause}",
            where=where,
            found=(last or "an empty log") + keep_log(folder / LOG),
        )
    document = json.loads(path.read_text())
    if "error" in document:
        error = document["error"]
        if error.get("internal"):
            *_, last = error["internal"].strip().splitlines()
            # `--debug` also prints the cause.
            crash = RuntimeError(error["internal"])
            raise AotcError("AOTC-R999", last, where=name) from crash
        if error["code"] == "AOTC-I015" and not error.get("found"):
            raise _out_of_memory(name, limits, where)
        refusal = _refusal(error, where)
        refusal.also = tuple(_refusal(other, where) for other in error.get("also", ()))
        raise refusal from (RuntimeError(error["trace"]) if "trace" in error else None)
    return JobResult(
        value=document["value"], seconds=seconds, peak_memory_bytes=document["peak_memory_bytes"]
    )


def _refusal(error: Json, where: str) -> AotcError:
    return AotcError(
        error["code"],
        error["what"],
        where=error.get("where", "") or where,
        expected=error.get("expected", ""),
        found=error.get("found", ""),
        fix=error.get("fix", ""),
    )


def _out_of_memory(name: str, limits: WorkerLimits, where: str) -> AotcError:
    return AotcError(
        "AOTC-I015", f"{name} needed more than {limits.memory_bytes} bytes", where=where
    )


def _log_text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _last_lines(path: Path) -> str:
    return " | ".join(_log_text(path).strip().splitlines()[-_SHOWN_LINES:])


def keep_log(log: Path) -> str:
    """Copy the log of a step to `aotc/logs` in the user's folder for states.

    Returns ` (log: PATH)` for a message, or "" if there is nothing to keep or it cannot be copied.
    The newest 20 logs remain; of a large log, its end.
    """
    try:
        state = state_folder()
        if state is None or not log.is_file() or not log.stat().st_size:
            return ""
        place = state / "aotc" / "logs"
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
    except OSError:
        return ""
    return f" (log: {kept})"
