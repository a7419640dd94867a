"""Qualification: an acceptance test on this host, whose result is signed for this target."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.attesting.acceptance import AcceptanceRequest, AcceptanceResult, accept
from aotc.attesting.adding import (
    add_statement,
    authenticate_artifact,
    check_can_add,
    signer_tag,
)
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
# Codes, and beginnings of codes, that say that the artifact does not keep its promises here.
_FAILURE_PREFIXES: Final = ("AOTC-P", "AOTC-N", "AOTC-C", "AOTC-S", "AOTC-M")
_FAILURE_CODES: Final = frozenset({"AOTC-R005", "AOTC-R008", "AOTC-R013"})


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
    """Load and run an artifact on this host as a user would, and sign the result.

    In a process of its own it is loaded from the store, its placement is checked, its fixtures are
    compared with the golden outputs and timed `runs` times each, and the peak resident memory is
    measured.  `trust` and `force` are as for `attesting.adding.sign`; `variant` and `threads` are
    as for `load`.

    Raises AOTC-N009 if the acceptance test fails, and then signs nothing; the gate's refusals
    (AOTC-G), I001, I017, I018, I019, I026, I036, R006 and R007.
    """
    place = artifact_path(artifact)
    # Refuse early if the artifact takes no attestation at all.
    check_can_add(place, KINDS["qualification"].file_stem(), force=True)
    authentic = authenticate_artifact(place, signer, trust)
    result = _accept(place, authentic, variant, threads, runs)
    report = result.report
    names = tuple(loaded.name for loaded in report.variants)
    digest = target_digest(result.host)
    predicate = Qualification(
        target=result.host,
        target_sha256=digest,
        artifact=ArtifactName(name=result.name, id=report.artifact_id),
        variant=report.variant,
        variants=names,
        verdict=report.verdict,
        load_seconds=report.session_seconds + report.warmup_seconds,
        verify_seconds=report.verify_seconds,
        latency=result.latency,
        peak_memory_bytes=result.peak_memory_bytes,
        fixtures=report.fixtures,
        findings=_findings(report, authentic),
        toolchain=VERSION,
        issued_at=format_instant(datetime.datetime.now(datetime.UTC)),
    )
    # Each signer can add one for every target and set of variants.
    scope = canonical_sha256({"target": digest, "variants": list(names)})[:16]
    name = KINDS["qualification"].file_stem(scope, signer_tag(signer))
    check_can_add(place, name, force=force)
    return add_statement(place, name, "qualification", predicate, signer, force=force)


def _accept(
    artifact: Path,
    authentic: AuthenticArtifact,
    variant: Sequence[str],
    threads: int | None,
    runs: int,
) -> AcceptanceResult:
    # This process verified it with all that is trusted; the other one trusts the keys that signed.
    request = AcceptanceRequest(
        artifact=str(artifact),
        keys=tuple(
            TrustedKey(pem=key.pem, origin=key.origin, development=key.development)
            for key in authentic.keys
        ),
        variant=tuple(variant),
        threads=threads,
        runs=runs,
    )
    try:
        return accept(request)
    except AotcError as error:
        if error.code == "AOTC-N009" or not _is_acceptance_failure(error):
            raise
        raise AotcError(
            "AOTC-N009",
            "the artifact failed the acceptance test on this host",
            where=str(artifact),
            found=error.line(),
            also=(error, *error.also),
        ) from None


def _findings(report: LoadReport, authentic: AuthenticArtifact) -> tuple[Finding, ...]:
    """The findings of the load, but those about bundles from this process.

    The other process trusted only the keys that signed, so it took every other key for unknown.
    """
    return (
        *(finding for finding in report.findings if not _is_about_bundle(finding)),
        *(finding for finding in authentic.findings if _is_about_bundle(finding)),
    )


def _is_about_bundle(finding: Finding) -> bool:
    return finding.where.startswith(f"{ATTESTATIONS}/")


def _is_acceptance_failure(error: AotcError) -> bool:
    return error.code.startswith(_FAILURE_PREFIXES) or error.code in _FAILURE_CODES
