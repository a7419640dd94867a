"""The attempts of a build: what goes through the stages, and what is tried where that fails."""

from __future__ import annotations

import copy
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Final, Generic, TypeVar

import onnx

from aotc.base.errors import AotcError
from aotc.base.records import field, record, replace
from aotc.base.text import listed
from aotc.graph.view import constant_tensors
from aotc.pipeline.blame import (
    inexact_answers,
    precision_is_to_blame,
    with_evidence_of_blame,
    with_nodes_to_blame,
)
from aotc.pipeline.context import BuildState
from aotc.pipeline.integers import with_exact_blocks
from aotc.pipeline.lower import dropped_variant, is_budget, no_variant_left
from aotc.pipeline.optimize import lower_level
from aotc.pipeline.partition import WrongNodes, all_compiled_nodes, locate_wrong_nodes
from aotc.pipeline.plan import unpadded_runs
from aotc.pipeline.prove import arithmetic_of, tolerance_of
from aotc.pipeline.timing import time_alternately
from aotc.pipeline.types import (
    AnalyzedModel,
    LoweredModel,
    LoweredVariants,
    ProvenModel,
    ProvenVariants,
    ReferenceRun,
    VariantPlan,
)
from aotc.providers.base import UNCAPTURED, WRONG, GivenUp
from aotc.providers.named_backends import backend_of
from aotc.spec.codec import Json
from aotc.spec.evidence import Evidence, WrongForm
from aotc.spec.payload import Finding
from aotc.spec.precision import allowed_share
from aotc.spec.shapes import EMPTY, FURTHER
from aotc.spec.variant import DroppedVariant

Result = TypeVar("Result")
# Results of the optimizer that were started earlier, by variant.
Ahead = Mapping[str, Future[Json]]
# Compiled parts may hang; on the CPU another level would take as long again.
_COMPILED_CODES: Final = WRONG | {"AOTC-I014"}
# How often single nodes of compiled parts are left out, before all of them are.
_MAX_ROUNDS: Final = 3
_COST_ROUNDS: Final = 7
# How often further kinds of nodes stay in float32: what many kernels fail of is not theirs.
_FAILING_ROUNDS: Final = 4
_EMPTY_CODES: Final = WRONG | {"AOTC-R005", "AOTC-I126"}
# As ONNX Runtime tells which node failed, and what its change of layouts adds to the name.
_FAILED: Final = re.compile(r"while running \S+ node\. Name:'([^']+)'")
_OF_LAYOUT: Final = re.compile(r"_token_\d+$")
_EXACT_BLOCKS: Final = "AOTC-N065"
_FAILING: Final = "AOTC-N081"
_QUICK_BLOCKS: Final = "the quickest blocks of weights"


@record
class Attempt:
    """What goes through the stages at once: variants, each in its current form.

    `ahead` are results of the optimizer that were started earlier, `lowered` what is proven alone.
    """

    forms: tuple[Form, ...]
    state: BuildState
    ahead: Ahead = field(default_factory=dict)
    lowered: LoweredVariants | None = None

    @property
    def names(self) -> str:
        """The names of the variants."""
        return ", ".join(form.plan.name for form in self.forms)

    @property
    def wrong(self) -> dict[str, tuple[WrongNodes, ...]]:
        """Nodes that providers must not run, by variant."""
        return {form.plan.name: form.wrong for form in self.forms}

    @property
    def findings(self) -> list[Finding]:
        """Why variants are not in their first form."""
        return [finding for form in self.forms for finding in form.findings]


# What is tried: an attempt is yielded, and its result comes back, or the refusal that ended it is
# raised there. What it comes to in the end is returned.
Steps = Generator[Attempt, ProvenVariants, Result]


class Attempts(Iterator[Attempt], Generic[Result]):
    """The attempts that `steps` asks for, one by one: each is answered before the next one."""

    def __init__(self, steps: Steps[Result]) -> None:
        """Nothing runs yet."""
        self._steps = steps
        self._answer: ProvenVariants | AotcError | None = None
        self._result: list[Result] = []

    def __next__(self) -> Attempt:
        """The next attempt; raises the refusal that `steps` does not try again."""
        try:
            if isinstance(self._answer, AotcError):
                return self._steps.throw(self._answer)
            if self._answer is None:
                return next(self._steps)
            return self._steps.send(self._answer)
        except StopIteration as end:
            self._result.append(end.value)
            raise

    def answer(self, made: ProvenVariants) -> None:
        """What came of the last attempt."""
        self._answer = made

    @contextmanager
    def refusals_answer(self) -> Iterator[None]:
        """A refusal by a stage is what came of the attempt."""
        try:
            yield
        except AotcError as refusal:
            self._answer = refusal

    @property
    def result(self) -> Result:
        """What all of them came to, once they have ended."""
        return self._result[0]


