"""What is tried when a form of a variant computes wrongly or does not run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from aotc.base.errors import AotcError
from aotc.base.records import record, replace
from aotc.pipeline.blame import precision_is_to_blame, with_evidence_of_blame, with_nodes_to_blame
from aotc.pipeline.lower import dropped_variant, is_budget, no_variant_left, without_graphs
from aotc.pipeline.optimizer_settings import (
    channels_first,
    is_fused,
    lower_level,
    may_change_layout,
    may_fuse,
    not_fused,
)
from aotc.pipeline.options import BuildOptions
from aotc.pipeline.plan import unpadded_runs
from aotc.pipeline.prove import tolerance_of
from aotc.pipeline.timing import time_alternately
from aotc.pipeline.types import (
    AnalyzedModel,
    LoweredModel,
    ProvenModel,
    ProvenVariants,
    ReferenceRun,
    VariantPlan,
)
from aotc.pipeline.wrong_parts import WrongNodes, all_compiled_nodes, locate_wrong_nodes
from aotc.spec.codec import Json
from aotc.spec.evidence import Evidence, WrongForm
from aotc.spec.payload import Finding
from aotc.spec.providers import CudaOptions
from aotc.spec.variant import DroppedVariant

# Results of the optimizer that were started earlier, by variant.
Ahead = Mapping[str, Future[Json]]
# Wrong results, a graph that does not load or run, a crash.
_CODES: Final = frozenset({"AOTC-N001", "AOTC-R008", "AOTC-I013"})
# Compiled parts may hang; on the CPU another level would take as long again.
_COMPILED_CODES: Final = _CODES | {"AOTC-I014"}
# How often single nodes of compiled parts are left out, before all of them are.
_MAX_ROUNDS: Final = 3
_COST_ROUNDS: Final = 7
# Codes of a variant's proof: wrong results, a graph that does not run, a crash.
_EMPTY_CODES = frozenset({"AOTC-N001", "AOTC-R005", "AOTC-R008", "AOTC-I013"})


@record
class Settled:
    """Variants that finally passed or failed, and the last attempt of each, by name."""

    variants: ProvenVariants
    attempts: Mapping[str, Attempt]


def settle(
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    ahead: Ahead,
    run: Callable[[Sequence[Attempt], BuildOptions, Ahead], ProvenVariants],
    *,
    others: bool = True,
) -> Settled:
    """`run` all variants; those that fail are run in other forms until nothing is left to try.

    `ahead` is used for the first form only, and without `others` there is no other.  Raises what
    `run` raises, after the first refusal if other forms were tried.
    """
    attempts = {plan.name: Attempt(plan=plan) for plan in plans}
    at_round, number = options, 0
    while True:
        try:
            made = run(list(attempts.values()), at_round, ahead)
            following = next_attempts(attempts, made.failed, at_round) if others else {}
        except AotcError as error:
            raise first_refusal(attempts, error) from None
        if not following:
            return Settled(variants=made, attempts=attempts)
        attempts, ahead, number = {**attempts, **following}, {}, number + 1
        at_round = options.with_subfolder(f"again-{number}")


# The next form of a variant that computes wrongly or does not run.
#
# On CUDA, images with channels last are first tried with channels first, and a graph that was fused
# without that. One of which ONNX Runtime captures no CUDA graphs runs without, if the profile
# allows it. If parts are compiled, first the nodes at fault move to the variant's next provider,
# and then all compiled ones. Otherwise a lower level of ONNX Runtime's optimizer is tried.


@record
class Attempt:
    """One attempt at a variant: its plan, nodes that providers must not run, and earlier forms.

    `first` is why the first form was refused, and `replaced` is that form.
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
    """The next attempts of the variants that failed, by name; empty if nothing is left to try."""
    found = {}
    for lowered, error in failed:
        name = lowered.plan.name
        next_attempt = _next_attempt(attempts[name], lowered, error, options)
        if next_attempt is not None:
            found[name] = next_attempt
    return found


def first_refusal(
    attempts: Mapping[str, Attempt],
    error: AotcError,
    plan: VariantPlan | None = None,
    *,
    measured: bool = False,
) -> AotcError:
    """Why a variant's first form was refused; `error`, which ended the attempts, is in `also`.

    Only `error` where the last form was `measured`, and computes rightly: what it costs is then too
    much.  `plan` is of the variant that failed; None: any variant with another attempt.
    """
    if measured and all(map(is_budget, (error, *error.also))):
        return error
    name = plan.name if plan is not None else None
    first = next(
        (
            attempt.first
            for key, attempt in attempts.items()
            if attempt.first and name in (None, key)
        ),
        None,
    )
    if first is None or first is error:
        return error
    if error not in first.also:
        first.also = (*first.also, error)
    return first


