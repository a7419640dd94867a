"""The calls of a user: an artifact of an earlier release is verified, loaded and installed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repository import ROOT

import aotc
from aotc.spec.reports import VerifyReport

RELEASE = ROOT / "manifests" / "compat" / "0.1.0"
ARTIFACT, KEY = RELEASE / "digits.aotc", RELEASE / "release.pub"


@dataclass
class UserCalls:
    """Calls in the folder `root`, and a model that is loaded, with inputs for it."""

    root: Path
    model: aotc.Model
    inputs: dict[str, Any]

    def verify(self) -> VerifyReport:
        """The report of the artifact."""
        return aotc.verify(ARTIFACT, key=KEY)

    def load(self, **options: Any) -> aotc.Model:
        """A further model."""
        return aotc.load(ARTIFACT, key=KEY, **options)

    def install(self) -> None:
        """Install into a new store."""
        from aotc.runtime.store.installing import install
        from aotc.trust.policy.host_trust import resolve

        store = Path(tempfile.mkdtemp(dir=self.root)) / "store"
        install(ARTIFACT, resolve(None, KEY), store=store)


def answers(inputs: dict[str, Any]) -> int:
    """The number of outputs of a model that this process loads."""
    with aotc.load(ARTIFACT, key=KEY) as model:
        return len(model.run(inputs))