@record
class Settled:
    """Variants that finally passed or failed, and the last form of each, by name."""

    variants: ProvenVariants
    forms: Mapping[str, Form]


def settle(
    plans: Sequence[VariantPlan],
    state: BuildState,
    ahead: Ahead | None = None,
    *,
    others: bool = True,
    lowered: LoweredVariants | None = None,
) -> Steps[Settled]:
    """All variants; those that fail are tried in other forms until none is left.

    `ahead` and `lowered` are of the first form, and without `others` there is no other.  Raises
    what ended an attempt, after the first refusal if other forms were tried.
    """
    forms = {plan.name: Form(plan=plan) for plan in plans}
    at_round = state
    for number in count(1):
        try:
            made = yield Attempt(
                forms=tuple(forms.values()), state=at_round, ahead=ahead or {}, lowered=lowered
            )
            following = next_forms(forms, made.failed, at_round) if others else {}
        except AotcError as error:
            raise first_refusal(forms, error) from None
        if not following:
            break
        forms, ahead, lowered = {**forms, **following}, None, None
        at_round = state.below(f"again-{number}")
    return Settled(variants=made, forms=forms)


# The next form of a variant that computes wrongly or does not run.
#
# First nodes whose kernels fail in half precision stay in float32. Then its provider gives up
# choices of its own, one by one. If parts are compiled, the nodes at
# fault move to the variant's next provider, and then all compiled ones. Weights alone are computed
# with more exactly. Otherwise a lower level of ONNX Runtime's optimizer is tried.


@record
class Form:
    """One form of a variant: its plan, nodes that providers must not run, and earlier forms.

    `first` is why the first form was refused, and `replaced` is that form.
    """

    plan: VariantPlan
    wrong: tuple[WrongNodes, ...] = ()
    findings: tuple[Finding, ...] = ()
    tried: tuple[WrongForm, ...] = ()
    first: AotcError | None = None
    replaced: LoweredModel | None = None
    rounds: int = 0


def next_forms(
    forms: Mapping[str, Form],
    failed: Sequence[tuple[LoweredModel, AotcError]],
    state: BuildState,
) -> dict[str, Form]:
    """The next forms of the variants that failed, by name; empty if nothing is left to try."""
    found = {}
    for lowered, error in failed:
        name = lowered.plan.name
        next_form = _next_form(forms[name], lowered, error, state)
        if next_form is not None:
            found[name] = next_form
    return found


def first_refusal(
    forms: Mapping[str, Form],
    error: AotcError,
    plan: VariantPlan | None = None,
    *,
    measured: bool = False,
) -> AotcError:
    """Why a variant's first form was refused; `error`, which ended the forms, is in `also`.

    Only `error` where the last form was `measured`, and computes rightly: what it costs is then too
    much.  `plan` is of the variant that failed; None: any variant with another form.
    """
    if measured and all(map(is_budget, (error, *error.also))):
        return error
    name = plan.name if plan is not None else None
    first = next(
        (form.first for key, form in forms.items() if form.first and name in (None, key)),
        None,
    )
    if first is None or first is error:
        return error
    if error not in first.also:
        first.also = (*first.also, error)
    return first


def drop_failed(
    forms: Mapping[str, Form], made: ProvenVariants, state: BuildState
) -> tuple[list[DroppedVariant], list[AotcError]]:
    """All variants that are left out, and the refusals of those that the policy does not leave out.

    Those without a remaining form are included, and each refusal is its variant's first.  Raises
    the refusals of the variants that are left out if these are all.
    """
    failed = [
        (_of_gates(_refusal(forms, item, error, state), item.plan), item.plan)
        for item, error in made.failed
    ]
    refusals = [_of_gates(first_refusal(forms, error, plan), plan) for plan, error in made.refused]
    dropped = list(made.left_out)
    for error, plan in failed:
        try:
            dropped.append(dropped_variant(error, plan, state.context))
        except AotcError as refusal:
            refusals.append(refusal)
    if not made.proven and not refusals:
        raise no_variant_left(dropped, [error for error, _ in failed])
    return dropped, refusals


