"""What a compatibility check is: pure, from a variant's requirements and a host to findings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from aotc.contract.finding import Finding
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.results.reports import Refusal
from aotc.contract.target import Target
from aotc.contract.versions import release
from aotc.reasons import REASONS

UNCHECKED = "AOTC-C011"


class Check(ABC):
    """One requirement, checked.  The class's docstring explains it to a user."""

    code: ClassVar[str]

    @property
    def fix(self) -> str:
        """What a user can do about a refusal."""
        return REASONS[self.code].fix

    @abstractmethod
    def run(self, requirements: Requirements, host: Target) -> tuple[Refusal | Finding, ...]:
        """Refusals with `code`, findings with C011 for what the host does not say, or nothing."""

    def asks_for_gpus(self, requirements: Requirements) -> bool:
        """Whether the host must be asked for its GPUs and their driver, which may take seconds."""
        return False

    def refuse(
        self, what: str, *, expected: str, found: str, fix: str = ""
    ) -> tuple[Refusal | Finding, ...]:
        """One refusal."""
        return (
            Refusal(
                code=self.code,
                what=what,
                expected=expected,
                found=found,
                fix=fix or self.fix,
            ),
        )

    def unchecked(self, what: str, host: Target) -> tuple[Refusal | Finding, ...]:
        """One finding: the described target is silent on this requirement."""
        return (
            Finding(code=UNCHECKED, what=f"{what} is not checked", where=f"target {host.name}"),
        )


def at_least(found: str, least: str) -> bool:
    """Whether version `found` is not older than `least`; missing parts count as zero."""
    have, want = release(found), release(least)
    width = max(len(have), len(want))
    return have + (0,) * (width - len(have)) >= want + (0,) * (width - len(want))
