"""The options of one build, which every stage reads, and the clock of its stages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aotc.base.progress import Progress, Reporter
from aotc.base.records import field, record, replace
from aotc.pipeline.cache import BuildCache
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of
from aotc.session.worker_pool import Workers
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Blamed
from aotc.spec.profile import PluginSpec, Profile
from aotc.spec.run_report import Journal
from aotc.spec.target import Target
from aotc.spec.yaml import NO_PLACES, DocumentPlaces


class Clock:
    """Seconds by stage; `reporter` tells what starts, what ends and how much is done."""

    def __init__(self, progress: Progress | None = None) -> None:
        """Start the clock."""
        self.seconds: dict[str, float] = {}
        self.reporter = Reporter(progress)
        self._started = time.monotonic()

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        """Time one stage; stages of one name are added up."""
        self.reporter.begin(name, detail)
        started = time.monotonic()
        try:
            yield
        except BaseException:
            self.reporter.end(failed=True)
            raise
        else:
            self.reporter.end()
        finally:
            # Of a build that fails as well: its report tells how long what it did took.
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    def announce(self, what: str) -> None:
        """Report what starts now as progress."""
        self.reporter.note(what)

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started


@record
class BuildOptions:
    """What the user asked for; every stage reads it, none changes it."""

    profile: Profile
    target: Target
    host: Target
    work: Path
    workers: Workers
    cache: BuildCache | None = None
    fixtures: Path | None = None
    embed_fixtures: bool = False
    # Data on which activations are observed: that of the command line, else the profile's.
    calibration: Path | None = None
    # Whether trials may quantize statically: those of this build, or of one that it repeats.
    tries_static: bool = False
    # Whether a variant, or one in trials, may compute in half precision.
    tries_half: bool = False
    clock: Clock = field(default_factory=Clock)
    # Where the profile states its gates, and what was judged so far.
    places: DocumentPlaces = NO_PLACES
    journal: Journal = field(default_factory=Journal)
    # By variant: the providers by whose order budgets are checked, if tuning chose another order.
    budget_orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The nodes to blame, by variant with precision, and the model file of each form that was too
    # inexact; None: the search failed.
    blames: dict[tuple[str, Path], Blamed | None] = field(default_factory=dict)
    # Whether all searches share the profile's trials, as those for one candidate of tuning do; else
    # those for one variant in one precision do.
    shared_trials: bool = False

    # The build's own work folder, if `work` is one below it.
    root: Path | None = None

    @property
    def shared(self) -> Path:
        """The folder of what all trials of a build read: the same for each of them."""
        return self.root or self.work

    def with_subfolder(self, name: str) -> BuildOptions:
        """The same options with a new work folder below this one."""
        work = self.work / name
        work.mkdir()
        return replace(self, work=work, root=self.shared)

    def trials_left(self, searched: str) -> int:
        """How many trials may still be made to find the nodes to blame, for a key of `blames`."""
        spent = sum(
            found.trials
            for (name, _), found in self.blames.items()
            if found is not None and (self.shared_trials or name == searched)
        )
        return max(0, self.profile.blame.trials - spent)

    def announce(self, what: str) -> None:
        """Report what starts now as progress."""
        self.clock.announce(what)

    def plugins(self) -> Json:
        """The profile's plugins, as a worker is given them with the name of a `backend`."""
        return encode(dict(self.profile.plugins))


def requested_backend(request: Json) -> Backend:
    """In a worker: the `backend` of a request, which may be among its `plugins`."""
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    return backend_of(request["backend"], plugins)
