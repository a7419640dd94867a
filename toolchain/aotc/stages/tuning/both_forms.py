"""Timing of both forms of a quantized variant: the portable one, and the one that requires VNNI.

The payload holds both whatever the times say: it is the same for equal inputs, and times are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aotc.contract.finding import Finding
from aotc.contract.results.build_evidence import Evidence, FormTiming
from aotc.errors import AotcError
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.optimizing.integer_products import is_companion
from aotc.stages.planning.planned_variants import accepts_run
from aotc.stages.timing import time_and_compare
from aotc.stages.types import ProvenModel, ReferenceRun

_ROUNDS: Final = 7
# A form that gains less than noise is not worth its bytes.
_NO_GAIN: Final = 0.97


def time_both_forms(proven: Sequence[ProvenModel], options: BuildOptions) -> list[ProvenModel]:
    """All variants; the first companion of each of the profile's, with its time and the other's."""
    done: set[str] = set()
    found = []
    for item in proven:
        other = next((each for each in proven if is_companion(item.plan, each.plan)), None)
        timed = other is not None and item.plan.spec not in done
        found.append(_timed(item, other, options) if other is not None and timed else item)
        if timed:
            done.add(item.plan.spec)
    return found


def form_findings(evidence: Evidence) -> tuple[Finding, ...]:
    """AOTC-O017 with the times of both forms, AOTC-O018 where the second one gains nothing."""
    return tuple(
        _finding(variant.name, variant.timed_against)
        for variant in evidence.variants
        if variant.timed_against is not None
    )


def _finding(name: str, timed: FormTiming) -> Finding:
    answers = "the same bytes" if timed.same_bytes else "other bytes, within the tolerance"
    return Finding(
        code="AOTC-O017" if timed.ratio < _NO_GAIN else "AOTC-O018",
        what=f"a call takes {timed.ratio:.2f} of the time of {timed.other} "
        f"({timed.seconds * 1e3:.3g} ms and {timed.other_seconds * 1e3:.3g} ms), with {answers}",
        where=f"variant {name}",
    )


def _timed(item: ProvenModel, other: ProvenModel, options: BuildOptions) -> ProvenModel:
    reference = _reference(item)
    try:
        timed, same_bytes = time_and_compare(
            [item.lowered, other.lowered],
            reference,
            options,
            rounds=_ROUNDS,
            folder=options.work / f"forms-{item.plan.name}",
            where=f"variant {item.plan.name}",
        )
    except AotcError as error:
        # Both were proven: what fails here, such as the time limit, says nothing against them.
        options.announce(error.line())
        return item
    own, others = timed
    # Graphs that a provider captures are refused alone, and both forms are of the CPU's.
    assert not isinstance(own, AotcError)
    assert not isinstance(others, AotcError)
    timing = FormTiming(
        other=other.plan.name,
        fixture=reference.name,
        seconds=own[0],
        other_seconds=others[0],
        same_bytes=same_bytes,
    )
    return replace(item, evidence=replace(item.evidence, timed_against=timing))


def _reference(item: ProvenModel) -> ReferenceRun:
    """A fixture that the variant takes unpadded, at the optimal sizes if there is one."""
    analyzed, plan = item.lowered.analyzed, item.plan
    exact = [
        reference
        for reference in analyzed.references
        if all(reference.sizes.get(name) == size for name, size in plan.buckets.items())
        and accepts_run(analyzed, plan, reference)
    ]
    found = exact or list(analyzed.references)
    return next((reference for reference in found if reference.name == "opt"), found[0])
