"""What the tests know of the artifact that they build once and read with others' tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repository import ROOT

DIGITS = ROOT / "examples" / "digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltArtifact:
    """Where it lies, the model it was built from, and the key that vouches for it."""

    path: Path
    source: Path
    public_key: Path

    @property
    def payload(self) -> Path:
        """The model package."""
        return self.path / "payload"

    @property
    def signature(self) -> Path:
        """The model's signature."""
        return self.path / "attestations" / "oms.sigstore.json"
