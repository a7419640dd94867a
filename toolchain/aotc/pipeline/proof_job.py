"""The worker job of a proof: a variant runs every fixture once, and its answers are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.values import Data
from aotc.pipeline.context import BuildContext
from aotc.pipeline.gates import repeat_calls, repeated_fixture
from aotc.pipeline.types import AnalyzedModel, LoweredModel, ReferenceRun, VariantPlan
from aotc.providers.named_backends import backend_of
from aotc.session.worker import tell_steps
from aotc.sizes.inputs.fixtures import lower_edge
from aotc.spec.codec import Json, decode, encode
from aotc.spec.evidence import Comparison, OutputError
from aotc.spec.payload import Value
from aotc.spec.precision import OutputGate, Tolerance
from aotc.spec.providers import CPU
from aotc.spec.shapes import Domain, Padding, raised_to_buckets
from aotc.spec.variant import HALF_PRECISION, SessionSpec

if TYPE_CHECKING:
    import onnxruntime as ort


def _graph_bytes(model: Path, twin: Json) -> bytes:
    if not twin:
        return model.read_bytes()
    import onnx

    from aotc.precision.half_twins import float_twin

    made = float_twin(onnx.load(model, load_external_data=False), twin["ep"], twin["to"])
    return made.SerializeToString()


def open_variant(
    request: Json,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    spec: Json = None,
) -> ort.InferenceSession:
    """In a worker: the session of the variant that `request` describes, recording placement.

    `spec` replaces how the session is created.
    """
    from aotc.session.sessions import create_session

    model = Path(request["model"])
    return create_session(
        model if request["contexts"] else _graph_bytes(model, request["twin"]),
        decode(SessionSpec, spec or request["session"]),
        providers=request["providers"],
        weights_folder=Path(request["weights"]),
        context_path=model,
        libraries={name: Path(path) for name, path in request["libraries"].items()},
        record_placement=True,
        settings=settings,
    )


def prove_job(request: Json) -> Json:
    """In the worker: load the variant, observe placement, run every fixture once and compare."""
    from aotc.session.padding import Padder
    from aotc.session.parity import compare
    from aotc.session.sessions import observe, run

    gates = {name: decode(OutputGate, gate) for name, gate in request["gates"].items()}
    tolerance = decode(Tolerance, request["tolerance"])
    started = time.perf_counter()

    def opened(settings: Mapping[str, Mapping[str, str]]) -> ort.InferenceSession:
        return open_variant(request, settings)

    session: ort.InferenceSession | None = opened({})
    load_seconds = time.perf_counter() - started
    padding = decode(Padding, request["padding"]) if request["padding"] else None
    padder = Padder([decode(Value, item) for item in request["inputs"]], padding)
    comparisons: list[Comparison] = []
    run_seconds: dict[str, float] = {}
    first = None

    def inputs_of(reference: Json) -> dict[str, Data]:
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
            errors.append(compare(golden, output, tolerance, name, gates.get(name)))
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

        def call() -> list[Data]:
            return run(session, repeated, names, refusal="AOTC-N001")

        def reopened(other: Json) -> Callable[[], list[Data]]:
            nonlocal session
            # Ended first; and still a name, where the next one cannot be opened.
            session = None
            session = open_variant(request, {}, other)
            return call

        chosen = repeated_fixture(run_seconds)
        repeated = inputs_of(next(e for e in request["references"] if e["name"] == chosen))
        repeats = encode(repeat_calls(request["repeats"], chosen, names, call, reopened))
    if request["captures"]:
        from aotc.session.device.cuda_place import why_not_captured

        # Its memory is for the session that captures.
        del session
        not_captured = why_not_captured(opened, inputs, request["model"])
    return {
        "placement": placement,
        "not_captured": not_captured,
        "repeats": repeats,
        "comparisons": [encode(item) for item in comparisons],
        "load_seconds": load_seconds,
        "first_run_seconds": first,
        "run_seconds": run_seconds,
    }


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
    runs: Sequence[tuple[ReferenceRun, Mapping[str, int]]],
) -> list[Json]:
    """What a worker is told of each of `compared_runs`."""
    return [
        {
            "name": reference.name,
            "sizes": dict(reference.sizes),
            "wanted": dict(wanted),
            "inputs": reference.input_paths,
            "outputs": reference.output_paths,
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


def variant_request(lowered: LoweredModel, context: BuildContext, *, divided: bool = True) -> Json:
    """The variant, or with `divided=False` its undivided graph on the CPU."""
    claimed = lowered.partitioned.claimed
    # Its calls have many sizes, each run once: no graph is captured.
    session = lowered.session if divided else SessionSpec(optimization="disable")
    plugins = context.profile.plugins
    return {
        "model": str(lowered.model if divided else claimed.graph),
        "contexts": bool(lowered.contexts) and divided,
        "weights": str(lowered.weights if divided else claimed.weights),
        "twin": None if divided else _twin(lowered, context),
        "session": encode(session),
        "providers": list(lowered.providers) if divided else [CPU],
        "libraries": {spec.provider: spec.library for spec in plugins.values()},
    }


def _twin(lowered: LoweredModel, context: BuildContext) -> Json:
    """Of what the CPU runs a twin in float32: the type and the provider; None for other graphs.

    It has no kernels for bfloat16, and computes in float32 what is in float16.
    """
    plan = lowered.plan
    made = {record.name for record in lowered.optimized.passes}
    if plan.precision != "bfloat16" and not (
        plan.precision == "float16" and HALF_PRECISION in made
    ):
        return None
    backend = backend_of(plan.providers[0], context.profile.plugins)
    return {"to": plan.precision, "ep": backend.ort_name}


# Why a run on the build host says nothing of the target.


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
