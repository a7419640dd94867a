"""Prove: run every variant on the reference's fixtures, and observe where its nodes run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.base.text import listed
from aotc.graph import values
from aotc.graph.partition.budgets import Judged, judge_placement
from aotc.graph.partition.division import total_transfers
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.values import Data
from aotc.host.cpu import usable_cores
from aotc.host.nvidia import free_memory, memory_taken, missing_gpu
from aotc.pipeline.context import BuildContext, BuildState
from aotc.pipeline.gates import (
    Call,
    add_second_answers,
    judge_captures,
    judge_costs,
    judge_outputs,
    judge_parity,
    judge_together,
    output_figures,
    output_gates,
    refused_gate,
    repeat_calls,
    repeat_request,
    repeated_fixture,
    variant_figures,
)
from aotc.pipeline.integer_products import companion_left_out
from aotc.pipeline.lower import draws_freely, open_variant, variant_request
from aotc.pipeline.margins import (
    decided_outputs,
    original_request,
    with_margins,
)
from aotc.pipeline.package import digest_weights, weight_bytes
from aotc.pipeline.shown import judge_shown
from aotc.pipeline.task import judge_task
from aotc.pipeline.timing import WarmCalls, main_fixture
from aotc.pipeline.types import (
    AnalyzedModel,
    JudgedVariant,
    LoweredModel,
    LoweredVariants,
    ProvenModel,
    ProvenVariants,
    ReferenceRun,
    VariantPlan,
)
from aotc.providers.named_backends import backend_of
from aotc.session.inference import groups_within
from aotc.session.parity import SLICE, Beside, compare
from aotc.session.sessions import placement_of
from aotc.session.slices import SlicePool
from aotc.session.worker import steps_of, tell_steps
from aotc.session.worker_pool import JobResult
from aotc.sizes.inputs.fixtures import lower_edge
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import (
    Comparison,
    OutputError,
    Repeats,
    RunSpread,
    SliceError,
    VariantEvidence,
)
from aotc.spec.parted import PartedAxis
from aotc.spec.payload import Finding, Value
from aotc.spec.precision import Arithmetic, DecidedOutput, OutputGate, Tolerance
from aotc.spec.providers import CAPTURING, CPU
from aotc.spec.run_report import PROOF, Gate
from aotc.spec.shapes import REPEATED, Domain, Padding, raised_to_buckets
from aotc.spec.variant import Parity, Placement, SessionSpec, TransferTotals
from aotc.spec.yaml import DocumentPlaces

if TYPE_CHECKING:
    import onnxruntime as ort

# Where parity is among what is judged of answers.
_PARITY: Final = 1
_SATURATION_FIX: Final = (
    "Quantize the model with operands of one sign, or weights in 7 bits; or build for a target "
    "like this host; or with --allow-unproven, and prove it later there: 'aotc attest --qualify'."
)

# Outputs that are compared side by side, where that adds little to the peak of memory: CUDA's
# libraries take a gigabyte of it.
_AT_ONCE: Final = 4
_AT_ONCE_BYTES: Final = 64 << 20


def arithmetic_of(lowered: LoweredModel) -> Arithmetic:
    """The kind of arithmetic whose tolerance applies, a field of `ParitySpec`."""
    source = lowered.analyzed.source
    if source.capture.quantized:
        return "quantized"
    precision = lowered.plan.precision
    if precision in ("int8", "int4") and lowered.optimized.specialized.quantized:
        return precision
    # The reference casts as well: what casts lose is lost on both sides, until outputs are rounded.
    values = source.outputs if source.retyped else (*source.inputs, *source.outputs)
    if (
        any(value.dtype in ("float16", "bfloat16") for value in values)
        or source.capture.half_precision
    ):
        return "bfloat16" if source.retyped and precision == "bfloat16" else "float16"
    return "float32" if precision == "keep" else precision


def tolerance_of(lowered: LoweredModel, context: BuildContext) -> Tolerance:
    """The tolerance that applies to a variant."""
    tolerance: Tolerance = getattr(context.profile.parity, arithmetic_of(lowered))
    return tolerance


def prove_all(
    variants: LoweredVariants,
    findings: Sequence[Finding],
    state: BuildState,
) -> ProvenVariants:
    """Prove each of the variants; `findings` are those of the stages before.

    What ends a proof itself, such as a crash in the sandbox, is a breach as well.  A faster
    companion that fails is left out.  Weights are final, and are hashed meanwhile.
    """
    clock, journal = state.clock, state.journal
    journal.judged(refused_gate(plan.name, error) for plan, error in variants.refused)
    noticed = [*findings, *variants.findings]
    proven: list[ProvenModel] = []
    failed: list[tuple[LoweredModel, AotcError]] = []
    measured: list[ProvenModel] = []
    with ThreadPoolExecutor(1) as pool:
        tally = weight_bytes(variants.weights)
        weights = pool.submit(digest_weights, variants.weights, tally)
        # Before the proofs, which use the device too.
        plain = plain_device_bytes(variants.lowered, state)
        for number, item in enumerate(variants.lowered):
            with clock.stage("prove", item.plan.name):
                if len(variants.lowered) > 1:
                    clock.reporter.count(number, len(variants.lowered), "variants")
                try:
                    judged = prove(item, state, plain)
                except AotcError as error:
                    journal.judged((refused_gate(item.plan.name, error),))
                    judged = JudgedVariant(breach=error)
            passed = [judged.proven] if judged.proven is not None else []
            if judged.breach is None:
                proven += passed
            elif item.plan.required:
                failed.append((item, judged.breach))
                measured += passed
            else:
                journal.left_out(f"variant {item.plan.name}")
                why = f"{judged.breach.code} {judged.breach.what}"
                noticed.append(companion_left_out(item.plan, why))
        if not weights.done():
            with clock.reporter.counting("hash", "weights", tally):
                weights.exception()
        return ProvenVariants(
            proven=tuple(proven),
            failed=tuple(failed),
            refused=variants.refused,
            measured=tuple(measured),
            left_out=variants.left_out,
            findings=tuple(noticed),
            weights=weights.result(),
        )


def prove(
    lowered: LoweredModel, state: BuildState, plain_bytes: int | None = None
) -> JudgedVariant:
    """Judge parity, placement, load time and peak memory of one variant, all of them.

    `plain_bytes` is the device memory of a plain session, which the evidence keeps beside its own.
    On a host of another kind than the target the graph is run as well, but that proves nothing for
    the target: parity is then `not-run`, and placement predicted.
    The breach of a variant is AOTC-N001 (parity), N007 and S019 (padding), N002 (not proven), P001,
    P002 (placement), N020, N021 (gates of outputs), N024, N025 (task), P014 (no CUDA graph is
    captured), P015 (captured ones do not hold beside each other), M002 or M003 (budgets), with the
    further ones in `also`.
    Raises R008 and I013 to I015 from the sandbox.
    """
    context = state.context
    plan = lowered.plan
    analyzed = lowered.analyzed
    arithmetic, tolerance = arithmetic_of(lowered), tolerance_of(lowered, context)
    state.journal.forget(f"variant {plan.name}")
    not_proven = (
        platform_mismatch(context) or lowered.why_not_run or saturation_mismatch(lowered, context)
    )
    where = f"variant {plan.name}" + (not_proven and f", {_elsewhere(lowered, context)}")
    if not_proven and context.profile.unproven == "refuse":
        return JudgedVariant(breach=_not_proven(lowered, not_proven, state))
    runs = compared_runs(analyzed, plan)
    if lowered.why_not_run:
        return _prove_undivided(lowered, where, not_proven, arithmetic, runs, state)
    result, comparisons = _run(lowered, runs, tolerance, state)
    value = result.value
    together = {name: decode(SliceError, item) for name, item in value["together"].items()}
    task = judge_task(lowered, where, state)
    evidence = VariantEvidence(
        name=plan.name,
        comparisons=comparisons,
        together=together,
        load_seconds=value["load_seconds"],
        first_run_seconds=value["first_run_seconds"],
        run_seconds=value["run_seconds"],
        run_spread={name: decode(RunSpread, each) for name, each in value["run_spread"].items()},
        waited_share=value["waited_share"],
        peak_memory_bytes=result.peak_memory_bytes,
        device_bytes=value["device_bytes"],
        plain_device_bytes=plain_bytes if value["device_bytes"] is not None else None,
        task=task.result,
        repeats=decode(Repeats, value["repeats"]) if value["repeats"] is not None else None,
    )
    placement = decode(Placement, value["placement"])
    answers = _judge_answers(comparisons, where, arithmetic, tolerance, lowered, context, together)
    answers = _by_guilt(answers, lowered, runs, tolerance, where, state)
    breach = judge_together(
        (
            *answers,
            _judge_proof(answers, comparisons, plan.name, not_proven, context.places),
            task.judged,
            judge_captures(lowered, runs, comparisons, state),
            _judge_placement(placement, lowered, context),
            judge_costs(evidence, context.profile.budgets, where, context.places),
        ),
        state.journal,
    )
    state.journal.measured(
        (
            *variant_figures(evidence, where),
            *output_figures(comparisons, where, context.profile.gates),
            *task.measurements,
        )
    )
    proven = ProvenModel(
        lowered=lowered,
        placement=replace(placement, origin="predicted") if not_proven else placement,
        parity=Parity(
            status="not-run" if not_proven else "passed",
            reason=not_proven,
            arithmetic=arithmetic,
            tolerance=tolerance,
            shapes=() if not_proven else tuple(c.sizes for c in comparisons),
            padded=0 if not_proven else sum(bool(c.padded_to) for c in comparisons),
            gates=output_gates(analyzed.source, context),
            slices=() if not_proven else _judged_slices(value, comparisons),
            decided=decided_outputs(analyzed.decided, arithmetic, tolerance),
            task=None if not_proven else task.verdict,
        ),
        evidence=evidence,
    )
    return JudgedVariant(proven=proven, breach=breach)


def _not_proven(lowered: LoweredModel, why: str, state: BuildState) -> AotcError:
    """The refusal of a variant that may not stay unproven, with what its plan breaches."""
    where = f"variant {lowered.plan.name}"
    place = state.context.places.of("unproven")
    error = AotcError(
        "AOTC-N002",
        why,
        where=where,
        fix=_SATURATION_FIX if lowered.optimized.saturating else "",
        place=place,
    )
    gate = Gate(
        name=PROOF, subject=where, status="failed", limit="proven", measured=why, place=place
    )
    judged = [Judged(gates=(gate,), breaches=(error,))]
    if lowered.planned_placement:
        planned = placement_of(lowered.planned_placement, observed=False)
        judged.append(_judge_placement(planned, lowered, state.context))
    judge_together(judged, state.journal)
    return error


def _run(
    lowered: LoweredModel,
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    tolerance: Tolerance,
    state: BuildState,
    *,
    divided: bool = True,
) -> tuple[JobResult, tuple[Comparison, ...]]:
    """Run the variant in a worker, or with `divided=False` its undivided graph on the CPU.

    If only slices differ, once more, with the noise of the original in sight.
    """
    context = state.context
    analyzed = lowered.analyzed
    plan = lowered.plan
    folder = state.work / f"prove-{plan.name}"
    state.clock.reporter.follow("fixtures", steps_of(folder, "fixtures"))
    decided = decided_outputs(analyzed.decided, arithmetic_of(lowered), tolerance)
    request = {
        **variant_request(lowered, context, divided=divided),
        "variant": plan.name,
        # What goes on drawing does not repeat.
        "repeats": repeat_request(lowered, context)
        if divided and not draws_freely(lowered)
        else None,
        "times": divided,
        "tolerance": encode(tolerance),
        "gates": {
            name: encode(gate) for name, gate in output_gates(analyzed.source, context).items()
        },
        "original": original_request(analyzed.source.answering, decided),
        "inputs": [encode(value) for value in analyzed.source.inputs],
        "padding": encode(analyzed.padding),
        **slice_request(lowered),
        "references": compared_references(runs, state),
    }
    result = state.workers.run(
        "aotc.pipeline.prove:prove_job", request, folder=folder, where=f"variant {plan.name}"
    )
    references = [reference for reference, _ in runs]
    if _fails_by_slices(result.value) and add_second_answers(analyzed.source, references, state):
        shutil.rmtree(folder)
        return _run(lowered, runs, tolerance, state, divided=divided)
    comparisons = tuple(decode(Comparison, item) for item in result.value["comparisons"])
    comparisons = with_margins(comparisons, result.value["open"], request, folder, state.workers)
    return result, comparisons


def slice_request(lowered: LoweredModel) -> Json:
    """What a worker needs to judge the slices of a variant's outputs."""
    return {
        "parted": {
            name: [encode(axis) for axis in axes] for name, axes in lowered.analyzed.parted.items()
        },
        "arithmetic": arithmetic_of(lowered),
    }


