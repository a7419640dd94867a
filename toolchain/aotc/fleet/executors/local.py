"""The executor `local`: worker processes of this machine, as many as cores and memory allow.

All are forked from one server that imported what builds need.  A job runs on cores of its own, so
that builds at the same time do not share any, and ONNX Runtime takes one thread for each.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import ClassVar, Final, Self

from aotc.base.errors import AotcError
from aotc.base.files.failures import refusal_of
from aotc.base.files.reading import read_at_most
from aotc.base.files.work_folders import temporary_folder
from aotc.base.records import record, replace
from aotc.fleet.executors.base import OUT, PERFORM, Executor, Job, JobOutcome, Log, call_of
from aotc.fleet.hosts import describe_host, unserved
from aotc.host.cpu import usable_processors
from aotc.session.worker_pool import LOG
from aotc.spec.fleet import Needs, WorkerDescription
from aotc.spec.profile import WorkerLimits
from aotc.tools.model_sandbox import Sandbox

# Of the memory that is free at the start; the rest is for what was not foreseen.
_SHARE: Final = 0.9
_MAX_JOBS: Final = 64
_SHOWN_LINES: Final = 20
_MAX_LOG_BYTES: Final = 16 << 20


@record
class _Running:
    """A job that runs, and what it holds meanwhile."""

    job: Job
    cores: tuple[int, ...]
    memory_bytes: int
    gpus: float


class LocalExecutor(Executor):
    """Runs jobs in processes of this machine."""

    name: ClassVar[str] = "local"
    is_here: ClassVar[bool] = True

    def __init__(self, address: str = "", jobs: int | None = None) -> None:
        """`address` is empty; raises AOTC-I027."""
        if address:
            raise AotcError("AOTC-I027", "'local' has no address", where=f"--on local://{address}")
        super().__init__(address, jobs)
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._worker = describe_host(platform.node() or self.name)
            self._folder = stack.enter_context(temporary_folder("fleet"))
            memory = self._worker.serves.memory_bytes
            limits = WorkerLimits(
                memory_bytes=memory or WorkerLimits().memory_bytes,
                parallel=min(self._most(), _MAX_JOBS),
            )
            self._sandbox = stack.enter_context(Sandbox(limits))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def workers(self) -> tuple[WorkerDescription, ...]:
        """This machine."""
        return (self._worker,)

    def refusal(self, needs: Needs) -> AotcError | None:
        """Why this machine does not serve `needs`."""
        return unserved(needs, self._worker)

    def ask(self, job: Job) -> Mapping[str, JobOutcome]:
        """What becomes of the job in a process of its own."""
        return {self._worker.name: self._perform(job, ())}

    def run(self, jobs: Sequence[Job], log: Log | None = None) -> Generator[JobOutcome, None, None]:
        """What became of each job; see `Executor.run`."""
        waiting, running = list(jobs), dict[Future[JobOutcome], _Running]()
        free = list(usable_processors())
        memory = self._worker.serves.memory_bytes
        left = math.inf if memory is None else memory * _SHARE
        # Builds run on the first GPU that they see, so that more of them do not help.
        gpus = min(1.0, self._worker.serves.num_gpus)
        most = self._most()
        with ThreadPoolExecutor(most) as pool:
            try:
                while waiting or running:
                    for job in list(waiting):
                        held = self._room(job, free, left, gpus, alone=not running)
                        if held is None or len(running) == most:
                            continue
                        waiting.remove(job)
                        free = [core for core in free if core not in held.cores]
                        left, gpus = left - held.memory_bytes, gpus - held.gpus
                        cores = held.cores if most > 1 else ()
                        running[pool.submit(self._perform, job, cores)] = held
                        if self.begun is not None:
                            self.begun(job)
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        held, outcome = running.pop(future), future.result()
                        free = sorted((*free, *held.cores))
                        left, gpus = left + held.memory_bytes, gpus + held.gpus
                        if log is not None:
                            _tell(outcome, log)
                        yield outcome
                        if outcome.folder is not None:
                            shutil.rmtree(outcome.folder.parent, ignore_errors=True)
            finally:
                if running:
                    # Their processes end with the server.
                    self._sandbox.__exit__(None, None, None)

    def _most(self) -> int:
        processors = len(usable_processors())
        return min(self.jobs or processors, _MAX_JOBS)

    def _room(
        self, job: Job, free: Sequence[int], left: float, gpus: float, *, alone: bool
    ) -> _Running | None:
        """What the job would hold; None: it has to wait.  A job that is alone need not."""
        processors = len(usable_processors())
        # With fewer jobs than cores, each gets its part of them.
        share = processors // self._most() if self.jobs else 1
        wanted = min(processors, max(math.ceil(job.needs.cpus), share))
        needed = job.needs.memory_bytes or job.memory_bytes or 0
        crowded = len(free) < wanted or job.needs.num_gpus > gpus or needed > left
        if crowded and not alone:
            return None
        return _Running(
            job=job, cores=tuple(free[:wanted]), memory_bytes=needed, gpus=job.needs.num_gpus
        )

    def _perform(self, job: Job, cores: Sequence[int]) -> JobOutcome:
        """Run one job in a process and a folder of its own."""
        started = monotonic()
        self._count += 1
        folder = self._folder / f"{self._count}-{os.urandom(4).hex()}"
        outcome = JobOutcome(job=job, worker=self._worker)
        try:
            result = self._sandbox.run(
                PERFORM,
                call_of(job, job.files, cores),
                folder=folder,
                where=job.name,
                seconds=job.seconds,
            )
            outcome = replace(
                outcome,
                value=result.value["value"],
                peak_memory_bytes=result.value["memory_bytes"],
                folder=folder / OUT,
            )
        except AotcError as error:
            outcome = replace(outcome, error=error, folder=folder / OUT)
        except OSError as error:
            outcome = replace(outcome, error=refusal_of(error, job.name))
            shutil.rmtree(folder, ignore_errors=True)
        return replace(outcome, seconds=monotonic() - started)


def _tell(outcome: JobOutcome, log: Log) -> None:
    """What the job wrote, of one that was ended by an error."""
    if outcome.error is None or outcome.folder is None:
        return
    with suppress(OSError):
        path: Path = outcome.folder.parent / LOG
        text = read_at_most(path, _MAX_LOG_BYTES).decode("utf-8", "replace")
        for line in text.splitlines()[-_SHOWN_LINES:]:
            log(outcome.job.name, line)
