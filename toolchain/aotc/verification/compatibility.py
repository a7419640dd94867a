"""Whether an authentic artifact runs on a host, with which variant, and how well."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from aotc.contract.finding import Finding
from aotc.contract.manifest.document import Manifest
from aotc.contract.manifest.requirements import Requirements
from aotc.contract.manifest.variant import Variant
from aotc.contract.results.reports import Refusal, VariantVerdict, Verdict
from aotc.contract.target import Target
from aotc.errors import AotcError
from aotc.records import record
from aotc.verification.checks import checks
from aotc.verification.checks.base import Check


@record
class CompatibilityResult:
    """`best` names the variant to load, and is None where the verdict is incompatible."""

    verdict: Verdict
    best: str | None
    variants: tuple[VariantVerdict, ...]
    findings: tuple[Finding, ...]
    refusals: tuple[Refusal, ...]


def by_preference(variants: Iterable[Variant]) -> list[Variant]:
    """As the manifest has them; of equal providers those for one exact ISA, the faster, first.

    After them come those that require some features, and then those that require none.
    """
    groups: dict[tuple[str, ...], list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.providers, []).append(variant)
    return [variant for group in groups.values() for variant in sorted(group, key=_generality)]


def _needs_features(variant: Variant, best: Variant, verdict: VariantVerdict) -> bool:
    """Whether a variant is but `best` for CPUs with more: a rebuild here would give no other."""
    return (
        variant.providers == best.providers
        and not variant.requirements.isa_exact
        and {reason.code for reason in verdict.reasons} == {"AOTC-C004"}
    )


def _generality(variant: Variant) -> tuple[bool, bool]:
    return not variant.requirements.isa_exact, not variant.requirements.isa


def _judges() -> list[Check]:
    return [check() for check in checks().values()]


def asks_for_gpus(needs: Iterable[Requirements]) -> bool:
    """Whether any check of these must know the host's GPUs and their driver."""
    judges = _judges()
    return any(check.asks_for_gpus(each) for each in needs for check in judges)


def judge(
    manifest: Manifest, host: Target, qualified: Collection[str] | None = None
) -> CompatibilityResult:
    """Run every check on every variant, and grade the best that runs.

    `qualified` are the variants that the policy lets load here; None: all of them.
    """
    judges = _judges()
    verdicts: dict[str, VariantVerdict] = {}
    findings: list[Finding] = []
    for variant in manifest.variants:
        reasons: list[Refusal] = []
        if qualified is not None and variant.name not in qualified:
            reasons.append(_at(_unqualified(), variant))
        for check in judges:
            for result in check.run(variant.requirements, host):
                if isinstance(result, Refusal):
                    reasons.append(_at(result, variant))
                elif result not in findings:
                    findings.append(result)
        verdicts[variant.name] = VariantVerdict(
            name=variant.name, runs=not reasons, reasons=tuple(reasons)
        )
    ordered = by_preference(manifest.variants)
    best = next((variant for variant in ordered if verdicts[variant.name].runs), None)
    listed = tuple(verdicts[variant.name] for variant in manifest.variants)
    if best is None:
        return CompatibilityResult(
            verdict="incompatible",
            best=None,
            variants=listed,
            findings=tuple(findings),
            refusals=(
                refusal_of(_no_variant(host, listed)),
                *(reason for verdict in listed for reason in verdict.reasons),
            ),
        )
    verdict: Verdict = "optimal"
    passed_over = ordered[: ordered.index(best)]
    needy = [each for each in passed_over if _needs_features(each, best, verdicts[each.name])]
    if needy:
        names = ", ".join(f"{each.name} ({', '.join(each.requirements.isa)})" for each in needy)
        findings.append(
            Finding(
                code="AOTC-C014",
                what=f"quicker, for CPUs with more features: {names}; {best.name} serves",
                where=f"target {host.name}",
            )
        )
    passed_over = [each for each in passed_over if each not in needy]
    if passed_over:
        verdict = "degraded"
        names = ", ".join(variant.name for variant in passed_over)
        findings.append(
            Finding(
                code="AOTC-C010",
                what=f"{names} does not fit this host, and {best.name} serves",
                where=f"target {host.name}",
            )
        )
    if best.parity.status == "not-run":
        verdict = "degraded"
        findings.append(
            Finding(
                code="AOTC-N002",
                what=f"{best.name} was not proven: {best.parity.reason or 'no reason given'}",
                where=f"variant {best.name}",
            )
        )
    return CompatibilityResult(
        verdict=verdict, best=best.name, variants=listed, findings=tuple(findings), refusals=()
    )


def refusal_of(error: AotcError) -> Refusal:
    """An error as a record; what it holds in `also` is left out."""
    return Refusal(
        code=error.code,
        what=error.what,
        where=error.where,
        expected=error.expected,
        found=error.found,
        fix=error.fix,
    )


def error_of(refusal: Refusal) -> AotcError:
    """A record as an error."""
    return AotcError(
        refusal.code,
        refusal.what,
        where=refusal.where,
        expected=refusal.expected,
        found=refusal.found,
        fix=refusal.fix,
    )


def _unqualified() -> Refusal:
    return refusal_of(
        AotcError(
            "AOTC-G033", "the policy wants this variant qualified for the target, and it is not"
        )
    )


def _at(refusal: Refusal, variant: Variant) -> Refusal:
    return Refusal(
        code=refusal.code,
        what=refusal.what,
        where=f"variant {variant.name}",
        expected=refusal.expected,
        found=refusal.found,
        fix=refusal.fix,
    )


def _no_variant(host: Target, verdicts: Sequence[VariantVerdict]) -> AotcError:
    # The first reason of each, so that one line says why; all of them follow it.
    reasons = [
        f"{each.name}: {each.reasons[0].code} {each.reasons[0].what}"
        for each in verdicts
        if each.reasons
    ]
    return AotcError(
        "AOTC-C009",
        "no variant runs on this host",
        where=f"target {host.name}",
        found="; ".join(dict.fromkeys(reasons))[:500],
    )
