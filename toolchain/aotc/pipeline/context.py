"""What one build is asked for, which no stage changes, and what changes while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aotc.base import logs
from aotc.base.progress import Progress, Reporter
from aotc.base.records import field, record, replace
from aotc.pipeline.cache import BuildCache
from aotc.pipeline.custom_ops import StagedLibraries
from aotc.providers.base import Backend
from aotc.providers.named_backends import backend_of
from aotc.runtime.answers import Side
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
            seconds = time.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            text = f"{name} {detail}".strip()
            logs.log(
                "build", logs.DEBUG, f"{text} took {seconds:.3f} s", stage=name, seconds=seconds
            )

    def announce(self, what: str) -> None:
        """Report what starts now as progress."""
        self.reporter.note(what)

    def elapsed(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started


@record
class BuildContext:
    """What a build is asked for and where: every stage reads it, none changes it."""

    profile: Profile
    target: Target
    host: Target
    fixtures: Path | None = None
    embed_fixtures: bool = False
    # Data on which activations are observed: that of the command line, else the profile's.
    calibration: Path | None = None
    # The build's own copies of the profile's libraries of custom operators.
    custom_ops: StagedLibraries = ()
    # Whether trials may quantize statically: those of this build, or of one that it repeats.
    tries_static: bool = False
    # Whether a variant, or one in trials, may compute in half precision.
    tries_half: bool = False
    # Where the profile states its gates.
    places: DocumentPlaces = NO_PLACES
    # By variant: the providers by whose order budgets are checked, if tuning chose another order.
    budget_orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def plugins(self) -> Json:
        """The profile's plugins, as a worker is given them with the name of a `backend`."""
        return encode(dict(self.profile.plugins))


@record
class BuildState:
    """What a build has, and what changes while it runs: who takes it may write into it.

    `work` is the folder that they write their files into, and `shared` that of what all trials of a
    build read.  `journal` is what was judged so far.  `blames` are the nodes to blame, by variant
    with precision, and the model file of each form that was too inexact; None: the search failed.
    `seconds` are files of the original's answers computed otherwise, by the first file of those
    that variants are compared with.
    With `shared_trials` all searches share the profile's trials, as those for one candidate of
    tuning do; else those for one variant in one precision do.  `earlier` is the artifact whose
    answers the new one must give.
    """

    context: BuildContext
    work: Path
    workers: Workers
    clock: Clock = field(default_factory=Clock)
    cache: BuildCache | None = None
    journal: Journal = field(default_factory=Journal)
    blames: dict[tuple[str, Path], Blamed | None] = field(default_factory=dict)
    seconds: dict[Path, Mapping[str, Path]] = field(default_factory=dict)
    shared_trials: bool = False
    root: Path | None = None
    earlier: Side | None = None

    @property
    def shared(self) -> Path:
        """The build's own work folder, where `work` may be one below it."""
        return self.root or self.work

    def below(self, name: str) -> BuildState:
        """This state with a new work folder below this one: what is written into it is shared."""
        work = self.work / name
        work.mkdir()
        return replace(self, work=work, root=self.shared)

    def asking(self, context: BuildContext) -> BuildState:
        """This state for another context: what is written into it is shared."""
        return replace(self, context=context)

    def trial(self, name: str, context: BuildContext) -> BuildState:
        """The state of a candidate, in a folder below this one.

        What it breaches is no breach of the build, and its searches are its own.
        """
        below = self.asking(context).below(name)
        return replace(below, journal=Journal(), blames={}, shared_trials=True)

    def trials_left(self, searched: str) -> int:
        """How many trials may still be made to find the nodes to blame, for a key of `blames`."""
        spent = sum(
            found.trials
            for (name, _), found in self.blames.items()
            if found is not None and (self.shared_trials or name == searched)
        )
        return max(0, self.context.profile.blame.trials - spent)

    def announce(self, what: str) -> None:
        """Report what starts now as progress."""
        self.clock.announce(what)


def requested_backend(request: Json) -> Backend:
    """In a worker: the `backend` of a request, which may be among its `plugins`."""
    plugins = {name: decode(PluginSpec, spec) for name, spec in request["plugins"].items()}
    return backend_of(request["backend"], plugins)
