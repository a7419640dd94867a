"""The process that forks jobs, shared by the builds of one test session.

Each build would start its own and import numpy, onnx and ONNX Runtime in it, which takes longer
than the jobs of a small model.  Builds may share one, as those of `aotc check-models` do.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from aotc.contract.profile import WorkerLimits
from aotc.engine.worker_pool import Workers
from aotc.pipeline import PRELOADED_MODULES

P = ParamSpec("P")
T = TypeVar("T")
# One for each set of limits and environment, of which tests have few side by side.
_KEPT: Final = 3


@contextmanager
def shared_workers(limits: WorkerLimits) -> Iterator[Workers]:
    """Workers for a build with these limits in the environment as it is."""
    # The import of ONNX Runtime sets the one, each test the other.
    told = {**os.environ, "ORT_DISABLE_TELEMETRY": "1", "PYTEST_CURRENT_TEST": ""}
    key = (limits, tuple(sorted(told.items())))
    # Builds that run side by side share none.
    workers = _WORKERS.pop(key, None)
    if workers is None:
        workers = _Watched(limits)
        workers.__enter__()
    try:
        yield workers
    finally:
        # What a refused build has left undone would run beside the next.
        if workers.busy or workers.ended or key in _WORKERS:
            workers.__exit__(None, None, None)
        else:
            _WORKERS[key] = workers
        while len(_WORKERS) > _KEPT:
            _WORKERS.popitem(last=False)[1].__exit__(None, None, None)


class _Watched(Workers):
    """Workers that know whether any of their work is unfinished."""

    def __init__(self, limits: WorkerLimits) -> None:
        super().__init__(limits, PRELOADED_MODULES)
        self._given: list[Future[Any]] = []

    def submit(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        future = super().submit(function, *arguments, **named)
        self._given = [*(item for item in self._given if not item.done()), future]
        return future

    @property
    def busy(self) -> bool:
        return not all(item.done() for item in self._given)


_WORKERS: Final[OrderedDict[Any, _Watched]] = OrderedDict()


@atexit.register
def _end() -> None:
    while _WORKERS:
        _WORKERS.popitem()[1].__exit__(None, None, None)
