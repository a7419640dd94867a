"""What one build was asked for: read by every stage, changed by none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aotc.caching.cache import BuildCache
from aotc.contract.profile import Profile
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
    clock: Clock = field(default_factory=Clock)
    # Order of providers by which budgets judge a variant, where it was tuned to another one.
    judged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def apart(self, name: str) -> BuildOptions:
        """The same with a work folder of its own."""
        work = self.work / name
        work.mkdir()
        return replace(self, work=work)

    def tell(self, what: str) -> None:
        """Say what begins, to whoever watches."""
        self.clock.tell(what)
