"""One trial of `precision: auto`: a form as it is, and again with the nodes that it must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from aotc.errors import AotcError
from aotc.records import record, replace
from aotc.stages.blaming.blame import blame
from aotc.stages.build_options import BuildOptions
from aotc.stages.retrying.other_forms import first_refusal
from aotc.stages.retrying.settling import Settled
from aotc.stages.types import AnalyzedModel, LoweredModel, ProvenModel
from aotc.stages.variant_plan import VariantPlan

# What is found on the fixture that fails first may be too little for others.
_ROUNDS: Final = 3
# The model is quantized already, or in another half precision.
_LEFT_AS_IT_IS: Final = frozenset({"AOTC-N011", "AOTC-N014"})


class RunStages(Protocol):
    """All stages from the optimizer to the proof; `others`: also in other forms where one fails."""

    def __call__(
        self,
        model: AnalyzedModel,
        plans: Sequence[VariantPlan],
        options: BuildOptions,
        *,
        others: bool = True,
    ) -> Settled:
        """The variants that passed, and those that did not."""
        ...


@record
class Passed:
    """A form whose variants passed, with the nodes kept for that.

    `proven` is the first plan's, or its faster companion.
    """

    proven: ProvenModel
    kept: tuple[str, ...] = ()


def passing_form(
    analyzed: AnalyzedModel,
    plans: Sequence[VariantPlan],
    options: BuildOptions,
    run_stages: RunStages,
) -> Passed:
    """Run one lower precision; where it breaches its gates, with ever more nodes in float32.

    Raises the last refusal where it does not pass, and where the model does not change in it.
    """
    kept: tuple[str, ...] = ()
    for number in range(_ROUNDS):
        at_round = options.with_subfolder(f"kept-{number}")
        asked = [replace(p, keep_float32=(*p.keep_float32, *kept)) for p in plans]
        settled = run_stages(analyzed, asked, at_round, others=False)
        failure = _failure(settled)
        if failure is None:
            return Passed(proven=_timed(settled, plans[0]), kept=kept)
        lowered, error = failure
        found = blame(lowered, error, at_round) if lowered is not None else None
        if found is None:
            break
        more = [name for name in found.kept if name not in kept]
        # With all of them it is no lower precision.
        if not more or len(found.kept) == found.candidates:
            break
        kept = (*kept, *more)
    # Whatever fails, another form of the graph may pass.
    settled = run_stages(analyzed, plans, options.with_subfolder("other-forms"), others=True)
    failure = _failure(settled)
    if failure is not None:
        raise first_refusal(settled.attempts, failure[1])
    return Passed(proven=_timed(settled, plans[0]))


def _failure(settled: Settled) -> tuple[LoweredModel | None, AotcError] | None:
    """The first variant that failed, with its refusal; None if all passed.

    Raises AOTC-P002 if the fallback policy leaves one out.
    """
    made = settled.variants
    for item, error in made.failed:
        return item, error
    for _, error in made.refused:
        return None, error
    if made.left_out:
        raise AotcError("AOTC-P002", "the fallback policy leaves this candidate out")
    return None


def _timed(settled: Settled, plan: VariantPlan) -> ProvenModel:
    """The variant that takes calls on this host: the faster companion, if there is one."""
    proven = settled.variants.proven
    own = next(item for item in proven if item.plan.name == plan.name)
    if own.plan.precision != plan.precision:
        noticed = settled.variants.findings
        why = next((each for each in noticed if each.code in _LEFT_AS_IT_IS), None)
        text = why.what if why else f"the model is left as it is in {plan.precision}"
        raise AotcError("AOTC-N008", text, where="precision")
    return next(
        (
            item
            for item in proven
            if item.plan.isa == "vnni"
            and item.plan.buckets == plan.buckets
            and item.parity.status == "passed"
        ),
        own,
    )