def _by_guilt(
    answers: tuple[Judged, ...],
    lowered: LoweredModel,
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    tolerance: Tolerance,
    where: str,
    state: BuildState,
) -> tuple[Judged, ...]:
    """The same; of parity that is breached, by the exporter if its model's answers are kept.

    The framework's answers are those to compare with, where a model was captured from its source.
    """
    parity = answers[_PARITY]
    exported = [(replace(run, outputs=run.exported), sizes) for run, sizes in runs if run.exported]
    if not parity.breaches or len(exported) < len(runs):
        return answers
    beside = state.below(f"beside-exported-{lowered.plan.name}")
    _, comparisons = _run(lowered, exported, tolerance, beside)
    arithmetic, context = arithmetic_of(lowered), state.context
    again = _judge_answers(comparisons, where, arithmetic, tolerance, lowered, context)
    if again[_PARITY].breaches:
        return answers
    what = "the variant keeps the exported model's answers, which are that far from the framework's"
    first = parity.breaches[0]
    error = AotcError(
        "AOTC-N078",
        f"{first.what}: {what}",
        where=first.where,
        expected=first.expected,
        found=first.found,
        place=first.place,
    )
    blamed = replace(parity, breaches=(error, *parity.breaches[1:]))
    return (*answers[:_PARITY], blamed, *answers[_PARITY + 1 :])


