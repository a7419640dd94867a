"""The process from which models are built, restarted if a model takes it down."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from aotc.contract.codec.parsing import Json
from aotc.contract.profile import WorkerLimits
from aotc.engine.worker_pool import JobResult, Workers
from aotc.errors import AotcError

# Imported once, so that the processes of models need not do it.
_IMPORTS: Final = (
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
    """Runs jobs within `limits`, each in a separate process; use with `with`."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Sandbox:
        self._workers = Workers(self._limits, _IMPORTS).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
        self._workers.__exit__(*error)

    def run(self, job: str, request: Json, *, folder: Path, where: str) -> JobResult:
        """As `Workers.run`; if all processes went down together, the job is run once more."""
        workers = self._workers
        try:
            return workers.run(job, request, folder=folder, where=where)
        except AotcError:
            if not self._renew(workers):
                raise
        return self._workers.run(job, request, folder=folder, where=where)

    def _renew(self, workers: Workers) -> bool:
        """Whether `workers` had ended; then new ones replace them for all threads."""
        if not workers.ended:
            return False
        with self._lock:
            if self._closed:
                return False
            if self._workers is workers:
                workers.__exit__(None, None, None)
                self._workers = Workers(self._limits, _IMPORTS).__enter__()
        return True
