"""The base of compatibility checks: functions of a variant's requirements and a host only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from aotc.base.codes import REASONS
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.target import Target
from aotc.spec.variant import Requirements
from aotc.spec.versions import release

UNCHECKED = "AOTC-C011"

Results = tuple[Refusal | Finding, ...]


class Check(ABC):
    """Checks one requirement.  The docstring of a subclass explains it to users."""

    code: ClassVar[str]

    @property
    def fix(self) -> str:
        """The fix of a refusal, from the catalogue."""
        return REASONS[self.code].fix

    @abstractmethod
    def run(self, requirements: Requirements, host: Target) -> Results:
        """Refusals with `code`, or findings with AOTC-C011 for what the host does not state."""

    def asks_for_driver(self, requirements: Requirements) -> bool:
        """Whether the host must be probed for NVIDIA's driver."""
        return False

    def asks_for_gpus(self, requirements: Requirements) -> bool:
        """Whether the host must be probed for its GPUs, which may take seconds."""
        return False

    def refuse(self, what: str, *, expected: str, found: str, fix: str = "") -> Results:
        """A refusal with the code of this check; `fix` defaults to the catalogue's."""
        fix = fix or self.fix
        return (Refusal(code=self.code, what=what, expected=expected, found=found, fix=fix),)

    def unchecked(self, what: str, host: Target) -> Results:
        """A finding that the described target does not state what this check needs."""
        where = f"target {host.name}"
        return (Finding(code=UNCHECKED, what=f"{what} is not checked", where=where),)


def at_least(found: str, minimum: str) -> bool:
    """Whether version `found` is not older than `minimum`; missing parts count as zero."""
    have, want = release(found), release(minimum)
    width = max(len(have), len(want))
    return have + (0,) * (width - len(have)) >= want + (0,) * (width - len(want))
