"""The artifact that tests build once and read with other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repository import ROOT

DIGITS = ROOT / "examples" / "digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltArtifact:
    """Its path, the model it was built from, and the key that signed it."""

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
