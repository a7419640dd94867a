"""The compatibility matrix: artifacts by hosts, each artifact's signature being checked once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError, with_others
from aotc.base.records import replace
from aotc.spec.codec import Json, decode, encode
from aotc.spec.matrix_report import CompatibilityReport, HostVerdict, Required
from aotc.spec.payload import Finding
from aotc.spec.profile_files import builtin_targets, load_target
from aotc.spec.reports import NO_TARGET, Refusal, Verdict, VerifyReport
from aotc.spec.target import Target
from aotc.spec.versions import artifact_name, artifact_path
from aotc.trust.compatibility import refusal_of
from aotc.trust.gate import HOST, verify_for_each
from aotc.trust.policy.host_trust import resolve

if TYPE_CHECKING:
    from aotc.fleet.executors.base import Executor

# Which verdicts of a cell are as required.
_ENOUGH: Final[Mapping[Required, frozenset[Verdict]]] = {
    "none": frozenset({"optimal", "degraded", "incompatible"}),
    "some": frozenset({"optimal", "degraded", "incompatible"}),
    "degraded": frozenset({"optimal", "degraded"}),
    "optimal": frozenset({"optimal"}),
}
# Of findings, those that are about the host.
_OF_HOST: Final = ("AOTC-C", "AOTC-N")


def verify_matrix(
    artifacts: Sequence[str | Path],
    targets: Sequence[str | Path],
    *,
    live: Sequence[Target] = (),
    required: Required = "degraded",
    trust: str | Path | None = None,
    key: str | Path | None = None,
    channel: str | None = None,
    full: bool = False,
    unsafe_no_trust_state: bool = False,
) -> CompatibilityReport:
    """Judge every artifact for every host; nothing is loaded.

    `targets` are "host" (this machine), names of built-in targets, or paths of target files;
    `live` are hosts as they described themselves.  The other arguments are those of
    `aotc.verify`.  `failed` of the report holds what is not as `required`: an artifact that is
    not authentic always, and with "some" one that runs nowhere.  An artifact that cannot be read
    is one of them, with the reason; the others are judged all the same.

    Raises AOTC-I027 without an artifact or a host, I185 where two hosts have one name, and what
    `aotc.verify` raises for targets and trust.
    """
    started = time.perf_counter()
    hosts = _hosts(targets, live)
    paths = tuple(dict.fromkeys(artifact_name(artifact_path(each)) for each in artifacts))
    if not hosts or not paths:
        lacking = "a host" if paths else "an artifact"
        raise AotcError("AOTC-I027", f"a matrix needs {lacking}", where="--targets")
    trusted = resolve(trust, key, channel=channel, unsafe_no_trust_state=unsafe_no_trust_state)
    cells: list[HostVerdict] = []
    ids: dict[str, str] = {}
    findings: dict[Finding, None] = {}
    for path in paths:
        try:
            reports = verify_for_each(path, tuple(hosts.values()), trust=trusted, full=full)
        except AotcError as error:
            ids[path] = ""
            refusals = tuple(refusal_of(each) for each in (error, *error.also))
            cells += [
                HostVerdict(artifact=path, host=host, verdict="unverified", refusals=refusals)
                for host in hosts
            ]
            continue
        ids[path] = reports[0].artifact_id
        cells += [_cell(path, host, each) for host, each in zip(hosts, reports, strict=True)]
        findings |= dict.fromkeys(
            replace(each, where=each.where or path)
            for each in reports[0].findings
            if not each.code.startswith(_OF_HOST)
        )
    return CompatibilityReport(
        artifacts=ids,
        hosts=tuple(hosts),
        cells=tuple(cells),
        required=required,
        failed=tuple(_failed(cells, required)),
        findings=tuple(findings),
        seconds=time.perf_counter() - started,
    )


def _hosts(targets: Sequence[str | Path], live: Sequence[Target]) -> dict[str, str | Target]:
    """What is judged for, by the name of its column; raises AOTC-I185 and what a target does.

    A target file is called by its own name: `aotc target probe` calls each host `host`.
    """
    found: dict[str, str | Target] = {}
    given: dict[str, str] = {}
    for target in dict.fromkeys(map(str, targets)):
        if target == NO_TARGET:
            what = "'none' is no host: a matrix asks where artifacts run"
            raise AotcError("AOTC-I027", what, where="--targets")
        name = target if target in (HOST, *builtin_targets()) else Path(target).stem
        _add_once(given, name, target)
        found[name] = load_target(target) if target != HOST else target
    for worker in live:
        _add_once(given, worker.name, f"live host {worker.name}")
        found[worker.name] = worker
    return found


def _add_once(given: dict[str, str], name: str, said: str) -> None:
    if name in given:
        raise AotcError(
            "AOTC-I185",
            "two hosts of the matrix have one name",
            where=said,
            expected=f"another name than that of {given[name]}",
            found=name,
        )
    given[name] = said


def _cell(path: str, host: str, report: VerifyReport) -> HostVerdict:
    assert report.verdict != "authentic"
    return HostVerdict(
        artifact=path,
        host=host,
        verdict=report.verdict,
        best=report.best,
        refusals=report.refusals,
        findings=tuple(each for each in report.findings if each.code.startswith(_OF_HOST)),
    )


def _failed(cells: Sequence[HostVerdict], required: Required) -> Iterator[Refusal]:
    """What is not as required, each with the name of its cell, or artifact, as its place."""
    runs = {cell.artifact for cell in cells if cell.verdict in _ENOUGH["degraded"]}
    told: set[str] = set()
    for cell in cells:
        if cell.verdict == "unverified":
            if cell.artifact not in told:
                yield from (_placed(each, cell.artifact) for each in cell.refusals)
            told.add(cell.artifact)
        elif cell.verdict not in _ENOUGH[required]:
            yield _breach(f"the artifact is {cell.verdict} on this host", cell.name, required, cell)
        elif required == "some" and cell.artifact not in runs | told:
            told.add(cell.artifact)
            yield _breach("the artifact runs on none of the hosts", cell.artifact, required, cell)


def _breach(what: str, where: str, required: Required, cell: HostVerdict) -> Refusal:
    expected = "a host on which it runs" if required == "some" else _in_words(required)
    codes = ", ".join(cell.codes)
    return refusal_of(
        AotcError(
            "AOTC-I184",
            what,
            where=where,
            expected=expected,
            found=f"{cell.verdict}: {codes}" if codes else cell.verdict,
        )
    )


def _in_words(required: Required) -> str:
    return "optimal" if required == "optimal" else "optimal or degraded"


def _placed(refusal: Refusal, where: str) -> Refusal:
    """The refusal at a place of the matrix; what it named itself is in its text."""
    inside = refusal.where.removeprefix(where).lstrip("/: ")
    what = f"{inside}: {refusal.what}" if inside else refusal.what
    return replace(refusal, what=what, where=where)


# Live hosts: what a worker's machine is, as it finds itself.


def live_hosts(executor: Executor) -> tuple[Target, ...]:
    """Every worker of an executor as a target, by the worker's name; raises what one of them does.

    Where a worker does not tell, nothing is judged for the others either: a gate must not pass
    because a host is silent.
    """
    # A host that only verifies runs no jobs.
    from aotc.fleet.executors.base import Job

    found = executor.ask(
        Job(name="describe", function="aotc.fleet.matrix:described_host", request={}, seconds=300.0)
    )
    errors = [outcome.error for outcome in found.values() if outcome.error is not None]
    if errors:
        raise with_others(errors)
    return tuple(
        replace(decode(Target, outcome.value), name=worker) for worker, outcome in found.items()
    )


def described_host(request: Json) -> Json:
    """This machine as a target, in the process of a job."""
    from aotc.host.probe import probe

    return encode(probe())
