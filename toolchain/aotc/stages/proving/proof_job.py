"""The worker job of a proof: a variant runs every fixture once, and its answers are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.precision.quality_gates import OutputGate
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import Comparison, OutputError
from aotc.contract.shapes.padding_rules import Padding
from aotc.engine.job_steps import tell_steps
from aotc.engine.values import Data
from aotc.stages.proving.repeated_runs import repeat_calls, repeated_fixture

if TYPE_CHECKING:
    import onnxruntime as ort


def _graph_bytes(model: Path, twin: Json) -> bytes:
    if not twin:
        return model.read_bytes()
    import onnx

    from aotc.passes.half_precision.float_twin import float_twin

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
    from aotc.engine.session import create_session

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
    from aotc.engine import values
    from aotc.engine.padding import Padder
    from aotc.engine.parity import compare
    from aotc.engine.placement import observe
    from aotc.engine.session import run

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
        from aotc.engine.device.capture_trial import why_not_captured

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
