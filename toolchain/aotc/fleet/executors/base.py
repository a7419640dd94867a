"""What an executor is: jobs in, what became of each out, as soon as it is known.

A job is a call of a function `module:function` with JSON, in a process and a working folder of its
own.  The files that it reads are named in it, so that an executor may bring them to another
machine by their content; what it leaves in the folder `out` of its working folder comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from aotc.base.errors import AotcError
from aotc.base.records import field, record
from aotc.spec.codec import Json
from aotc.spec.fleet import Needs, WorkerDescription

OUT: Final = "out"
"""The folder of a job's working folder whose content comes back."""

Log = Callable[[str, str], None]
"""What takes a line of a job's log: the job's name, and the line."""


@record
class Job:
    """A call of `function` with `request`.

    `files` are what the job reads, by the name under which `request` knows them: in the process
    of the job, each text `{file:NAME}` in `request` is the path of that file or folder there.
    """

    name: str
    function: str
    request: Mapping[str, Json]
    files: Mapping[str, Path] = field(default_factory=dict)
    needs: Needs = Needs()
    seconds: float = 3600.0


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

    def __init__(self, address: str = "", jobs: int | None = None) -> None:
        """`address` is what follows the name in `--on NAME://ADDRESS`.

        At most `jobs` jobs run at once; None: as many as there is room for.
        """
        self.address = address
        self.jobs = jobs

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
        """The machines that serve, as they describe themselves."""

    @abstractmethod
    def refusal(self, needs: Needs) -> AotcError | None:
        """Why no worker serves `needs`; None: one does.  Asked before anything runs."""

    @abstractmethod
    def run(self, jobs: Sequence[Job], log: Log | None = None) -> Iterator[JobOutcome]:
        """What became of each job, in the order in which they end.

        Closing the iterator ends jobs that run.
        """
