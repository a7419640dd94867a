"""What `aotc verify` and `aotc trust` show: verdicts with their reasons, policies, and roots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.text import duration, size
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Sheet,
    Table,
    by_status,
    failed,
    findings_table,
    refusals_table,
    short,
    table,
    verdict,
    with_titles,
)
from aotc.spec.reports import VerifyReport, refused_because

if TYPE_CHECKING:
    from aotc.spec.command_reports import RootReport, TrustReport
    from aotc.spec.reports import ArtifactRelease, PolicyDecision, RequirementResult


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
                ("from", f"oci://{report.origin}" if report.origin else ""),
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
            ("", lambda variant: variant.unproven and failed("NOT PROVEN")),
            ("", lambda variant: [with_titles(each.code) for each in variant.reasons]),
        ),
        refusals_table("reasons", report.refusals),
        findings_table(report.findings),
    ]


def explained_view(report: VerifyReport) -> Sheet:
    """The same, with the rule of the policy that decided, and why."""
    return [*verify_view(report), *decision_sheet(report.policy)]


def _verdict(report: VerifyReport) -> tuple[str, str]:
    if not report.authentic:
        return f"REFUSED: {refused_because(report)}", FAILED
    if report.verdict == "authentic":
        return "AUTHENTIC: whether it runs on a host was not asked", PASSED
    if report.verdict == "incompatible":
        return "INCOMPATIBLE: authentic, but no variant runs on this target", FAILED
    if report.verdict == "degraded":
        return f"VERIFIED, degraded: {_lacking(report)}", NOTICED
    return f"VERIFIED, {report.verdict}", PASSED


def _lacking(report: VerifyReport) -> str:
    """What an artifact that runs lacks to be optimal."""
    lacks = []
    if any(finding.code == "AOTC-C010" for finding in report.findings):
        lacks.append("not with its best variant")
    if any(each.unproven and each.name == report.best for each in report.variants):
        lacks.append(f"{report.best} is NOT PROVEN")
    return "runs" + (f", but {', and '.join(lacks)}" if lacks else "")


def decision_sheet(decision: PolicyDecision | None) -> Sheet:
    """Which rule decided, and each requirement with the attestations that were looked at."""
    if decision is None:
        return [Facts([("policy", "none decided")])]
    policy = [
        ("policy", f"{decision.policy}, sequence {decision.sequence}"),
        ("signed by", ", ".join(short(key) for key in decision.roots) or "no one: unsigned"),
        ("expires", decision.expires),
        ("artifact", decision.artifact),
        ("channel", _channel(decision)),
        ("rule", decision.rule or "none decided"),
        *_repository(decision),
        ("release", _release(decision.release)),
        ("seen before", _release(decision.highest_release)),
        ("decision", "accepted" if decision.accepted else "refused"),
    ]
    rules = [
        (rule.rule, rule.name, rule.channel, "matches" if rule.matches else "")
        for rule in decision.rules
    ]
    considered = [
        (
            each.path.rpartition("/")[2],
            each.id,
            short(each.key_id),
            f"{each.code} {each.reason}" if each.code else "counts",
        )
        for need in decision.requirements
        for each in need.considered
    ]
    return [
        Table("policy", ("",), policy),
        Table("rules", ("name", "channel", "result"), rules),
        Table(
            "requirements",
            ("result", "signers", "count"),
            [_summary(need) for need in decision.requirements],
        ),
        Table("attestations", ("signer", "key", "result"), considered),
    ]


def _channel(decision: PolicyDecision) -> str:
    origin = {"argument": "asked for", "approval": "of the approvals"}
    if not decision.channel_source:
        return "none"
    return f"{decision.channel}, {origin[decision.channel_source]}"


def _repository(decision: PolicyDecision) -> list[tuple[str, str]]:
    """Where an artifact in a registry is, and where the rule takes artifacts from."""
    if not decision.repository:
        return []
    taken = " or ".join(decision.repositories) or "any"
    return [("repository", f"{decision.repository}, the rule takes {taken}")]


def _summary(need: RequirementResult) -> tuple[str, str, str, str]:
    keys = "distinct key" if need.threshold == 1 else "distinct keys"
    counted = f"{need.distinct} of {need.threshold} {keys}"
    return need.predicate, "met" if need.met else "not met", ", ".join(need.signers), counted


def _release(release: ArtifactRelease | None) -> str:
    if release is None:
        return "none"
    return f"{release.kind} {release.value}" if release.value else "says nothing"


def policy_view(answer: TrustReport) -> Sheet:
    """A policy, in short."""
    revoked = [f"{name} ({why})" if why else name for name, why in answer.revoked_keys.items()]
    roots = ""
    if answer.counting is not None:
        roots = f"{len(answer.counting)} of {answer.threshold} so far"
    return [
        Heading(answer.file, "usable on this host now" if answer.checked else ""),
        Facts(
            [
                ("policy", f"{answer.name}, sequence {answer.sequence}"),
                ("expires", answer.expires),
                ("sha256", answer.sha256),
                ("rules", ", ".join(answer.rules)),
                ("keys", ", ".join(answer.keys)),
                ("revoked keys", ", ".join(revoked)),
                ("revoked artifacts", answer.revoked_artifacts),
                ("signed by", ", ".join(short(key) for key in answer.signed_by)),
                ("signature", answer.bundle),
                ("roots of this host", roots),
            ]
        ),
        findings_table(answer.findings),
    ]


def root_view(answer: RootReport) -> Sheet:
    """A host's root keys."""
    keys = ", ".join(short(key) for key in answer.keys)
    rows = [
        ("policy", answer.policy),
        ("it needs", f"{answer.threshold} of {len(answer.keys)} roots"),
        ("roots", keys),
    ]
    return [Heading(answer.file), Facts(rows)]
