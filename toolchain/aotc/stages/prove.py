"""Prove: run every variant on the reference's fixtures, and observe where its nodes run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import Parity, Placement, SessionSpec, TransferTotals
from aotc.contract.profile_terms import Arithmetic, Tolerance
from aotc.contract.results.build_evidence import Comparison, OutputError, VariantEvidence
from aotc.contract.results.run_report import Gate
from aotc.contract.shapes.padding_rules import Padding
from aotc.engine.job_steps import steps_of, tell_steps
from aotc.engine.named_backends import backend_of
from aotc.engine.placement import placement_of
from aotc.engine.worker_pool import JobResult
from aotc.errors import AotcError
from aotc.partitioning.budgets import Judged, judge_placement
from aotc.partitioning.partition_report import total_transfers
from aotc.records import replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.lowering.capturing import not_capturable
from aotc.stages.proving.compared_runs import compared_runs
from aotc.stages.proving.repeated_runs import (
    decoded_repeats,
    repeat_calls,
    repeat_request,
    repeated_fixture,
)
from aotc.stages.proving.target_mismatch import platform_mismatch, saturation_mismatch
from aotc.stages.proving.variant_gates import (
    judge_costs,
    judge_parity,
    judge_together,
    refused_gate,
    variant_figures,
)
from aotc.stages.types import JudgedVariant, LoweredModel, ProvenModel, ReferenceRun

if TYPE_CHECKING:
    import onnxruntime as ort

_SATURATION_FIX: Final = (
    "Quantize the model with operands of one sign, or weights in 7 bits; or build for a target "
    "like this host."
)


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
    if any(value.dtype in ("float16", "bfloat16") for value in values) or source.capture.half:
        return "bfloat16" if source.retyped and precision == "bfloat16" else "float16"
    return "float32" if precision == "keep" else precision


def prove(lowered: LoweredModel, options: BuildOptions) -> JudgedVariant:
    """Judge parity, placement, load time and peak memory of one variant, all of them.

    On a host of another kind than the target the graph is run as well, but that proves nothing for
    the target: parity is then `not-run`, and placement predicted.
    The breach of a variant is AOTC-N001 (parity), N007 and S019 (padding), N002 (not proven), P001,
    P002 (placement), P014 (no CUDA graph is captured), M002 or M003 (budgets), with the further
    ones in `also`.  Raises R008 and I013 to I015 from the sandbox.
    """
    plan = lowered.plan
    analyzed = lowered.analyzed
    arithmetic = arithmetic_of(lowered)
    tolerance: Tolerance = getattr(options.profile.parity, arithmetic)
    where = f"variant {plan.name}"
    options.journal.forget(where)
    not_proven = (
        platform_mismatch(options) or lowered.why_not_run or saturation_mismatch(lowered, options)
    )
    if not_proven and options.profile.unproven == "refuse":
        return JudgedVariant(breach=_not_proven(lowered, not_proven, options))
    runs = compared_runs(analyzed, plan)
    if lowered.why_not_run:
        return _prove_undivided(lowered, not_proven, arithmetic, runs, options)
    result = _run(lowered, runs, tolerance, options)
    value = result.value
    comparisons = tuple(decode(Comparison, item) for item in value["comparisons"])
    evidence = VariantEvidence(
        name=plan.name,
        comparisons=comparisons,
        load_seconds=value["load_seconds"],
        first_run_seconds=value["first_run_seconds"],
        run_seconds=value["run_seconds"],
        peak_memory_bytes=result.peak_memory_bytes,
        repeats=decoded_repeats(value["repeats"]),
    )
    placement = decode(Placement, value["placement"])
    breach = judge_together(
        (
            judge_parity(comparisons, where, arithmetic, tolerance, options.places),
            _judge_capture(lowered, value["not_captured"], where, options),
            _judge_placement(placement, lowered, options),
            judge_costs(evidence, options.profile.budgets, where, options.places),
        ),
        options.journal,
    )
    options.journal.measured(variant_figures(evidence, where))
    proven = ProvenModel(
        lowered=lowered,
        placement=replace(placement, how="predicted") if not_proven else placement,
        parity=Parity(
            status="not-run" if not_proven else "passed",
            reason=not_proven,
            arithmetic=arithmetic,
            tolerance=tolerance,
            shapes=() if not_proven else tuple(c.sizes for c in comparisons),
            padded=0 if not_proven else sum(bool(c.padded_to) for c in comparisons),
        ),
        evidence=evidence,
    )
    return JudgedVariant(proven=proven, breach=breach)


def judged_variant(lowered: LoweredModel, options: BuildOptions) -> JudgedVariant:
    """`prove`; what ends the proof itself, such as a crash in the sandbox, is a breach as well."""
    try:
        return prove(lowered, options)
    except AotcError as error:
        options.journal.judged((refused_gate(lowered.plan.name, error),))
        return JudgedVariant(breach=error)


def _not_proven(lowered: LoweredModel, why: str, options: BuildOptions) -> AotcError:
    """The refusal of a variant that may not stay unproven, with what its plan breaches."""
    where = f"variant {lowered.plan.name}"
    place = options.places.of("unproven")
    error = AotcError(
        "AOTC-N002",
        why,
        where=where,
        fix=_SATURATION_FIX if lowered.optimized.saturating else "",
        place=place,
    )
    gate = Gate(
        name="unproven", subject=where, status="failed", limit="proven", measured=why, place=place
    )
    judged = [Judged(gates=(gate,), breaches=(error,))]
    if lowered.planned_placement:
        planned = placement_of(lowered.planned_placement, observed=False)
        judged.append(_judge_placement(planned, lowered, options))
    judge_together(judged, options.journal)
    return error


def _run(
    lowered: LoweredModel,
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    tolerance: Tolerance,
    options: BuildOptions,
    *,
    divided: bool = True,
) -> JobResult:
    """Run the variant in a worker, or with `divided=False` its undivided graph on the CPU."""
    analyzed = lowered.analyzed
    plan = lowered.plan
    # Its fixtures have many sizes, each run once: no graph is captured.
    session = lowered.session if divided else SessionSpec(optimization="disable")
    folder = options.work / f"prove-{plan.name}"
    options.clock.reporter.follow("fixtures", steps_of(folder, "fixtures"))
    return options.workers.run(
        "aotc.stages.prove:prove_job",
        {
            "model": str(lowered.model if divided else lowered.partitioned.claimed.graph),
            "contexts": bool(lowered.contexts) and divided,
            "weights": str(lowered.weights if divided else lowered.partitioned.claimed.weights),
            # The CPU has no kernels for bfloat16.
            "twin_of": ""
            if divided or plan.precision != "bfloat16"
            else backend_of(plan.providers[0], options.profile.plugins).ort_name,
            "session": encode(session),
            "captures": lowered.captures and divided,
            "repeats": repeat_request(lowered, options) if divided else None,
            "providers": list(lowered.providers) if divided else [CPU],
            "libraries": {spec.provider: spec.library for spec in options.profile.plugins.values()},
            "tolerance": encode(tolerance),
            "inputs": [encode(value) for value in analyzed.source.inputs],
            "padding": encode(analyzed.padding),
            "references": [
                {
                    "name": reference.name,
                    "sizes": reference.sizes,
                    "wanted": wanted,
                    "inputs": {name: str(path) for name, path in reference.inputs.items()},
                    "outputs": {name: str(path) for name, path in reference.outputs.items()},
                }
                for reference, wanted in runs
            ],
        },
        folder=folder,
        where=f"variant {plan.name}",
    )


def _prove_undivided(
    lowered: LoweredModel,
    reason: str,
    arithmetic: Arithmetic,
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
    options: BuildOptions,
) -> JudgedVariant:
    """Prove a variant that this machine cannot run: its placement is the planned one.

    Its undivided graph is compared on the CPU, which checks all passes.
    """
    plan = lowered.plan
    placement = placement_of(lowered.planned_placement, observed=False)
    tolerance: Tolerance = getattr(options.profile.parity, arithmetic)
    result = _run(lowered, runs, tolerance, options, divided=False)
    comparisons = tuple(decode(Comparison, item) for item in result.value["comparisons"])
    where = f"variant {plan.name}, undivided on the CPU"
    breach = judge_together(
        (
            _judge_placement(placement, lowered, options),
            judge_parity(comparisons, where, arithmetic, tolerance, options.places),
        ),
        options.journal,
    )
    proven = ProvenModel(
        lowered=lowered,
        placement=placement,
        parity=Parity(
            status="not-run",
            reason=reason,
            arithmetic=arithmetic,
            tolerance=tolerance,
        ),
        evidence=VariantEvidence(name=plan.name, undivided=comparisons),
    )
    return JudgedVariant(proven=proven, breach=breach)


def _judge_capture(
    lowered: LoweredModel, why_not: str, where: str, options: BuildOptions
) -> Judged:
    """Whether ONNX Runtime captured a graph: a gate where the profile refuses what it does not."""
    if not lowered.captures:
        return Judged()
    place = options.places.of("cuda.graphs")
    gate = Gate(
        name="cuda.graphs",
        subject=where,
        status="failed" if why_not else "passed",
        limit="a CUDA graph is captured, and replays rightly",
        measured=why_not or "captured",
        place=place,
    )
    return Judged(
        gates=(gate,) if lowered.plan.cuda.graphs.refused == "fail" else (),
        breaches=(not_capturable(where, why_not, place),) if why_not else (),
    )


def _judge_placement(placement: Placement, lowered: LoweredModel, options: BuildOptions) -> Judged:
    """The policy and the budgets of placement, by the order of providers that they are for."""
    plan = lowered.plan
    report = lowered.report
    order = options.budget_orders.get(plan.spec, plan.providers)
    return judge_placement(
        options.profile,
        {name: backend_of(name, options.profile.plugins).ort_name for name in order},
        placement,
        report=report,
        transfers=total_transfers(report.transfers) if report is not None else TransferTotals(),
        where=f"variant {plan.name}",
        places=options.places,
    )


def _graph_bytes(model: Path, twin_of: str) -> bytes:
    if not twin_of:
        return model.read_bytes()
    import onnx

    from aotc.passes.half_precision.float_twin import float_twin

    twin = float_twin(onnx.load(model, load_external_data=False), twin_of)
    return twin.SerializeToString()


def prove_job(request: Json) -> Json:
    """In the worker: load the variant, observe placement, run every fixture once and compare."""
    from aotc.engine import values
    from aotc.engine.padding import Padder
    from aotc.engine.parity import compare
    from aotc.engine.placement import observe
    from aotc.engine.session import create_session, run

    spec = decode(SessionSpec, request["session"])
    tolerance = decode(Tolerance, request["tolerance"])
    started = time.perf_counter()
    model = Path(request["model"])

    def opened(
        settings: Mapping[str, Mapping[str, str]], spec: SessionSpec = spec
    ) -> ort.InferenceSession:
        return create_session(
            model if request["contexts"] else _graph_bytes(model, request["twin_of"]),
            spec,
            providers=request["providers"],
            weights_folder=Path(request["weights"]),
            context_path=Path(request["model"]),
            libraries={name: Path(path) for name, path in request["libraries"].items()},
            record_placement=True,
            settings=settings,
        )

    session = opened({})
    load_seconds = time.perf_counter() - started
    padding = decode(Padding, request["padding"]) if request["padding"] else None
    padder = Padder([decode(Value, item) for item in request["inputs"]], padding)
    comparisons: list[Comparison] = []
    run_seconds: dict[str, float] = {}
    first = None

    def inputs_of(reference: Json) -> dict[str, Any]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        if reference["wanted"] != reference["sizes"]:
            inputs = padder.pad(inputs, reference["sizes"], reference["wanted"]).inputs
        return inputs

    for number, reference in enumerate(request["references"]):
        tell_steps(number, len(request["references"]))
        inputs = inputs_of(reference)
        names = list(reference["outputs"])
        sizes, wanted = reference["sizes"], reference["wanted"]
        started = time.perf_counter()
        outputs = run(session, inputs, names, refusal="AOTC-N001")
        seconds = time.perf_counter() - started
        first = seconds if first is None else first
        run_seconds[reference["name"]] = seconds
        if wanted != sizes:
            outputs = padder.crop(names, outputs, sizes)
        errors: list[OutputError] = []
        for name, output in zip(names, outputs, strict=True):
            golden = values.load(Path(reference["outputs"][name]))
            errors.append(compare(golden, output, tolerance, name))
        comparisons.append(
            Comparison(
                fixture=reference["name"],
                sizes=sizes,
                padded_to=wanted if wanted != sizes else {},
                outputs=tuple(errors),
            )
        )
    placement, not_captured = encode(observe(session)), ""
    repeats = None
    if request["repeats"] is not None and run_seconds:

        def call() -> list[Any]:
            return run(session, repeated, names, refusal="AOTC-N001")

        def reopened(other: Json) -> Callable[[], list[Any]]:
            nonlocal session
            del session
            session = opened({}, decode(SessionSpec, other) if other else spec)
            return call

        chosen = repeated_fixture(run_seconds)
        repeated = inputs_of(next(e for e in request["references"] if e["name"] == chosen))
        repeats = encode(repeat_calls(request["repeats"], chosen, names, call, reopened))
    if request["captures"]:
        from aotc.engine.device.capture_trial import why_not_captured

        # Its memory is for the session that captures.
        del session
        not_captured = why_not_captured(opened, inputs, str(model))
    return {
        "placement": placement,
        "not_captured": not_captured,
        "repeats": repeats,
        "comparisons": [encode(item) for item in comparisons],
        "load_seconds": load_seconds,
        "first_run_seconds": first,
        "run_seconds": run_seconds,
    }