def _refusal(
    forms: Mapping[str, Form],
    lowered: LoweredModel,
    error: AotcError,
    state: BuildState,
) -> AotcError:
    refused = first_refusal(forms, error, lowered.plan, measured=True)
    return with_nodes_to_blame(refused, lowered, state)


def with_tried_forms(
    proven: ProvenModel, forms: Mapping[str, Form], state: BuildState
) -> ProvenModel:
    """The variant with its earlier forms in the evidence, and the cost of the change."""
    proven = with_evidence_of_blame(proven, state)
    plan = proven.plan
    form = forms.get(plan.name)
    if form is None or not form.tried or form.replaced is None:
        return proven
    first, *others = form.tried
    # A form that crashed or hung would do so again.
    if form.first is None or form.first.code != "AOTC-N001":
        return replace(proven, evidence=replace(proven.evidence, replaced_forms=form.tried))
    analyzed = proven.lowered.analyzed
    try:
        timed, _ = time_alternately(
            [form.replaced, proven.lowered],
            _reference(analyzed, plan, None),
            state,
            rounds=_COST_ROUNDS,
            folder=state.work / f"cost-{plan.name}",
            where=f"variant {plan.name}",
        )
        for item in timed:
            if isinstance(item, AotcError):
                raise item
        before, after = (item[0] for item in timed if not isinstance(item, AotcError))
        first = replace(first, slowdown=round(after / before, 3))
    except AotcError as error:
        # A form that does not run cannot be timed.
        state.announce(error.line())
    evidence = replace(proven.evidence, replaced_forms=(first, *others))
    return replace(proven, evidence=evidence)


def slowdown_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-N065, O003 or P013 with the cost of each change, which no payload contains."""
    return tuple(
        Finding(
            code=_code_of_change(form),
            what=f"a call takes {form.slowdown:.2g} times as long as with {form.form}"
            f"{f' on {form.provider}' if form.provider else ''}, whose answers are wrong",
            where=f"variant {variant.name}",
        )
        for variant in evidence.variants
        for form in variant.replaced_forms
        if form.slowdown is not None
    )


def _code_of_change(form: WrongForm) -> str:
    if form.form == _QUICK_BLOCKS:
        return _EXACT_BLOCKS
    return "AOTC-P013" if form.provider else "AOTC-O003"


def _next_form(
    form: Form,
    lowered: LoweredModel,
    error: AotcError,
    state: BuildState,
) -> Form | None:
    """The form after `lowered` failed with `error`; None if nothing is left to try."""
    plan = lowered.plan
    backend = backend_of(plan.providers[0], state.context.profile.plugins)
    rounds = sum(finding.code == _FAILING for finding in form.findings)
    if backend.half_by_types and plan.half and rounds < _FAILING_ROUNDS:
        failing = failing_nodes(lowered, error)
        if failing:
            return _without_half(form, lowered, error, failing, state)
    given_up = backend.gives_up(error, lowered.use)
    if given_up is not None:
        # A size without elements goes before what makes all others quick; a further range does not.
        failed = _only_empty_fail(lowered.analyzed, [error]).keys()
        if failed and failed <= _empty_sizes(lowered.analyzed).keys():
            return None
        return _without_choice(form, lowered, error, given_up, state)
    if inexact_answers(error) and (exact := with_exact_blocks(plan)) is not None:
        return _with_exact_blocks(form, lowered, error, exact, state)
    if (
        error.code not in (_COMPILED_CODES if lowered.contexts else WRONG)
        or not plan.may_lower_level
    ):
        return None
    state.announce(error.line())
    form = replace(form, first=form.first or _of_proof(error), replaced=form.replaced or lowered)
    if lowered.contexts:
        return _without_wrong(form, lowered, error, state)
    level = lower_level(plan)
    # What precision makes inexact stays so at every level.
    if level is None or precision_is_to_blame(lowered, error, state):
        return None
    was = "all" if plan.optimization == "auto" else plan.optimization
    return replace(
        form,
        plan=replace(plan, optimization=level),
        findings=(
            *form.findings,
            Finding(
                code="AOTC-O003",
                what=f"level {was}: {_reason(error)}; level {level} is taken"[:500],
                where=f"variant {plan.name}",
            ),
        ),
        tried=(*form.tried, WrongForm(form=f"level {was}", reason=error.line()[:500])),
    )


def _of_gates(error: AotcError, plan: VariantPlan) -> AotcError:
    """`error` without AOTC-P014 and P015 where the profile lets graphs run that are not captured.

    Such a refusal only asks for the next form, and is none where that was not the last.
    """
    if plan.cuda.graphs.on_refusal != "run":
        return error
    others = [copy.copy(each) for each in error.every() if each.code not in UNCAPTURED]
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


def _without_choice(
    form: Form, lowered: LoweredModel, error: AotcError, given_up: GivenUp, state: BuildState
) -> Form:
    """The form without a choice of its provider's own, with which it failed."""
    state.announce(error.line())
    where = f"variant {lowered.plan.name}"
    return replace(
        form,
        plan=replace(lowered.plan, cuda=given_up.options),
        first=form.first or _of_proof(error),
        replaced=form.replaced or lowered,
        findings=(
            *form.findings,
            Finding(code=given_up.code, what=given_up.what[:500], where=where),
        ),
        tried=(*form.tried, WrongForm(form=given_up.choice, reason=error.line()[:500])),
    )