def _fails_by_slices(value: Json) -> bool:
    """Whether a variant's slices differ, and nothing else does."""
    breached = {
        name
        for comparison in value["comparisons"]
        for error in comparison["outputs"]
        for name in error.get("breached", ())
    }
    together = any(found["ratio"] > 1 for found in value["together"].values())
    return breached == {SLICE} or (together and not breached)


def _judged_slices(value: Json, comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """The outputs whose slices were judged without regard to noise, if the worker had none."""
    if value["with_second"]:
        return ()
    found = {
        error.output: None
        for comparison in comparisons
        for error in comparison.outputs
        if error.worst_slice is not None
    }
    return tuple(found)


def _prove_undivided(
    lowered: LoweredModel,
    where: str,
    reason: str,
    arithmetic: Arithmetic,
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    state: BuildState,
) -> JudgedVariant:
    """Prove a variant that this machine cannot run: its placement is the planned one.

    Its undivided graph is compared on the CPU, which checks all passes.
    """
    context = state.context
    plan = lowered.plan
    placement = placement_of(lowered.planned_placement, observed=False)
    tolerance = tolerance_of(lowered, context)
    _, comparisons = _run(lowered, runs, tolerance, state, divided=False)
    task = judge_task(lowered, where, state, divided=False)
    answers = _judge_answers(comparisons, where, arithmetic, tolerance, lowered, context)
    breach = judge_together(
        (
            _judge_placement(placement, lowered, context),
            *answers,
            _judge_proof(answers, comparisons, plan.name, reason, context.places),
            task.judged,
        ),
        state.journal,
    )
    proven = ProvenModel(
        lowered=lowered,
        placement=placement,
        parity=Parity(
            status="not-run",
            reason=reason,
            arithmetic=arithmetic,
            tolerance=tolerance,
            gates=output_gates(lowered.analyzed.source, context),
            decided=decided_outputs(lowered.analyzed.decided, arithmetic, tolerance),
        ),
        evidence=VariantEvidence(name=plan.name, unpartitioned=comparisons, task=task.result),
    )
    return JudgedVariant(proven=proven, breach=breach)


def _elsewhere(lowered: LoweredModel, context: BuildContext) -> str:
    """Where a variant ran in place of its target, as what was measured there must say."""
    known = (backend_of(name, context.profile.plugins) for name in lowered.plan.providers)
    used = [each for each in known if each.ort_name in lowered.providers]
    lacking = [each.ort_name for each in used if each.probe().why_not]
    lacking = [name.removesuffix("ExecutionProvider") for name in lacking]
    if lacking:
        return f"undivided on the CPU, not on {listed(lacking)}"
    return f"on the build host, not on {context.target.name}"


def _judge_proof(
    answers: Sequence[Judged],
    comparisons: Sequence[Comparison],
    variant: str,
    not_proven: str,
    places: DocumentPlaces,
) -> Judged:
    """Whether a variant's answers were compared as its target gives them, on how many fixtures.

    `not_proven` is why they were not.  Of those that differ, the gates of outputs tell.
    """
    if any(judged.breaches for judged in answers):
        not_proven = not_proven or "its answers differ"
    compared = len({comparison.fixture for comparison in comparisons})
    proven = f"proven on {compared} fixture{'' if compared == 1 else 's'}"
    gate = Gate(
        name=PROOF,
        subject=f"variant {variant}",
        status="not-judged" if not_proven else "passed",
        limit="proven",
        measured=f"not proven: {not_proven}" if not_proven else proven,
        place=places.of("unproven"),
    )
    return Judged(gates=(gate,))


def _judge_answers(
    comparisons: Sequence[Comparison],
    where: str,
    arithmetic: Arithmetic,
    tolerance: Tolerance,
    lowered: LoweredModel,
    context: BuildContext,
    together: Mapping[str, SliceError] | None = None,
) -> tuple[Judged, ...]:
    """Answers by the tolerance of their arithmetic, and by the gates of their outputs."""
    gates = output_gates(lowered.analyzed.source, context)
    replaced = [name for name, gate in gates.items() if gate.replaces_tolerance]
    return (
        # First: no other form would show more.
        judge_shown(lowered.analyzed, lowered.plan, context.places),
        judge_parity(comparisons, where, arithmetic, tolerance, context.places, replaced, together),
        judge_outputs(comparisons, where, context.profile.gates, context.places),
    )


def _judge_placement(placement: Placement, lowered: LoweredModel, context: BuildContext) -> Judged:
    """The policy and the budgets of placement, by the order of providers that they are for."""
    plan = lowered.plan
    report = lowered.report
    order = context.budget_orders.get(plan.spec, plan.providers)
    return judge_placement(
        context.profile,
        {name: backend_of(name, context.profile.plugins).ort_name for name in order},
        placement,
        report=report,
        transfers=total_transfers(report.transfers) if report is not None else TransferTotals(),
        where=f"variant {plan.name}",
        places=context.places,
    )


# The worker job of a proof: a variant runs every fixture once, and its answers are compared.


def prove_job(request: Json) -> Json:
    """In the worker: load the variant, observe placement, run every fixture once and compare."""
    from aotc.session.decisions import Judge
    from aotc.session.padding import Padder
    from aotc.session.sessions import go_on, observe, run

    gates = {name: decode(OutputGate, gate) for name, gate in request["gates"].items()}
    tolerance = decode(Tolerance, request["tolerance"])
    slices = SlicePool()
    judges = {
        name: Judge(decode(DecidedOutput, item), asks=True)
        for name, item in request["original"]["decided"].items()
    }
    open_: list[Json] = []
    on_cuda = CAPTURING.ort_name in request["providers"]
    free = free_memory() if on_cuda else None
    started = time.perf_counter()

    warm = WarmCalls()
    session: ort.InferenceSession | None = open_variant(request)
    load_seconds = time.perf_counter() - started
    padding = decode(Padding, request["padding"]) if request["padding"] else None
    padder = Padder([decode(Value, item) for item in request["inputs"]], padding)
    compared_by: dict[int, Comparison] = {}
    cold: dict[str, float] = {}

    def inputs_of(reference: Json) -> dict[str, Data]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        if reference["wanted"] != reference["sizes"]:
            inputs = padder.pad(inputs, reference["sizes"], reference["wanted"]).inputs
        return inputs

    def call_of(fixture: str) -> Call:
        found = next(each for each in request["references"] if each["name"] == fixture)
        given, wanted_outputs = inputs_of(found), list(found["outputs"])
        return lambda: run(session, given, wanted_outputs, refusal="AOTC-N001")

    pool = ThreadPoolExecutor(min(_AT_ONCE, usable_cores() or 1) if on_cuda else 1)
    at_once = on_cuda and request["times"] and not request["free"]
    # A fixture may run at several sizes: calls are timed at those that it has first.
    named = [each["name"] for each in request["references"]]
    main = named.index(main_fixture(named)) if at_once and named else -1
    ordered = list(enumerate(request["references"]))
    if on_cuda:
        # Sizes in the order in which they come first, each in one go: see below.
        wanted_sizes = [reference["wanted"] for reference in request["references"]]
        ordered.sort(key=lambda item: wanted_sizes.index(item[1]["wanted"]))
    for done, (number, reference) in enumerate(ordered):
        tell_steps(done, len(ordered))
        inputs = inputs_of(reference)
        names = list(reference["outputs"])
        sizes, wanted = reference["sizes"], reference["wanted"]
        started = time.perf_counter()
        try:
            outputs = run(session, inputs, names, refusal="AOTC-N001")
        except AotcError as failed:
            where = f"variant {request['variant']}, fixture {reference['name']}"
            raise AotcError(failed.code, failed.what, where=where, found=failed.found) from None
        seconds = time.perf_counter() - started
        if number == named.index(reference["name"]):
            cold[reference["name"]] = seconds
        if wanted != sizes:
            outputs = padder.crop(names, outputs, sizes)

        def error_of(name: str, output: Data, reference: Json = reference) -> OutputError:
            golden = values.load(Path(reference["outputs"][name]))
            beside = beside_output(request, reference, name, slices)
            gate, judge = gates.get(name), judges.get(name)
            return compare(golden, output, tolerance, name, gate, beside, judge)

        errors: list[OutputError] = []
        for group in groups_within(
            zip(names, outputs, strict=True), lambda item: values.nbytes(item[1]), _AT_ONCE_BYTES
        ):
            errors += pool.map(error_of, *zip(*group, strict=True))
        for name, output, error in zip(names, outputs, errors, strict=True):
            if error.passed and error.differing and name in judges:
                answer = values.save(output, Path(f"open_{number}_{len(open_)}"))
                open_.append([number, name, str(answer)])
        compared_by[number] = Comparison(
            fixture=reference["name"],
            sizes=sizes,
            padded_to=wanted if wanted != sizes else {},
            outputs=tuple(errors),
        )
        # Kernels of convolutions are planned for these sizes now, and would be anew behind others,
        # which takes longer than all calls.
        if number == main and all(error.passed for error in errors):
            warm.call_all({reference["name"]: seconds}, call_of, {})
    pool.shutdown()
    comparisons = [compared_by[number] for number in sorted(compared_by)]
    device_bytes = memory_taken(free)
    together = slices.worst()
    # Side by side, they were compared in any order.
    compared = dict.fromkeys(error.output for each in comparisons for error in each.outputs)
    judged = {
        "comparisons": [encode(item) for item in comparisons],
        "together": {name: encode(together[name]) for name in compared if name in together},
        "with_second": any(reference["second"] for reference in request["references"]),
    }
    if _fails_by_slices(judged) and not judged["with_second"]:
        # It runs again, with the noise of the original in sight.
        return judged
    placement = encode(observe(session))
    if request["free"]:
        go_on(session)

    repeats = None
    chosen = repeated_fixture(cold) if request["repeats"] is not None and cold else ""
    if request["times"] and all(error.passed for each in comparisons for error in each.outputs):
        later = {name: took for name, took in cold.items() if name not in warm.names}
        if later:
            warm.call_all(
                later, call_of, {chosen: 1 + request["repeats"]["runs"]} if chosen else {}
            )
    if chosen:
        call = warm.timed(chosen, call_of(chosen))

        def reopened(other: Json) -> Call:
            nonlocal session
            warm.ended = True
            # Ended first; and still a name, where the next one cannot be opened.
            session = None
            session = open_variant(request, {}, other)
            return call

        repeats = encode(repeat_calls(request["repeats"], chosen, names, call, reopened))
    return {
        **judged,
        "placement": placement,
        "repeats": repeats,
        "open": open_,
        "load_seconds": load_seconds,
        "device_bytes": device_bytes,
        "first_run_seconds": next(iter(cold.values()), None),
        **warm.measured(),
    }


def beside_output(request: Json, reference: Json, name: str, pool: SlicePool) -> Beside:
    """In the worker: what one output of a reference run is judged by beside its answers."""
    second = reference["second"].get(name)
    return Beside(
        slices=not reference["name"].endswith(REPEATED),
        parted=tuple(decode(PartedAxis, axis) for axis in request["parted"].get(name, ())),
        second=values.load(Path(second)) if second else None,
        arithmetic=request["arithmetic"] if second else None,
        pool=pool,
    )


def compared_runs(
    analyzed: AnalyzedModel, plan: VariantPlan
) -> list[tuple[ReferenceRun, Mapping[str, int]]]:
    """The reference runs that a variant accepts, each with the sizes at which it runs it.

    Raises AOTC-S019 if the variant accepts padded calls, and none of them could be compared.
    """
    domain, references = analyzed.domain, analyzed.references_of(plan)
    if not any(dim.buckets or dim.pad_from is not None for dim in domain.dims.values()):
        return [(reference, reference.sizes) for reference in references]
    runs: list[tuple[ReferenceRun, Mapping[str, int]]] = []
    for reference in references:
        compared = _compared_sizes(domain, plan, reference.sizes)
        runs += [(reference, wanted) for wanted in compared]
    if not plan.buckets:
        for buckets in plan.served:
            _require_padded(analyzed, buckets, runs, f"variant {plan.name}")
        return runs
    # If only some buckets are loaded, the smallest calls may go to any of them.
    smallest = min(references, key=lambda reference: sum(reference.sizes.values()))
    raised = raised_to_buckets(domain, plan.buckets, smallest.sizes)
    if raised is not None and all(reference is not smallest for reference, _ in runs):
        runs.append((smallest, raised))
    _require_padded(analyzed, plan.buckets, runs, f"variant {plan.name}")
    return runs


def compared_references(
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]], state: BuildState
) -> list[Json]:
    """What a worker is told of each of `compared_runs`."""
    return [
        {
            "name": reference.name,
            "sizes": dict(reference.sizes),
            "wanted": dict(wanted),
            "inputs": reference.input_paths,
            "outputs": reference.output_paths,
            "second": {
                name: str(path)
                for name, path in state.seconds.get(reference.first_output, {}).items()
            },
        }
        for reference, wanted in runs
    ]


