"""What `aotc verify` shows: the verdict, the steps, and every reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aotc.base.errors import expected_and_found
from aotc.base.text import duration, size
from aotc.cli.terminal import (
    FAILED,
    NOTICED,
    PASSED,
    Cell,
    by_status,
    facts,
    failed,
    findings_view,
    heading,
    passed,
    section,
    sections,
    short,
)
from aotc.spec.reports import Refusal, VerifyReport, refused_because

if TYPE_CHECKING:
    from rich.console import RenderableType


def verify_view(report: VerifyReport) -> list[RenderableType]:
    """The verdict of the gate, its steps, and every reason."""
    status, style = _verdict(report)
    names = report.signer_names or ("",) * len(report.signers)
    signers = ", ".join(
        f"{name} (key {short(key_id)})" if name else short(key_id)
        for key_id, name in zip(report.signers, names, strict=False)
    )
    if signers and report.development_key:
        signers += " (this user's development key)"
    parts = [
        heading(report.artifact, status, style),
        facts(
            [
                ("artifact", report.artifact_id),
                ("signed by", signers or "no trusted key"),
                ("target", report.target),
                ("took", f"{duration(report.seconds)}, {size(report.hashed_bytes)} hashed"),
            ]
        ),
        section(
            "steps",
            ("", ""),
            [(step.step, by_status(step.status), step.detail) for step in report.steps],
        ),
    ]
    variants = [
        (
            variant.name,
            passed("runs") if variant.runs else failed("does not run"),
            ", ".join(reason.code for reason in variant.reasons),
        )
        for variant in report.variants
    ]
    return [
        *parts,
        *sections("variants", ("", ""), variants),
        *refusals_view("reasons", report.refusals),
        *findings_view(report.findings),
    ]


def _verdict(report: VerifyReport) -> tuple[str, str]:
    if not report.authentic:
        return f"REFUSED: {refused_because(report)}", FAILED
    if report.verdict == "incompatible":
        return "INCOMPATIBLE: authentic, but no variant runs on this target", FAILED
    if report.verdict == "degraded":
        return "VERIFIED, degraded: runs, and a rebuild would run better", NOTICED
    return f"VERIFIED, {report.verdict}", PASSED


# Refusals of a report as a table: the code, the reason, and the fix below it.


def refusals_view(title: str, refusals: Sequence[Refusal]) -> list[RenderableType]:
    """A table with one row for each refusal; nothing where there is none."""
    rows: list[tuple[str, Cell]] = []
    for refusal in refusals:
        where = f"{refusal.where}: " if refusal.where else ""
        fix = (refusal.fix,) if refusal.fix else ()
        what = refusal.what + expected_and_found(refusal.expected, refusal.found)
        rows.append((failed(refusal.code), (f"{where}{what}", *fix)))
    return sections(title, ("",), rows)