def drop_failed(
    attempts: Mapping[str, Attempt], made: ProvenVariants, options: BuildOptions
) -> tuple[list[DroppedVariant], list[AotcError]]:
    """All variants that are left out, and the refusals of those that the policy does not leave out.

    Those without a remaining form are included, and each refusal is its variant's first.  Raises
    the refusals of the variants that are left out if these are all.
    """
    failed = [
        (_of_gates(_refusal(attempts, item, error, options), item.plan), item.plan)
        for item, error in made.failed
    ]
    refusals = [
        _of_gates(first_refusal(attempts, error, plan), plan) for plan, error in made.refused
    ]
    dropped = list(made.left_out)
    for error, plan in failed:
        try:
            dropped.append(dropped_variant(error, plan, options))
        except AotcError as refusal:
            refusals.append(refusal)
    if not made.proven and not refusals:
        raise no_variant_left(dropped, [error for error, _ in failed])
    return dropped, refusals


def _refusal(
    attempts: Mapping[str, Attempt], lowered: LoweredModel, error: AotcError, options: BuildOptions
) -> AotcError:
    refused = first_refusal(attempts, error, lowered.plan, measured=True)
    return with_nodes_to_blame(refused, lowered, options)


def with_tried_forms(
    proven: ProvenModel, attempts: Mapping[str, Attempt], options: BuildOptions
) -> ProvenModel:
    """The variant with its earlier forms in the evidence, and the cost of the change."""
    proven = with_evidence_of_blame(proven, options)
    plan = proven.plan
    attempt = attempts.get(plan.name)
    if attempt is None or not attempt.tried or attempt.replaced is None:
        return proven
    first, *others = attempt.tried
    # A form that crashed or hung would do so again.
    if attempt.first is None or attempt.first.code != "AOTC-N001":
        return replace(proven, evidence=replace(proven.evidence, replaced_forms=attempt.tried))
    analyzed = proven.lowered.analyzed
    try:
        timed, _ = time_alternately(
            [attempt.replaced, proven.lowered],
            _reference(analyzed, plan, None),
            options,
            rounds=_COST_ROUNDS,
            folder=options.work / f"cost-{plan.name}",
            where=f"variant {plan.name}",
        )
        for item in timed:
            if isinstance(item, AotcError):
                raise item
        before, after = (item[0] for item in timed if not isinstance(item, AotcError))
        first = replace(first, slowdown=round(after / before, 3))
    except AotcError as error:
        # A form that does not run cannot be timed.
        options.announce(error.line())
    evidence = replace(proven.evidence, replaced_forms=(first, *others))
    return replace(proven, evidence=evidence)


def slowdown_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-O003 or P013 with the cost of each change of form, which no payload contains."""
    return tuple(
        Finding(
            code="AOTC-P013" if form.provider else "AOTC-O003",
            what=f"a call takes {form.slowdown:.2g} times as long as with {form.form}"
            f"{f' on {form.provider}' if form.provider else ''}, whose answers are wrong",
            where=f"variant {variant.name}",
        )
        for variant in evidence.variants
        for form in variant.replaced_forms
        if form.slowdown is not None
    )


def _next_attempt(
    attempt: Attempt, lowered: LoweredModel, error: AotcError, options: BuildOptions
) -> Attempt | None:
    """The attempt after `lowered` failed with `error`; None if nothing is left to try."""
    plan = lowered.plan
    # The layout first: where a graph has both, fusion gains more.
    refused_graphs = error.code == "AOTC-P014" and lowered.captures
    with_options = partial(_with_options, attempt, lowered, error, options)
    if (error.code in _CODES or refused_graphs) and may_change_layout(plan, lowered.optimized):
        finding = channels_first(plan, f"{_reason(error)}; channels come first")
        return with_options(replace(plan.cuda, layout="nchw"), finding, "channels last on CUDA")
    if error.code in _CODES and is_fused(lowered.optimized.specialized) and may_fuse(plan):
        finding = not_fused(plan, f"{_reason(error)}; it is used unfused")
        return with_options(replace(plan.cuda, fusion="none"), finding, "fusion for CUDA")
    if refused_graphs and plan.cuda.graphs.on_refusal == "run":
        cuda = replace(plan.cuda, graphs=replace(plan.cuda.graphs, capture="none"))
        finding = without_graphs(f"variant {plan.name}", error.found)
        return with_options(cuda, finding, "CUDA graphs")
    if (
        error.code not in (_COMPILED_CODES if lowered.contexts else _CODES)
        or not plan.may_lower_level
    ):
        return None
    options.announce(error.line())
    attempt = replace(
        attempt, first=attempt.first or _of_proof(error), replaced=attempt.replaced or lowered
    )
    if lowered.contexts:
        return _without_wrong(attempt, lowered, error, options)
    level = lower_level(plan)
    # What precision makes inexact stays so at every level.
    if level is None or precision_is_to_blame(lowered, error, options):
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


def _of_gates(error: AotcError, plan: VariantPlan) -> AotcError:
    """`error` without AOTC-P014 where the profile lets graphs run that are not captured.

    Such a refusal only asks for the next form, and is none where that was not the last.
    """
    if plan.cuda.graphs.on_refusal != "run":
        return error
    others = [copy.copy(each) for each in error.every() if each.code != "AOTC-P014"]
    if not others:
        return error
    for each in others:
        each.also = ()
    others[0].also = tuple(others[1:])
    return others[0]


def _of_proof(error: AotcError) -> AotcError:
    """`error` without the budgets that this form exceeds: the last form's are what counts."""
    kept = copy.copy(error)
    kept.also = tuple(other for other in error.also if not is_budget(other))
    return kept


