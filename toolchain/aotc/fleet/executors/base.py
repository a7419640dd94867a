"""What an executor is: jobs in, what became of each out, as soon as it is known.

A job is a call of a function `module:function` with JSON, in a process and a working folder of its
own.  The files that it reads are named in it, so that an executor may bring them to another
machine by their content; what it leaves in the folder `out` of its working folder comes back.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.base.registry import load
from aotc.session.worker import peak_memory_bytes
from aotc.spec.codec import Json
from aotc.spec.fleet import Needs, WorkerDescription

PERFORM: Final = "aotc.fleet.executors.base:perform"
OUT: Final = "out"
"""The folder of a job's working folder whose content comes back."""

Log = Callable[[str, str], None]
"""What takes a line of a job's log: the job's name, and the line."""


@record
class Job:
    """A call of `function` with `request`.

    `files` are what the job reads, files or folders, by the relative path that they have to each
    other wherever the job runs: a model's external data stays beside it.  In the process of the job
    each text `{file:PATH}` in `request` is the path of that file there.  `workers` are the names of
    those that may run it; empty: all.  `memory_bytes` is what it may take, by an estimate: it waits
    for as much, but for more than there is no longer than until all of it is free.
    """

    name: str
    function: str
    request: Mapping[str, Json]
    files: Mapping[str, Path] = field(default_factory=dict)
    needs: Needs = Needs()
    seconds: float = 3600.0
    workers: tuple[str, ...] = ()
    memory_bytes: int | None = None


@record
class JobOutcome:
    """What became of a job: its value, or the error that ended it.

    `folder` holds what it left in `out`, until the next outcome is asked for.
    `attempts` counts runs that ended with their worker; a job's own error ends it at once.
    """

    job: Job
    value: Json = None
    error: AotcError | None = None
    folder: Path | None = None
    seconds: float = 0.0
    peak_memory_bytes: int | None = None
    worker: WorkerDescription | None = None
    attempts: int = 1


class Executor(ABC):
    """Runs jobs; use with `with`."""

    name: ClassVar[str]
    is_here: ClassVar[bool] = False
    """Whether jobs run on this machine alone, so that no key leaves it."""

    def __init__(self, address: str = "", jobs: int | None = None) -> None:
        """`address` is what follows the name in `--on NAME://ADDRESS`.

        At most `jobs` jobs run at once; None: as many as there is room for.
        """
        self.address = address
        self.jobs = jobs
        self.begun: Callable[[Job], None] | None = None
        """What is told that a job starts."""

    @abstractmethod
    def __enter__(self) -> Self:
        """Start or join what runs the jobs; raises AotcError where that cannot be."""

    @abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all jobs, and what was started."""

    @abstractmethod
    def workers(self) -> tuple[WorkerDescription, ...]:
        """The machines that serve, as they describe themselves; names differ."""

    @abstractmethod
    def refusal(self, needs: Needs) -> AotcError | None:
        """Why no worker serves `needs`; None: one does.  Asked before anything runs."""

    @abstractmethod
    def ask(self, job: Job) -> Mapping[str, JobOutcome]:
        """What becomes of a short job on each worker, by the worker's name; no folder comes back.

        So a plan asks every kind of machine what it could build, and by which keys.
        """

    @abstractmethod
    def run(self, jobs: Sequence[Job], log: Log | None = None) -> Generator[JobOutcome, None, None]:
        """What became of each job, in the order in which they end.

        Jobs are started in their order, but for those that must wait for room.
        Closing the iterator ends jobs that run.
        """


# The process of a job.


def call_of(job: Job, files: Mapping[str, Path], cores: Sequence[int] = ()) -> Json:
    """What `perform` is called with to run a job: `files` are the paths there, by name.

    The process runs on `cores` alone, and ONNX Runtime takes as many threads (empty: all).
    """
    return {
        "function": job.function,
        "request": dict(job.request),
        "files": {name: str(path) for name, path in files.items()},
        "cores": list(cores),
    }


def perform(call: Json) -> Json:
    """In the process of a job, in its working folder: its `value`, and its `memory_bytes` at most.

    The memory is that of the process and of the largest that it started.
    """
    import resource

    Path(OUT).mkdir(exist_ok=True)
    if call["cores"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, call["cores"])
    files = {f"{{file:{name}}}": path for name, path in call["files"].items()}
    value = load(call["function"])(with_words(call["request"], files))
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    children = largest if sys.platform == "darwin" else largest * 1024
    return {"value": value, "memory_bytes": peak_memory_bytes() + children}


def with_words(request: Any, words: Mapping[str, str]) -> Any:
    """A request with other texts in place of those that are `words`, at any depth."""
    if isinstance(request, str):
        return words.get(request, request)
    if isinstance(request, Mapping):
        return {key: with_words(value, words) for key, value in request.items()}
    if isinstance(request, list | tuple):
        return [with_words(each, words) for each in request]
    return request
