"""The calls of a user: an artifact is verified, loaded and installed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aotc
from aotc.spec.reports import VerifyReport


@dataclass
class UserCalls:
    """Calls in the folder `root`, and the model of `artifact`, loaded, with inputs for it."""

    root: Path
    artifact: Path
    key: Path
    model: aotc.Model
    inputs: dict[str, Any]

    def verify(self) -> VerifyReport:
        """The report of the artifact."""
        return aotc.verify(self.artifact, key=self.key)

    def load(self, **options: Any) -> aotc.Model:
        """A further model."""
        return aotc.load(self.artifact, key=self.key, **options)

    def install(self) -> None:
        """Install into a new store."""
        from aotc.runtime.store.installing import install
        from aotc.trust.policy.host_trust import resolve

        store = Path(tempfile.mkdtemp(dir=self.root)) / "store"
        install(self.artifact, resolve(None, self.key), store=store)


def answers(artifact: Path, key: Path, inputs: dict[str, Any]) -> int:
    """The number of outputs of a model that this process loads."""
    with aotc.load(artifact, key=key) as model:
        return len(model.run(inputs))
