"""Builds of one test session that share the process which forks their jobs.

Each would start its own and import numpy, onnx and ONNX Runtime in it, which takes longer than the
jobs of a small model.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import aotc
from aotc.base.errors import AotcError
from aotc.pipeline.build import PRELOADED_MODULES
from aotc.session.worker_pool import Workers
from aotc.spec.command_reports import MergeReport
from aotc.spec.profile import Profile, WorkerLimits
from aotc.spec.profile_files import load_profile
from aotc.spec.reports import BuildReport
from aotc.tools.merge import merge_artifacts

P = ParamSpec("P")
T = TypeVar("T")
# One for each set of limits and environment, of which tests have few side by side.
_KEPT: Final = 3
# Of the environment, what no job reads.
_UNREAD: Final = frozenset(
    {"PYTEST_CURRENT_TEST", "AOTC_CACHE", "AOTC_CACHE_BYTES", "AOTC_STORE", "AOTC_SIGNING_KEY"}
)


def build(model: str | Path | bytes, **options: Any) -> BuildReport:
    """As `aotc.build`."""
    with _shared(_limits(options.get("profile", "edge"))) as workers:
        return aotc.build(model, workers=workers, **options)


def merge(paths: Iterable[str | Path], output: Path, **options: Any) -> MergeReport:
    """As `aotc.merge`."""
    with _shared(WorkerLimits()) as workers:
        return merge_artifacts(list(paths), output, workers=workers, **options)


def _limits(profile: str | Path | Profile) -> WorkerLimits:
    """A profile's limits; the default ones if the profile is refused, as the build will report."""
    try:
        return (profile if isinstance(profile, Profile) else load_profile(profile)).limits
    except AotcError:
        return WorkerLimits()


@contextmanager
def _shared(limits: WorkerLimits) -> Iterator[Workers]:
    """Workers for a build with these limits in the environment as it is."""
    # ONNX Runtime's import sets the variable.
    told = {"ORT_DISABLE_TELEMETRY": "1", **os.environ}
    key = (limits, tuple(sorted(each for each in told.items() if each[0] not in _UNREAD)))
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
