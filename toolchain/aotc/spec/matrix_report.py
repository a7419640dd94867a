"""What artifacts are on hosts: the compatibility matrix, and what is required of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from aotc.base.records import record
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal, Verdict

Required = Literal["none", "some", "degraded", "optimal"]
_NONE_RUNS: Final = "AOTC-C009"
# A preferred variant does not fit, and what runs was not proven.
_DEGRADING: Final = ("AOTC-C010", "AOTC-N002")


@record
class HostVerdict:
    """Whether one artifact runs on one host, and with which variant."""

    artifact: Annotated[str, "path, as it was given"]
    host: Annotated[str, "name of the target or of the live host"]
    verdict: Annotated[
        Verdict | Literal["unverified"], "unverified: it is not authentic, wherever it runs"
    ]
    best: Annotated[str, "variant that it would run; empty: none"] = ""
    refusals: Annotated[tuple[Refusal, ...], "every reason why it does not run"] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """Of the cell in reports: `ARTIFACT on HOST`."""
        return f"{self.artifact} on {self.host}"

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of its reasons: of what refuses it, else of what it lacks to be optimal."""
        if self.refusals:
            found = dict.fromkeys(each.code for each in self.refusals)
            # That no variant runs is said by the verdict; the others say why.
            return tuple(code for code in found if code != _NONE_RUNS or len(found) == 1)
        lacks = _DEGRADING if self.verdict == "degraded" else ()
        return tuple(dict.fromkeys(each.code for each in self.findings if each.code in lacks))


@record
class CompatibilityReport:
    """`aotc fleet verify --json`: every artifact on every host."""

    schema: Literal["aotc.fleet-verify/1"] = "aotc.fleet-verify/1"
    artifacts: Annotated[Mapping[str, str], "ids by path; empty: it was not read"]
    hosts: tuple[str, ...]
    cells: Annotated[tuple[HostVerdict, ...], "by artifact, then by host"]
    required: Annotated[Required, "some: each artifact on one host at least"]
    failed: Annotated[tuple[Refusal, ...], "what is not as required; none: all is"] = ()
    findings: Annotated[tuple[Finding, ...], "on artifacts and trust, wherever they run"] = ()
    seconds: float = 0.0


@record
class EmitReport:
    """`aotc fleet emit --json`."""

    schema: Literal["aotc.fleet-emit/1"] = "aotc.fleet-emit/1"
    fleet: str
    form: str
    shards: int
    machines: Annotated[Mapping[str, int], "shards by what they ask of a machine, in words"]
    files: tuple[str, ...]