def _compared_sizes(
    domain: Domain, plan: VariantPlan, sizes: Mapping[str, int]
) -> list[Mapping[str, int]]:
    """The sizes at which a variant runs a call of `sizes`: in a bucket, and as it is if routed."""
    found: list[Mapping[str, int]] = []
    for buckets in plan.served:
        wanted = domain.padded_sizes(buckets, sizes)
        if wanted is not None and wanted not in found:
            found.append(wanted)
    routed = any(dim.buckets and "route" in dim.outside for dim in domain.dims.values())
    return found if routed else found[:1]


def _require_padded(
    analyzed: AnalyzedModel,
    buckets: Mapping[str, int],
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    where: str,
) -> None:
    """Raise AOTC-S019 if calls are padded to `buckets`, and none of them could be compared."""
    domain = analyzed.domain
    padded = any(
        wanted != reference.sizes and all(wanted.get(name) == buckets[name] for name in buckets)
        for reference, wanted in runs
    )
    if analyzed.padding is not None and not padded and (edge := lower_edge(domain, buckets)):
        raise AotcError(
            "AOTC-S019",
            "padded and unpadded answers could not be compared",
            where=where,
            expected="a size between "
            + " and ".join(
                f"{name}={size} and {name}={domain.dims[name].padded_size(size)}"
                for name, size in edge.items()
            ),
            found="none at which the original model runs",
        )


