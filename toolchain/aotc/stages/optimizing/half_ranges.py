"""Which values leave the range of a half-precision type, found on the reference's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json, decode
from aotc.contract.finding import Finding
from aotc.contract.known_providers import CPU
from aotc.contract.manifest.interface import Value
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.shapes.padding_rules import Padding
from aotc.engine import values
from aotc.engine.padding import Padder
from aotc.engine.session import create_session, run
from aotc.errors import AotcError
from aotc.graphs.source_nodes import covered_nodes
from aotc.passes.half_precision.half_types import HalfType
from aotc.passes.half_precision.observed_values import LARGEST, can_observe, observing_graph

# A finding is one line.
_MAX_NAMED: Final = 8


def largest_values(
    model: onnx.ModelProto, request: Json
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    """The largest finite magnitude of each float32 value on the reference's inputs, by name.

    `model` states the types of its values; its weights are in the folder `weights` of the request.
    Where ONNX Runtime cannot tell, finding AOTC-N013 says so: parity decides alone.  A sample of
    calibration data that does not run is left out, with the same finding.
    """
    try:
        if not request["references"] or not can_observe(model):
            why = "the operator set is too old"
            raise AotcError(
                "AOTC-N013", why if request["references"] else "no input has these sizes"
            )
        return _observed(model, request)
    except AotcError as error:
        what = f"activations could not be observed: {error.found or error.what}"[:300]
        return {}, (Finding(code="AOTC-N013", what=what, where=request["where"]),)


def beyond(largest: Mapping[str, float], half: HalfType) -> dict[str, float]:
    """The values that leave the type's range, with their largest magnitude."""
    return {name: size for name, size in largest.items() if size > half.largest}


def overflow_findings(
    wide: Mapping[str, float], model: onnx.ModelProto, half: HalfType, request: Json
) -> tuple[Finding, ...]:
    """AOTC-N029, with the source's nodes whose values leave the range, the largest first.

    A value that no node of the source makes is told with the node of `model` that makes it.
    """
    if not wide:
        return ()
    source = onnx.load(request["source"], load_external_data=False)
    named = source_makers(source.graph, model.graph)
    found: dict[str, float] = {}
    for name, size in wide.items():
        node = named.get(name, name)
        found[node] = max(size, found.get(node, 0.0))
    ordered = sorted(found, key=lambda node: (-found[node], node))
    told = ", ".join(f"{node!r} {found[node]:.4g}" for node in ordered[:_MAX_NAMED])
    more = f", and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    what = (
        f"{half.name} ends at {half.largest:.6g}, and these nodes make larger values: "
        f"{told}{more}; they stay in float32"
    )
    return (Finding(code="AOTC-N029", what=what, where=request["where"]),)


def source_makers(source: onnx.GraphProto, rewritten: onnx.GraphProto) -> dict[str, str]:
    """For values of `rewritten`: the source's node that makes them, else the node of `rewritten`.

    Where several nodes of the source became one, it is the last of them.
    """
    makers = {name: node.name for node in source.node for name in node.output if name}
    covered = covered_nodes(source, rewritten)
    found = {}
    for node in rewritten.node:
        for name in node.output:
            stands_for = covered.get(node.name) or (node.name,)
            found[name] = makers.get(name, stands_for[-1])
    return found


def _observed(
    model: onnx.ModelProto, request: Json
) -> tuple[dict[str, float], tuple[Finding, ...]]:
    observing, names = observing_graph(model)
    if not names:
        return {}, ()
    session = create_session(
        observing.SerializeToString(),
        SessionSpec(optimization="disable"),
        providers=[CPU],
        weights_folder=Path(request["weights"]),
    )
    padding = decode(Padding, request["padding"]) if request["padding"] else None
    padder = Padder([decode(Value, item) for item in request["inputs"]], padding)
    largest: dict[str, float] = {}
    left_out = []
    for reference in request["references"]:
        inputs = {name: values.load(Path(path)) for name, path in reference["inputs"].items()}
        sizes, wanted = reference["sizes"], reference["wanted"]
        if wanted != sizes:
            inputs = padder.pad(inputs, sizes, wanted).inputs
        try:
            (found,) = run(session, inputs, [LARGEST])
        except AotcError as error:
            if not reference.get("sample"):
                raise
            left_out.append(error.found or error.what)
            continue
        for name, size in zip(names, found, strict=True):
            largest[name] = max(float(size), largest.get(name, 0.0))
    if not left_out:
        return largest, ()
    what = f"{len(left_out)} samples of the calibration data do not run: {left_out[0]}"[:300]
    return largest, (Finding(code="AOTC-N013", what=what, where=request["where"]),)
