"""The options of one build: every stage reads them, none changes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotc.caching.cache import BuildCache
from aotc.contract.document_places import NO_PLACES, DocumentPlaces
from aotc.contract.profile import Profile
from aotc.contract.results.journal import Journal
from aotc.contract.results.nodes.blamed import Blamed
from aotc.contract.target import Target
from aotc.engine.worker_pool import Workers
from aotc.records import field, record, replace
from aotc.stages.clock import Clock


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
