"""In a worker: a variant against its model, on the outputs, inside, and part by part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aotc.blaming.graph_side import Side, as_loaded
from aotc.blaming.node_comparison import node_errors
from aotc.contract.codec.parsing import Json, decode, encode
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.precision.quality_gates import OutputGate
from aotc.contract.profile_terms import Tolerance
from aotc.contract.results.build_evidence import OutputError
from aotc.contract.results.nodes.node_errors import NodeErrors
from aotc.contract.results.parity_debug import FailingSubmodel
from aotc.debugging.bug_report import fails, session_of, write_report
from aotc.debugging.smallest_failing import FailingPart, SmallestFailing
from aotc.engine import values
from aotc.engine.parity import compare
from aotc.engine.session import import_onnxruntime
from aotc.engine.values import Data
from aotc.graphs.original import open_original
from aotc.graphs.shown_values import outputs_of
from aotc.partitioning.graph import op_of
from aotc.records import replace

# The folder of the report of a bug, in the folder of the job.
REPORT_FOLDER: Final = "report"


def parity_job(request: Json) -> Json:
    """Compare outputs on all inputs, then nodes on those with the largest error.

    Outputs are judged by their gates, nodes by the tolerance.  Where an output fails, and
    `isolate` is true, the smallest failing part is searched, and written to the folder `report`.
    """
    source, variant = _source(request["source"]), _variant(request["variant"])
    tolerance = decode(Tolerance, request["tolerance"])
    place = Path("loaded")
    place.mkdir()
    gates = {name: decode(OutputGate, gate) for name, gate in request["gates"].items()}
    compared = _compared_outputs(source, variant, request["inputs"], tolerance, gates)
    chosen = max(compared, key=lambda name: _badness(compared[name]))
    given = _read(request["inputs"][chosen])
    variant = as_loaded(variant, place)
    errors = node_errors(source, variant, given, tolerance, fixture=chosen)
    failed = any(not error.passed for error in compared[chosen])
    submodel = None
    if failed and request["isolate"]:
        search = SmallestFailing(source, variant, given, tolerance)
        found = search.search(errors)
        if found is not None:
            files = _written(found, source, tolerance)
            # What the script does not show is no report of a bug.
            if fails(Path(REPORT_FOLDER)):
                submodel = replace(_described(found), trials=search.trials, files=files)
    return {
        "fixture": chosen,
        "outputs": encode(compared[chosen]),
        "errors": encode(errors),
        "submodel": None if submodel is None else encode(submodel),
    }


def nodes_job(request: Json) -> Json:
    """The errors by node alone, on the first inputs."""
    source, variant = _source(request["source"]), _variant(request["variant"])
    name = next(iter(request["inputs"]))
    found: NodeErrors = node_errors(
        source,
        variant,
        _read(request["inputs"][name]),
        decode(Tolerance, request["tolerance"]),
        fixture=name,
        work=Path(),
    )
    return encode(found)


def _source(request: Json) -> Side:
    model, weights = Path(request["model"]), Path(request["weights"])
    level, _ = open_original(model, weights)
    return Side(model=model, weights=weights, session=SessionSpec(optimization=level, threads=1))


def _variant(request: Json) -> Side:
    return Side(
        model=Path(request["model"]),
        weights=Path(request["weights"]),
        session=decode(SessionSpec, request["session"]),
        providers=tuple(request["providers"]),
        libraries={name: Path(path) for name, path in request["libraries"].items()},
    )


def _read(files: Mapping[str, str]) -> dict[str, Any]:
    return {name: values.load(Path(path)) for name, path in files.items()}


def _compared_outputs(
    source: Side,
    variant: Side,
    inputs: Mapping[str, Mapping[str, str]],
    tolerance: Tolerance,
    gates: Mapping[str, OutputGate],
) -> dict[str, tuple[OutputError, ...]]:
    """Errors of the outputs, by the name of the inputs."""
    reference, session = source.opened(source.read()), variant.opened(variant.read())
    found: dict[str, tuple[OutputError, ...]] = {}
    for name, files in inputs.items():
        given = _read(files)
        expected = outputs_of(reference, given)
        actual = outputs_of(session, given)
        found[name] = tuple(
            compare(expected[output], actual.get(output), tolerance, output, gates.get(output))
            for output in expected
        )
    return found


def _badness(errors: tuple[OutputError, ...]) -> tuple[bool, float]:
    return any(not error.passed for error in errors), max(error.max_rel for error in errors)


def _described(found: FailingPart) -> FailingSubmodel:
    return FailingSubmodel(
        value=found.value.name,
        nodes=found.covers,
        variant_nodes=tuple(node.name for node in found.nodes),
        ops=tuple(op_of(node) for node in found.nodes),
        inputs=tuple(found.inputs),
        error=found.error,
        accumulated=found.accumulated,
    )


def _written(found: FailingPart, source: Side, tolerance: Tolerance) -> tuple[str, ...]:
    folder = Path(REPORT_FOLDER)
    folder.mkdir()
    arrays: dict[str, Mapping[str, Data]] = {
        "inputs": found.inputs,
        "expected": {found.value.name: found.expected},
        "found": {found.value.name: found.found},
    }
    report = {
        "what": "submodel.onnx answers otherwise than reference.onnx on inputs.npz",
        "value": found.value.name,
        "nodes": list(found.covers),
        "submodel_nodes": [{"name": node.name, "op": op_of(node)} for node in found.nodes],
        "error": encode(found.error),
        "tolerance": encode(tolerance),
        "accumulated": found.accumulated,
        "session": session_of(found.side),
        "reference_session": session_of(source),
        "versions": {"onnxruntime": str(import_onnxruntime().__version__)},
    }
    return write_report(folder, found.part, found.reference, arrays, report)