# Why a run on the build host says nothing of the target.


def require_alike(context: BuildContext) -> None:
    """Raise AOTC-N002 if this host is of another platform and unproven variants are refused."""
    why = platform_mismatch(context)
    if why and context.profile.unproven == "refuse":
        raise AotcError("AOTC-N002", why, place=context.places.of("unproven"))


def platform_mismatch(context: BuildContext) -> str:
    """Why this host's platform differs from the target's; empty if it does not."""
    host, target = context.host, context.target
    here, there = (
        f"{system.os} on {system.architecture} with "
        f"{system.libc.name if system.libc else 'any libc'}"
        for system in (host, target)
    )
    if target.libc is None or host.libc is None:
        here, there = (text.partition(" with ")[0] for text in (here, there))
    return f"built on {here} for {there}" if here != there else ""


def saturation_mismatch(lowered: LoweredModel, context: BuildContext) -> str:
    """Why results of integer products say nothing of the target; empty if they do."""
    here, there = exact_feature(context.host.isa), exact_feature(context.target.isa)
    if not lowered.optimized.saturating or bool(here) == bool(there):
        return ""
    having = "has VNNI, which the target lacks" if here else "lacks VNNI, which the target has"
    return f"its integer products are exact only with VNNI, and this CPU {having}"


# The device memory of a plain session, which that of a variant is told beside.