def _with_options(
    attempt: Attempt,
    lowered: LoweredModel,
    error: AotcError,
    options: BuildOptions,
    cuda: CudaOptions,
    finding: Finding,
    form: str,
) -> Attempt:
    """The attempt with other options of CUDA, after `form` failed."""
    options.announce(error.line())
    return replace(
        attempt,
        plan=replace(lowered.plan, cuda=cuda),
        first=attempt.first or _of_proof(error),
        replaced=attempt.replaced or lowered,
        findings=(*attempt.findings, finding),
        tried=(*attempt.tried, WrongForm(form=form, reason=error.line()[:500])),
    )


def _without_wrong(
    attempt: Attempt, lowered: LoweredModel, error: AotcError, options: BuildOptions
) -> Attempt:
    specialized = lowered.optimized.specialized
    found: tuple[WrongNodes, ...] = ()
    if attempt.rounds < _MAX_ROUNDS and error.code == "AOTC-N001":
        reference = _reference(specialized.analyzed, specialized.plan, error)
        try:
            found = locate_wrong_nodes(lowered, reference, tolerance_of(lowered, options), options)
        except AotcError as failure:
            options.announce(failure.line())
    found = found or all_compiled_nodes(lowered, _reason(error))
    forms = (
        WrongForm(
            form=wrong.text()[:300],
            provider=wrong.provider,
            reason=f"{error.line()}; {wrong.why} {wrong.error}".strip()[:500],
        )
        for wrong in found
    )
    return replace(
        attempt,
        plan=specialized.plan,
        wrong=(*attempt.wrong, *found),
        tried=(*attempt.tried, *forms),
        rounds=attempt.rounds + 1,
    )


def _reference(analyzed: AnalyzedModel, plan: VariantPlan, error: AotcError | None) -> ReferenceRun:
    """The failed fixture if the variant accepts it unpadded, else the first that it accepts."""
    where = error.where if error is not None else ""
    references = analyzed.references_of(plan)
    named = [reference for reference in references if where.endswith(f"fixture {reference.name}")]
    return (unpadded_runs(analyzed, plan, (*named, *references)) or references)[0]


def _reason(error: AotcError) -> str:
    """What is wrong, without numbers, which differ between hosts."""
    return f"{error.code} {error.what}"


# ONNX Runtime's kernels were seen to leave memory unset for no elements; then the range begins at
# 1.


def fails_at_empty_sizes(analyzed: AnalyzedModel, errors: Sequence[AotcError]) -> bool:
    """Whether a variant fails only where a dim that nobody bounded has size 0.

    `errors` are the variants', each with its further ones; budgets that it exceeds do not count.
    """
    probed = {name for name, dim in analyzed.domain.dims.items() if dim.origin == "probed"}
    empty = {
        reference.name
        for reference in analyzed.references
        if any(reference.sizes.get(name) == 0 for name in probed)
    }
    for error in errors:
        failures = [each for each in (error, *error.also) if not is_budget(each)]
        if failures and all(
            failure.code in _EMPTY_CODES and failure.where.rpartition("fixture ")[2] in empty
            for failure in failures
        ):
            return True
    return False


def empty_sizes_finding(error: AotcError) -> Finding:
    """The finding AOTC-S027: because of `error`, ranges that included 0 begin above it."""
    return Finding(
        code="AOTC-S027",
        what=f"size 0 is left out, because a variant fails there: {error.code} {error.what}",
        where=error.where,
    )
