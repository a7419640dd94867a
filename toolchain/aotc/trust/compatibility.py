"""Whether an authentic artifact runs on a host, and with which variant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.spec.manifest import Manifest
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal, VariantVerdict, Verdict
from aotc.spec.target import Target
from aotc.spec.variant import Variant
from aotc.trust.checks import checks
from aotc.trust.checks.base import Check


@record
class CompatibilityResult:
    """The verdict, and the result of each variant.

    `best` is the name of the variant to load, or None if the verdict is incompatible.
    """

    verdict: Verdict
    best: str | None
    variants: tuple[VariantVerdict, ...]
    findings: tuple[Finding, ...]
    refusals: tuple[Refusal, ...]


def by_preference(variants: Iterable[Variant]) -> list[Variant]:
    """Variants in order of preference: as in the manifest, but for equal providers by their ISA.

    Of these, variants for exactly one ISA come first, as they are the fastest, then those that
    require some features, then those that require none.
    """

    def generality(variant: Variant) -> tuple[bool, bool]:
        return not variant.requirements.isa_exact, not variant.requirements.isa

    groups: dict[tuple[str, ...], list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.providers, []).append(variant)
    return [variant for group in groups.values() for variant in sorted(group, key=generality)]


def probe_host(
    manifest: Manifest,
    plugins: Mapping[str, Path] | None = None,
    custom_ops: Sequence[Path] | None = None,
) -> Target:
    """This host, probed for what the checks of a manifest's variants need to know.

    `plugins` are libraries of further plugins by their provider, as ONNX Runtime names it, and
    `custom_ops` are libraries of custom operators (None or none: those of the environment).  Raises
    AOTC-I001 if one that is needed cannot be read.
    """
    from aotc.host.probe import probe

    needs = [variant.requirements for variant in manifest.variants]
    asking = [(check, need) for check in _all_checks() for need in needs]
    host = probe(
        gpus=any(check.asks_for_gpus(need) for check, need in asking),
        driver=any(check.asks_for_driver(need) for check, need in asking),
        digests=any(need.plugins for need in needs),
        libraries=tuple(sorted((plugins or {}).items())),
    )
    if not any(need.custom_ops for need in needs):
        return host
    from aotc.host.custom_op_libraries import digests_of, python_abi, stated_custom_ops

    required = any(each.path is None for need in needs for each in need.custom_ops)
    named = digests_of(stated_custom_ops(custom_ops)) if required else {}
    return replace(host, python=python_abi(), custom_ops=named)


def judge(
    manifest: Manifest,
    host: Target,
    qualified: Collection[str] | None = None,
    accepted: Collection[str] = (),
) -> CompatibilityResult:
    """Run every check on every variant, and find the preferred variant that runs on the host.

    `qualified` are the names of the variants that a policy allows on this host; None: all.  Those
    `accepted` on a host like it are proven there, whatever the build could prove.
    """
    all_checks = _all_checks()
    verdicts: dict[str, VariantVerdict] = {}
    findings: list[Finding] = []
    for variant in manifest.variants:
        where = f"variant {variant.name}"
        reasons: list[Refusal] = []
        if qualified is not None and variant.name not in qualified:
            what = "the policy requires a qualification of this variant for the target"
            reasons.append(refusal_of(AotcError("AOTC-G033", what, where=where)))
        for check in all_checks:
            for result in check.run(variant.requirements, host):
                if isinstance(result, Refusal):
                    reasons.append(replace(result, where=where))
                elif result not in findings:
                    findings.append(result)
        proven = variant.parity.status == "passed" or variant.name in accepted
        verdicts[variant.name] = VariantVerdict(
            name=variant.name,
            runs=not reasons,
            reasons=tuple(reasons),
            unproven="" if proven else variant.parity.reason or "no reason given",
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
    preferred = ordered[: ordered.index(best)]
    for_other_cpus = [
        variant
        for variant in preferred
        if _lacks_only_features(variant, best, verdicts[variant.name])
    ]
    if for_other_cpus:
        names = ", ".join(
            f"{variant.name} ({', '.join(variant.requirements.isa)})" for variant in for_other_cpus
        )
        findings.append(
            Finding(
                code="AOTC-C014",
                what=f"faster, for CPUs with more features: {names}; {best.name} is used",
                where=f"target {host.name}",
            )
        )
    # What was merged from other hosts says nothing of what a build on this one would give, unless
    # this one has the GPU that it is for.
    built = {each.artifact_id for each in manifest.origins(best.name)}
    unfit = [
        variant
        for variant in preferred
        if variant not in for_other_cpus
        and (
            not built
            or any(each.artifact_id in built for each in manifest.origins(variant.name))
            or _has_its_gpu(host, variant, verdicts[variant.name])
        )
    ]
    if unfit:
        verdict = "degraded"
        names = ", ".join(variant.name for variant in unfit)
        findings.append(
            Finding(
                code="AOTC-C010",
                what=f"{names} does not fit this host; {best.name} is used",
                where=f"target {host.name}",
            )
        )
    if verdicts[best.name].unproven:
        verdict = "degraded"
    return CompatibilityResult(
        verdict=verdict, best=best.name, variants=listed, findings=tuple(findings), refusals=()
    )


def _all_checks() -> list[Check]:
    return [check() for check in checks().values()]


def _lacks_only_features(variant: Variant, best: Variant, verdict: VariantVerdict) -> bool:
    """Whether a variant differs from `best` only in the CPU features that it requires.

    A build on this host would not give a better variant then.
    """
    return (
        variant.providers == best.providers
        and not variant.requirements.isa_exact
        and {reason.code for reason in verdict.reasons} == {"AOTC-C004"}
    )


def _has_its_gpu(host: Target, variant: Variant, verdict: VariantVerdict) -> bool:
    """Whether a variant for GPUs fails on this host's for what is installed there alone.

    One for another version of ONNX Runtime may have another beside it.
    """
    installed = {"AOTC-C006", "AOTC-C007", "AOTC-C012"}
    return (
        bool(host.gpus)
        and variant.requirements.nvidia_driver_min is not None
        and {reason.code for reason in verdict.reasons} <= installed
    )


def refusal_of(error: AotcError) -> Refusal:
    """An error as a record, without the errors in `also`."""
    return Refusal(
        code=error.code,
        what=error.what,
        where=error.where,
        expected=error.expected,
        found=error.found,
        fix=error.fix,
        place=error.place,
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
        place=refusal.place,
    )


def _no_variant(host: Target, verdicts: Sequence[VariantVerdict]) -> AotcError:
    # One line with the first reason of each variant; all reasons follow it.
    reasons = [
        f"{verdict.name}: {verdict.reasons[0].code} {verdict.reasons[0].what}"
        for verdict in verdicts
        if verdict.reasons
    ]
    return AotcError(
        "AOTC-C009",
        "no variant runs on this host",
        where=f"target {host.name}",
        found="; ".join(dict.fromkeys(reasons))[:500],
    )
