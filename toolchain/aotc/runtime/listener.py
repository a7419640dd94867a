"""Who is told of loads and calls, and what: `aotc.runtime.reporting` tells it.

None is told the values of an input.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final, NamedTuple

from aotc.base.text import printable
from aotc.spec.versions import artifact_name

# By ascending seconds: of the calls of profiles that state none.
LATENCY_BUCKETS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


class LoadedVariant(NamedTuple):
    """What was loaded of a variant, and how it was placed."""

    name: str
    provider: str
    precision: str
    nodes: Mapping[str, int]
    """The nodes of its session by provider, as observed."""
    misplaced: int
    """How many of them are not where the artifact promises."""
    fallbacks: tuple[str, ...]
    """Why none of its calls runs as the artifact prefers: `variant`, `placement`."""


class LoadedModel:
    """One loaded model, and whether it is ready."""

    def __init__(
        self,
        name: str,
        artifact: str,
        version: str,
        verdict: str,
        variants: Sequence[LoadedVariant],
        latency_buckets: Sequence[float] = (),
    ) -> None:
        """`version` is the release that a trust policy accepted; `artifact` the artifact's id."""
        self.name = name
        self.artifact = artifact
        self.version = version
        self.verdict = verdict
        self.variants = tuple(variants)
        self.latency_buckets = tuple(latency_buckets) or LATENCY_BUCKETS
        self.open = True
        self.ready = False
        self.fell_back: set[tuple[str, str]] = set()
        """The variants and reasons of fallbacks that were told."""


class Stage(NamedTuple):
    """One stage of a load; nanoseconds since 1970."""

    name: str
    began: int
    ended: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended - self.began) / 1e9


class TimedLoad:
    """One load and its stages, as far as it has come; nanoseconds since 1970."""

    def __init__(self, path: object, name: str | None) -> None:
        """`name` is what the caller calls the model (None: as its artifact does)."""
        self.path = printable(artifact_name(str(path)))
        self.name = name
        self.stages: list[Stage] = []
        self.began = time.time_ns()
        self.ended = self.began

    @property
    def label(self) -> str:
        """The model's name, or the artifact's file where it is not known yet."""
        return self.name or PurePath(self.path).name.removesuffix(".aotc")

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended - self.began) / 1e9


class Call(NamedTuple):
    """One call that answered."""

    variant: str
    route: str
    seconds: float
    given: int
    """Elements of its inputs."""
    added: int
    """Elements that padding added."""
    outside: tuple[str, ...]
    """Dims outside the proven range."""
    fallbacks: tuple[str, ...]
    """What was otherwise than the artifact prefers: `variant`, `placement`, `graph`."""
    copied_to: int = 0
    """Bytes that were copied to the device."""
    copied_from: int = 0
    """Bytes that were copied from it."""


class Listener:
    """Is told what happens; what it does not override, it ignores.  In any thread."""

    def awake(self) -> bool:
        """Whether calls are told; asked before each of them."""
        return True

    def stage(self, load: TimedLoad, stage: Stage) -> None:
        """A stage of a load has ended, well or not."""

    def loaded(self, load: TimedLoad, model: LoadedModel) -> None:
        """A load has ended well."""

    def failed(self, load: TimedLoad, code: str, where: str) -> None:
        """A load has ended with this reason code, or with an error of this class."""

    def call(self, model: LoadedModel, call: Call) -> None:
        """A call has answered."""

    def refused(self, model: LoadedModel, code: str, where: str) -> None:
        """A call was refused, or failed."""

    def lacked_memory(self, model: LoadedModel, variant: str, code: str) -> None:
        """A call failed for want of memory; `refused` tells of it too."""

    def timed_copies(self, model: LoadedModel, variant: str, count: int, seconds: float) -> None:
        """Of some calls, the bytes that were copied to and from the device, and for how long."""

    def captured(self, model: LoadedModel, variant: str) -> None:
        """A CUDA graph of the variant was captured."""

    def fell_back(self, model: LoadedModel, variant: str, reason: str) -> None:
        """For the first time, a call of the variant did not run as the artifact prefers."""

    def changed(self, model: LoadedModel) -> None:
        """It is open, or ready, or is so no more."""
