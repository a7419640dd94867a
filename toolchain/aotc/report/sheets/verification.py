"""What `aotc verify` shows: the verdict, the steps, and every reason."""

from __future__ import annotations

from aotc.base.text import duration, size
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Sheet,
    by_status,
    findings_table,
    refusals_table,
    short,
    table,
    verdict,
)
from aotc.spec.reports import VerifyReport


def verify_view(report: VerifyReport) -> Sheet:
    """The verdict of the gate, its steps, and every reason."""
    names = report.signer_names or ("",) * len(report.signers)
    signers = ", ".join(
        f"{name} (key {short(key_id)})" if name else short(key_id)
        for key_id, name in zip(report.signers, names, strict=False)
    )
    if signers and report.development_key:
        signers += " (this user's development key)"
    return [
        Heading(report.artifact, *_verdict(report)),
        Facts(
            [
                ("artifact", report.artifact_id),
                ("signed by", signers or "no trusted key"),
                ("target", report.target),
                ("took", f"{duration(report.seconds)}, {size(report.hashed_bytes)} hashed"),
            ]
        ),
        table(
            "steps",
            report.steps,
            ("step", lambda step: step.step),
            ("", lambda step: by_status(step.status)),
            ("", lambda step: step.detail),
        ),
        table(
            "variants",
            report.variants,
            ("variant", lambda variant: variant.name),
            ("", lambda variant: verdict(variant.runs, "does not run", "runs")),
            ("", lambda variant: ", ".join(reason.code for reason in variant.reasons)),
        ),
        refusals_table("reasons", report.refusals),
        findings_table(report.findings),
    ]


def explained_view(report: VerifyReport) -> Sheet:
    """The same, with the rule of the policy that decided, and why."""
    from aotc.report.sheets.policy import decision_view

    return verify_view(report) + decision_view(report.policy)


def _verdict(report: VerifyReport) -> tuple[str, str]:
    if not report.authentic:
        return "REFUSED: not vouched for", FAILED
    if report.verdict == "incompatible":
        return "INCOMPATIBLE: authentic, but no variant runs on this target", FAILED
    if report.verdict == "degraded":
        return "VERIFIED, degraded: runs, and a rebuild would run better", NOTICED
    return f"VERIFIED, {report.verdict}", PASSED