def plain_device_bytes(variants: Sequence[LoweredModel], state: BuildState) -> int | None:
    """What a plain session on CUDA takes after its first run, in a process of its own.

    It is the session of the user's model with ONNX Runtime's defaults, and the run that of the
    fixture with the largest inputs.  None without a GPU, a variant for CUDA or a fixture, and where
    that session fails: it is no part of what is proven.
    """
    on_cuda = [item for item in variants if CAPTURING.ort_name in item.providers]
    if not on_cuda or missing_gpu() or not on_cuda[0].analyzed.references:
        return None
    analyzed = on_cuda[0].analyzed
    largest = max(
        analyzed.references,
        key=lambda run: sum(path.stat().st_size for path in run.inputs.values()),
    )
    model, weights = analyzed.source.answering
    request = {"model": str(model), "weights": str(weights), "inputs": largest.input_paths}
    folder = state.work / "plain-on-device"
    try:
        value = state.workers.run(
            "aotc.pipeline.prove:plain_job", request, folder=folder, where="plain session"
        ).value
    except AotcError as error:
        state.announce(error.line())
        return None
    return None if value is None else int(value)


def plain_job(request: Json) -> Json:
    """In the worker: bytes of the device that the session and a run take, without the context."""
    from aotc.session.sessions import create_session, run

    before = free_memory()
    session = create_session(
        Path(request["model"]),
        SessionSpec(optimization="all"),
        providers=[CAPTURING.ort_name, CPU],
        weights_folder=Path(request["weights"]),
    )
    run(session, {name: values.load(Path(path)) for name, path in request["inputs"].items()})
    return memory_taken(before)