def failing_nodes(lowered: LoweredModel, error: AotcError) -> tuple[str, ...]:
    """The source's node whose kernel ONNX Runtime says to have failed, and those equal to it.

    Equal are the operator, its attributes and the shapes of its constants, for which a provider
    chooses its kernel.  None where the node is one of several that were fused, or failed before.
    """
    if error.code != "AOTC-N001" or (named := _FAILED.search(error.found)) is None:
        return ()
    if _only_empty_fail(lowered.analyzed, [error]):
        return ()
    graph = onnx.load(lowered.analyzed.source.graph, load_external_data=False).graph
    shapes = {name: tuple(tensor.dims) for name, tensor in constant_tensors(graph).items()}
    kinds = {
        node.name: (
            node.op_type,
            sorted(attribute.SerializeToString() for attribute in node.attribute),
            [shapes.get(name) for name in node.input],
        )
        for node in graph.node
    }
    name = _OF_LAYOUT.sub("", named[1])
    if name not in kinds or name in lowered.plan.failing:
        return ()
    return tuple(each for each, kind in kinds.items() if kind == kinds[name])


def _without_half(
    form: Form,
    lowered: LoweredModel,
    error: AotcError,
    failing: tuple[str, ...],
    state: BuildState,
) -> Form:
    """The form that computes in float32 the nodes whose kernels fail in half precision."""
    state.announce(error.line())
    plan = lowered.plan
    what = f"kernels of {plan.providers[0]} fail in {plan.half}, and stay in float32: "
    where = f"variant {plan.name}"
    return replace(
        form,
        plan=replace(plan, failing=(*plan.failing, *failing)),
        first=form.first or _of_proof(error),
        replaced=form.replaced or lowered,
        findings=(
            *form.findings,
            Finding(code=_FAILING, what=f"{what}{listed(failing)}"[:500], where=where),
        ),
        tried=(
            *form.tried,
            WrongForm(form=f"{plan.half} for {listed(failing)}"[:300], reason=error.line()[:500]),
        ),
    )


def _with_exact_blocks(
    form: Form, lowered: LoweredModel, error: AotcError, exact: VariantPlan, state: BuildState
) -> Form:
    """The form whose weights are computed with in float32; where tables were smaller, in 8 bits."""
    state.announce(error.line())
    spec = exact.quantization
    taken = f"accuracy_level: {spec.accuracy_level}, table_bits: {spec.table_bits}"
    what = f"{lowered.plan.precision}: {_reason(error)}; {taken} are taken"
    where = f"variant {lowered.plan.name}"
    return replace(
        form,
        plan=exact,
        first=form.first or _of_proof(error),
        replaced=form.replaced or lowered,
        findings=(*form.findings, Finding(code=_EXACT_BLOCKS, what=what[:500], where=where)),
        tried=(*form.tried, WrongForm(form=_QUICK_BLOCKS, reason=error.line()[:500])),
    )


