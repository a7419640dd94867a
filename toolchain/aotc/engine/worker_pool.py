"""Jobs in sandboxed workers: one fresh process a job, bounded in time and memory.

ONNX Runtime may crash, hang or allocate without end on a bad model; what happens in the worker
becomes a reason code here.  A fresh process and a fixed relative working directory also make the
bytes that ONNX Runtime writes repeat.  Requests and results are JSON files in the job's folder;
arrays travel as files beside them.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from aotc.contract.codec.parsing import Json
from aotc.contract.profile import WorkerLimits
from aotc.engine.forkserver import ForkServer
from aotc.engine.kept_logs import kept_log
from aotc.engine.worker import NO_SPACE, NOT_WRITTEN, REQUEST, RESULT
from aotc.errors import AotcError
from aotc.records import record

P = ParamSpec("P")
T = TypeVar("T")

_LOG = "log.txt"
# Of a log, in a message.
_LAST_LINES = 5
# Exit status of a Python that failed outside of what a job may do.
_BUG = 1
# Environment that would change what ONNX Runtime computes or reads; a build's plugins are those of
# the profile.
_UNSET = (
    "AOTC_PLUGINS",
    "ORT_LOAD_CONFIG_FROM_MODEL",
    "OMP_NUM_THREADS",
    "PYTHONSTARTUP",
    "PYTHONWARNINGS",
)


@record
class JobResult:
    """What a job returned, and what it cost: seconds of wall time, peak resident bytes."""

    value: Json
    seconds: float
    peak_memory_bytes: int


class Workers:
    """Runs jobs in fresh processes within `limits`; use with `with`.

    `later` are modules that jobs after the first will import.  `forked` is for a job that has jobs
    of its own: their server is forked from it.
    """

    def __init__(
        self, limits: WorkerLimits, later: Sequence[str] = (), *, forked: bool = False
    ) -> None:
        self._limits = limits
        self._server = ForkServer(_environment(), later, forked=forked)
        self._pool = ThreadPoolExecutor(limits.parallel)

    def __enter__(self) -> Workers:
        self._server.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        # Jobs end with the server, so that nobody waits for those that nobody wants.
        self._server.__exit__(*error)
        self._pool.shutdown(cancel_futures=True)

    @property
    def gone(self) -> bool:
        """Whether the process that starts jobs has ended, so that no job can run any more."""
        return self._server.gone

    def submit(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Call a function that runs a job beside what the caller does."""
        return self._pool.submit(function, *arguments, **named)

    def run(self, job: str, request: Json, *, folder: Path, where: str = "") -> JobResult:
        """Run `module:function` on `request` in a process whose working directory is `folder`.

        The function gets the request and returns JSON-like data.  Raises the job's own
        `AotcError`, or AOTC-I013 (crash), AOTC-I014 (time), AOTC-I015 (memory), I018 (disk),
        I043 (the operating system), R999 (our bug).
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / REQUEST).write_text(json.dumps({"job": job, "request": request}))
        (folder / RESULT).unlink(missing_ok=True)
        started = time.monotonic()
        limits = self._limits
        arguments = [limits.memory_bytes, limits.processes]
        status = self._server.run(folder, _LOG, arguments, limits.seconds)
        if status == -signal.SIGKILL and (exited := self._server.failed()) is not None:
            raise AotcError(
                "AOTC-R999",
                f"the process that starts jobs ended by exit status {exited}",
                where=job.partition(":")[2],
                fix="See what 'python -P -m aotc.engine.forkserver' says in this environment.",
            )
        if status is None:
            last = _last_lines(folder / _LOG)
            raise AotcError(
                "AOTC-I014",
                f"{job.partition(':')[2]} ran longer than {limits.seconds:g} s",
                where=where,
                found=last + kept_log(folder / _LOG),
            )
        return _result(folder, job, status, time.monotonic() - started, where, limits)


def _environment() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k not in _UNSET}
    environment["PYTHONHASHSEED"] = "0"
    environment.setdefault("ORT_DISABLE_TELEMETRY", "1")
    # A pool of threads made at import would not survive the fork.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    if "PYTHONPATH" in environment:
        # Jobs run in another working directory.
        parts = environment["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(part).resolve()) for part in parts)
    return environment


def _result(
    folder: Path, job: str, status: int, seconds: float, where: str, limits: WorkerLimits
) -> JobResult:
    path = folder / RESULT
    if not path.exists():
        last = _last_lines(folder / _LOG)
        name = job.partition(":")[2]
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
            # Nobody but the system sends it: what runs too long was told of above.
            raise AotcError(
                "AOTC-I015",
                f"{name} ended by SIGKILL, most likely as the machine ran out of memory",
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
        if status == _BUG:
            crash = RuntimeError(_log_text(folder / _LOG))
            raise AotcError(
                "AOTC-R999", f"{name} ended by exit status 1", where=where, found=last
            ) from crash
        cause = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raise AotcError(
            "AOTC-I013",
            f"{name} ended by {cause}",
            where=where,
            found=(last or "an empty log") + kept_log(folder / _LOG),
        )
    document = json.loads(path.read_text())
    if "error" in document:
        error = document["error"]
        if error.get("internal"):
            *_, last = error["internal"].strip().splitlines()
            # `--debug` prints the cause as well.
            crash = RuntimeError(error["internal"])
            raise AotcError("AOTC-R999", last, where=job.partition(":")[2]) from crash
        if error["code"] == "AOTC-I015" and not error.get("found"):
            raise _out_of_memory(job.partition(":")[2], limits, where)
        raise AotcError(
            error["code"],
            error["what"],
            where=error.get("where", "") or where,
            expected=error.get("expected", ""),
            found=error.get("found", ""),
            fix=error.get("mend", ""),
        ) from (RuntimeError(error["trace"]) if "trace" in error else None)
    return JobResult(
        value=document["value"], seconds=seconds, peak_memory_bytes=document["peak_memory_bytes"]
    )


def _out_of_memory(name: str, limits: WorkerLimits, where: str) -> AotcError:
    return AotcError(
        "AOTC-I015", f"{name} needed more than {limits.memory_bytes} bytes", where=where
    )


def _log_text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _last_lines(path: Path) -> str:
    return " | ".join(_log_text(path).strip().splitlines()[-_LAST_LINES:])
