"""The process from which models are built: started once, and anew where one took it down."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import Json
from aotc.contract.profile import WorkerLimits
from aotc.engine.worker_pool import JobResult, Workers
from aotc.errors import AotcError

# What building and comparing import, so that no model's process does it again.
_BACKGROUND_IMPORTS: Final = (
    "onnxruntime",
    "aotc.pipeline",
    "cyclonedx.contrib.license.factories",
    "cyclonedx.model.bom",
    "cyclonedx.model.tool",
    "cyclonedx.output.json",
    "packageurl",
    "aotc.probing.analysis",
    "aotc.stages.optimize",
    "aotc.stages.prove",
    "aotc.runtime.rehearsal_jobs",
    "aotc.checking.building_job",
    "aotc.checking.comparing",
)


class Sandbox:
    """Runs jobs within `limits`, each in a process of its own; use with `with`."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Sandbox:
        self._workers = Workers(self._limits, _BACKGROUND_IMPORTS).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
        self._workers.__exit__(*error)

    def run(self, job: str, request: Json, *, folder: Path, where: str) -> JobResult:
        """As `Workers.run`; a job whose process went down with all others is run once more."""
        workers = self._workers
        try:
            return workers.run(job, request, folder=folder, where=where)
        except AotcError:
            if not self._renewed(workers):
                raise
        return self._workers.run(job, request, folder=folder, where=where)

    def _renewed(self, workers: Workers) -> bool:
        """Whether `workers` had gone; then there are others, for every thread."""
        if not workers.ended:
            return False
        with self._lock:
            if self._closed:
                return False
            if self._workers is workers:
                workers.__exit__(None, None, None)
                self._workers = Workers(self._limits, _BACKGROUND_IMPORTS).__enter__()
        return True