def _without_wrong(
    form: Form,
    lowered: LoweredModel,
    error: AotcError,
    state: BuildState,
) -> Form:
    specialized = lowered.optimized.specialized
    found: tuple[WrongNodes, ...] = ()
    if form.rounds < _MAX_ROUNDS and error.code == "AOTC-N001":
        reference = _reference(specialized.analyzed, specialized.plan, error)
        try:
            tolerance = tolerance_of(lowered, state.context)
            share = allowed_share(arithmetic_of(lowered), tolerance)
            found = locate_wrong_nodes(lowered, reference, tolerance, state, differing=share)
        except AotcError as failure:
            state.announce(failure.line())
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
        form,
        plan=specialized.plan,
        wrong=(*form.wrong, *found),
        tried=(*form.tried, *forms),
        rounds=form.rounds + 1,
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


# ONNX Runtime's kernels were seen to leave memory unset for no elements; then these sizes are left
# out.


def _empty_sizes(analyzed: AnalyzedModel) -> dict[str, tuple[str, ...]]:
    """The dims of size 0 of each fixture without elements."""
    dims = analyzed.domain.dims
    return {
        run.name: tuple(name for name, dim in dims.items() if dim.max and run.sizes.get(name) == 0)
        for run in analyzed.references
        if run.name.startswith(EMPTY)
    }


def _may_fail(analyzed: AnalyzedModel) -> set[str]:
    """The fixtures with sizes that nobody stated: without elements, and of further ranges."""
    domain = analyzed.domain
    stated = {name for name, dim in domain.dims.items() if dim.origin != "probed"}
    empty = _empty_sizes(analyzed).items()
    further = {f"{FURTHER}{index}" for index in range(len(domain.also))}
    return further | {name for name, names in empty if not names or not stated.issuperset(names)}


def _only_empty_fail(analyzed: AnalyzedModel, errors: Sequence[AotcError]) -> dict[str, AotcError]:
    """The first failure at each fixture of `_may_fail`, of variants that fail there alone."""
    may_fail = _may_fail(analyzed)
    failed: dict[str, AotcError] = {}
    for error in errors:
        failures = [each for each in (error, *error.also) if not is_budget(each)]
        places = [failure.where.rpartition("fixture ")[2] for failure in failures]
        if failures and all(
            failure.code in _EMPTY_CODES and place in may_fail
            for failure, place in zip(failures, places, strict=True)
        ):
            failed |= dict(zip(places, failures, strict=True))
    return failed


def without_empty_sizes(
    analyzed: AnalyzedModel, errors: Sequence[AotcError], *, everywhere: bool = False
) -> tuple[AnalyzedModel, Finding] | None:
    """What is left without the sizes of 0, and further ranges, where alone a variant fails.

    `errors` are the variants', each with its further ones; budgets that it exceeds do not count.
    With `everywhere`, none of them is claimed any more.  Returns None if a variant fails elsewhere,
    or at a size of 0 that is stated.
    """
    whole, dims = analyzed.domain, analyzed.domain.dims
    empty = _empty_sizes(analyzed)
    failed = _only_empty_fail(analyzed, errors)
    if not failed:
        return None
    further = {f"{FURTHER}{index}" for index in range(len(whole.also))}
    gone = _may_fail(analyzed) if everywhere else failed.keys()
    left_out = list(dict.fromkeys(empty[name] for name in empty if name in gone))
    alone = {names[0] for names in left_out if len(names) == 1}
    boxes = {
        f"{FURTHER}{index}": box
        for index, box in enumerate(whole.also)
        if f"{FURTHER}{index}" not in gone and not any(box[name].max == 0 for name in alone)
    }
    domain = replace(
        whole,
        dims={n: replace(dim, min=dim.least) if n in alone else dim for n, dim in dims.items()},
        not_empty=tuple(dict.fromkeys((*whole.not_empty, *left_out))),
        also=tuple(boxes.values()),
    )
    # Fixtures keep the numbers of the ranges that are left.
    renamed = {name: f"{FURTHER}{index}" for index, name in enumerate(boxes)}
    kept = tuple(
        replace(run, name=renamed.get(run.name, run.name))
        for run in analyzed.references
        if not (run.name in further and run.name not in boxes)
        and not any(set(names) <= set(empty.get(run.name, ())) for names in left_out)
    )
    first = next(iter(failed.values()))
    without = list(dict.fromkeys(name for names in left_out for name in names))
    parts = [f"size 0 of {', '.join(without)}"] if without else []
    parts += ["further ranges"] if len(boxes) < len(whole.also) else []
    finding = Finding(
        code="AOTC-S027",
        what=f"left out, because a variant fails there: {' and '.join(parts)}; "
        f"{first.code} {first.what}",
        where=first.where,
    )
    return replace(analyzed, domain=domain, references=kept), finding
