"""What is tried instead of a form of a variant that computes wrongly, or does not run.

Where parts are compiled, the nodes to blame are left to the variant's next provider, and then all
that was compiled.  Else it is a lower level of ONNX Runtime's optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aotc.contract.finding import Finding
from aotc.contract.manifest.variant import DroppedVariant
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import Evidence, WrongForm
from aotc.errors import AotcError
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.fallback import drop, nothing_left
from aotc.stages.optimizing.levels import lower_level
from aotc.stages.planning.planned_variants import takes
from aotc.stages.prove import arithmetic_of
from aotc.stages.retrying.wrong_parts import WrongNodes, all_compiled, locate
from aotc.stages.timing import alternate
from aotc.stages.types import (
    AnalyzedModel,
    LoweredModel,
    ProvenModel,
    ProvenVariants,
    ReferenceRun,
    VariantPlan,
)

# Wrong answers, a graph that does not load or run, a crash.
_CODES: Final = frozenset({"AOTC-N001", "AOTC-R008", "AOTC-I013"})
# What was compiled may hang; to wait for another level on the CPU would take as long again.
_COMPILED_CODES: Final = _CODES | {"AOTC-I014"}
# How often single nodes of compiled parts are left out, before all of them are.
_ROUNDS: Final = 3
_COST_ROUNDS: Final = 7


@record
class Attempt:
    """A variant as it is tried: its plan, what providers shall not run, and what was tried before.

    `first` is why the first form was refused, and `replaced` that form.
    """

    plan: VariantPlan
    wrong: tuple[WrongNodes, ...] = ()
    findings: tuple[Finding, ...] = ()
    tried: tuple[WrongForm, ...] = ()
    first: AotcError | None = None
    replaced: LoweredModel | None = None
    rounds: int = 0


def next_attempts(
    attempts: Mapping[str, Attempt],
    failed: Sequence[tuple[LoweredModel, AotcError]],
    options: BuildOptions,
) -> dict[str, Attempt]:
    """What is tried next of the variants that failed, by name; empty where nothing is left."""
    found = {}
    for lowered, error in failed:
        name = lowered.plan.name
        following = _next(attempts[name], lowered, error, options)
        if following is not None:
            found[name] = following
    return found


def first_refusal(
    attempts: Mapping[str, Attempt], error: AotcError, item: LoweredModel | None = None
) -> AotcError:
    """Why a variant's first form was refused, with `error`, which ended the trials, beside it.

    `item` is the variant that failed; None: whichever has been tried otherwise.
    """
    name = item.plan.name if item is not None else None
    first = next(
        (each.first for key, each in attempts.items() if each.first and name in (None, key)), None
    )
    if first is None or first is error:
        return error
    if error not in first.also:
        first.also = (*first.also, error)
    return first


def drop_failed(
    attempts: Mapping[str, Attempt], made: ProvenVariants, options: BuildOptions
) -> list[DroppedVariant]:
    """All variants that are left out: those for which nothing is left to try are, where the
    fallback policy allows that.

    Raises the first refusal of one for which it does not, and where no variant is proven.
    """
    failed = [(first_refusal(attempts, error, item), item.plan) for item, error in made.failed]
    dropped = [*made.left_out, *(drop(error, plan, options) for error, plan in failed)]
    if not made.proven:
        raise nothing_left(dropped, [error for error, _ in failed])
    return dropped


def instead_of(
    proven: ProvenModel, attempts: Mapping[str, Attempt], options: BuildOptions
) -> ProvenModel:
    """A variant with what was tried before it in its evidence, and what the change costs."""
    plan = proven.plan
    attempt = attempts.get(plan.name)
    if attempt is None or not attempt.tried or attempt.replaced is None:
        return proven
    first, *others = attempt.tried
    # What crashed or hung would do so again.
    if attempt.first is None or attempt.first.code != "AOTC-N001":
        return replace(proven, evidence=replace(proven.evidence, instead_of=attempt.tried))
    analyzed = proven.lowered.analyzed
    try:
        (before, _), (after, _) = alternate(
            [attempt.replaced, proven.lowered],
            _reference(analyzed, plan, None),
            options,
            rounds=_COST_ROUNDS,
            folder=options.work / f"cost-{plan.name}",
            where=f"variant {plan.name}",
        )
        first = replace(first, slowdown=round(after / before, 3))
    except AotcError as error:
        # What does not run cannot be timed.
        options.tell(error.line())
    evidence = replace(proven.evidence, instead_of=(first, *others))
    return replace(proven, evidence=evidence)


def slowed_down(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-O003 with what each change of form costs, which no payload holds."""
    return tuple(
        Finding(
            code="AOTC-P013" if form.provider else "AOTC-O003",
            what=f"a call takes {form.slowdown:.2g} times as long as with {form.form}"
            f"{f' on {form.provider}' if form.provider else ''}, whose answers are wrong",
            where=f"variant {variant.name}",
        )
        for variant in evidence.variants
        for form in variant.instead_of
        if form.slowdown is not None
    )


