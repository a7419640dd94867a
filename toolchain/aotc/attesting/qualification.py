"""Qualification: an acceptance on this host, and what it saw, signed for this target."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.attesting.acceptance import Accepted, Request, accept
from aotc.attesting.adding import add_statement, check_place, tag, vouched_for
from aotc.contract.artifact_names import artifact_path
from aotc.contract.attestation_kinds import KINDS
from aotc.contract.codec.canonical import canonical_sha256
from aotc.contract.finding import Finding
from aotc.contract.results.reports import LoadReport
from aotc.contract.trust.anchors import TrustedKey
from aotc.contract.trust.attestations import (
    ArtifactName,
    AttestReport,
    Qualification,
    format_instant,
    target_digest,
)
from aotc.contract.trust.signer import Sealer, Signer
from aotc.contract.versions import VERSION
from aotc.errors import AotcError
from aotc.files.artifact_layout import ATTESTATIONS
from aotc.verification.gate import AuthenticArtifact

RUNS: Final = 30
# Refusals that say that the artifact does not do here what it promises.
_OF_ACCEPTANCE: Final = ("AOTC-P", "AOTC-N", "AOTC-C", "AOTC-S", "AOTC-M")
_ALSO: Final = frozenset({"AOTC-R005", "AOTC-R008", "AOTC-R013"})


def qualify(
    artifact: str | Path,
    signer: Signer | Sealer,
    *,
    trust: str | Path | None = None,
    variant: Sequence[str] = (),
    threads: int | None = None,
    runs: int = RUNS,
    force: bool = False,
) -> AttestReport:
    """Load an artifact on this host as a user would, and sign what was seen of it.

    It is loaded from the store, placed as promised, its fixtures match the golden outputs, each is
    timed `runs` times, and the peak of resident memory is taken; all in a process of its own.
    `trust` and `force` as for `attesting.adding.sign`; `variant` and `threads` as for `load`.
    Raises N009 where the acceptance fails, and nothing is written then; the gate's refusals
    (AOTC-G), I001, I017, I018, I019, I026, I036, R006 and R007.
    """
    place = artifact_path(artifact)
    # An early answer where there is no place for any.
    check_place(place, KINDS["qualification"].file_stem(), force=True)
    vouched = vouched_for(place, signer, trust)
    seen = _accepted(place, vouched, variant, threads, runs)
    report = seen.report
    names = tuple(each.name for each in report.variants)
    digest = target_digest(seen.host)
    said = Qualification(
        target=seen.host,
        target_sha256=digest,
        artifact=ArtifactName(name=seen.name, id=report.artifact_id),
        variant=report.variant,
        variants=names,
        verdict=report.verdict,
        load_seconds=report.session_seconds + report.warmup_seconds,
        verify_seconds=report.verify_seconds,
        latency=seen.latency,
        peak_memory_bytes=seen.peak_memory_bytes,
        fixtures=report.fixtures,
        findings=_findings(report, vouched),
        toolchain=VERSION,
        issued_at=format_instant(datetime.datetime.now(datetime.UTC)),
    )
    # One for each target and set of variants, of each signer.
    which = canonical_sha256({"target": digest, "variants": list(names)})[:16]
    name = KINDS["qualification"].file_stem(which, tag(signer))
    check_place(place, name, force=force)
    return add_statement(place, name, "qualification", said, signer, force=force)


def _accepted(
    artifact: Path,
    vouched: AuthenticArtifact,
    variant: Sequence[str],
    threads: int | None,
    runs: int,
) -> Accepted:
    # Judged here by all that is trusted; the other process takes the keys that vouched, no more.
    request = Request(
        artifact=str(artifact),
        keys=tuple(
            TrustedKey(pem=each.pem, origin=each.origin, development=each.development)
            for each in vouched.keys
        ),
        variant=tuple(variant),
        threads=threads,
        runs=runs,
    )
    try:
        return accept(request)
    except AotcError as error:
        if error.code == "AOTC-N009" or not _is_of_acceptance(error):
            raise
        raise AotcError(
            "AOTC-N009",
            "the artifact is not accepted on this host",
            where=str(artifact),
            found=error.line(),
            also=(error, *error.also),
        ) from None


def _findings(report: LoadReport, vouched: AuthenticArtifact) -> tuple[Finding, ...]:
    """What was seen; of bundles, what is said by all that is trusted, as the host will."""
    # The other process knew only the keys that vouched: of any other key it knows nothing.
    return (
        *(each for each in report.findings if not _of_bundle(each)),
        *(each for each in vouched.findings if _of_bundle(each)),
    )


def _of_bundle(finding: Finding) -> bool:
    return finding.where.startswith(f"{ATTESTATIONS}/")


def _is_of_acceptance(error: AotcError) -> bool:
    return error.code.startswith(_OF_ACCEPTANCE) or error.code in _ALSO