def _next(
    attempt: Attempt, lowered: LoweredModel, error: AotcError, options: BuildOptions
) -> Attempt | None:
    """What is tried after `lowered` failed by `error`; None where nothing is left."""
    plan = lowered.plan
    if error.code not in (_COMPILED_CODES if lowered.contexts else _CODES) or not plan.steps:
        return None
    options.tell(error.line())
    attempt = replace(attempt, first=attempt.first or error, replaced=attempt.replaced or lowered)
    if lowered.contexts:
        return _without_wrong(attempt, lowered, error, options)
    level = lower_level(plan)
    if level is None:
        return None
    was = "all" if plan.optimization == "auto" else plan.optimization
    return replace(
        attempt,
        plan=replace(plan, optimization=level),
        findings=(
            *attempt.findings,
            Finding(
                code="AOTC-O003",
                what=f"level {was}: {_reason(error)}; level {level} is taken"[:500],
                where=f"variant {plan.name}",
            ),
        ),
        tried=(*attempt.tried, WrongForm(form=f"level {was}", reason=error.line()[:500])),
    )


def _without_wrong(
    attempt: Attempt, lowered: LoweredModel, error: AotcError, options: BuildOptions
) -> Attempt:
    specialized = lowered.optimized.specialized
    found: tuple[WrongNodes, ...] = ()
    if attempt.rounds < _ROUNDS and error.code == "AOTC-N001":
        tolerance: Tolerance = getattr(options.profile.parity, arithmetic_of(lowered))
        reference = _reference(specialized.analyzed, specialized.plan, error)
        try:
            found = locate(lowered, reference, tolerance, options)
        except AotcError as failure:
            options.tell(failure.line())
    found = found or all_compiled(lowered, _reason(error))
    forms = (
        WrongForm(
            form=each.text()[:300],
            provider=each.provider,
            reason=f"{error.line()}; {each.why} {each.error}".strip()[:500],
        )
        for each in found
    )
    return replace(
        attempt,
        plan=specialized.plan,
        wrong=(*attempt.wrong, *found),
        tried=(*attempt.tried, *forms),
        rounds=attempt.rounds + 1,
    )


def _reference(analyzed: AnalyzedModel, plan: VariantPlan, error: AotcError | None) -> ReferenceRun:
    """The fixture that failed, if the variant takes it as it is; else the first that it takes."""
    where = error.where if error is not None else ""
    named = [each for each in analyzed.references if where.endswith(f"fixture {each.name}")]
    exact = [
        each
        for each in (*named, *analyzed.references)
        if all(each.sizes.get(name) == size for name, size in plan.buckets.items())
        and takes(analyzed, plan, each)
    ]
    return (exact or list(analyzed.references))[0]


def _reason(error: AotcError) -> str:
    """What is wrong, without figures, which are not the same on every host."""
    return f"{error.code} {error.what}"
