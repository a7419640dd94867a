"""The form of a model whose costs are measured: what a build would run, as far as it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from aotc.backends.base import Backend, SessionUse
from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.variant import SessionSpec
from aotc.contract.profile_terms import Precision, WantedPrecision
from aotc.errors import AotcError
from aotc.passes.half_precision.half_types import HALF_TYPES
from aotc.stages.optimizing.fusion import FUSED, fusion_job
from aotc.stages.optimizing.half_precision import to_half, why_left
from aotc.stages.optimizing.written_graph import write_weights


def measured_graph(request: Json) -> Path:
    """The graph, fused for CUDA as a build would if the request says so and it can be.

    Raises AOTC-O011 if the library of the rules is not installed.
    """
    graph = Path(request["graph"])
    if not request["fuses"]:
        return graph
    found = fusion_job({**request, "backend": request["providers"][0]})
    return Path(FUSED) if found["passes"] and not found["why_not"] else graph


def in_precision(model: onnx.ModelProto, request: Json) -> None:
    """Change `model` to the half precision that is asked for, if any, but for `keep_float32`.

    It was just optimized: its weights are in the working directory, and are written there.  No
    activation is observed, so that single nodes that a build keeps in float32 for their values are
    measured in half.  A model that has nothing to change stays.
    """
    wanted = request["precision"]
    if wanted not in HALF_TYPES or request["quantized"] or why_left(model.graph, wanted):
        return
    asked = {
        **request,
        "to": wanted,
        "stored_only": False,
        "source": request["graph"],
        "backend": request["providers"][0],
        "references": [],
        "where": "the measured graph",
    }
    try:
        to_half(model, asked)
    except AotcError as error:
        if error.code != "AOTC-N012":
            raise
        return
    write_weights(model)


def session_spec(
    backends: Sequence[Backend], precision: WantedPrecision, use: SessionUse
) -> SessionSpec:
    """The session of all `backends`; one without the precision computes in its exact one.

    Integers are not measured: which sizes are worth a variant is decided on the model's own types,
    as costs in integers differ by a factor at all sizes.  Nor is what `auto` will choose known.
    """
    options: dict[str, Mapping[str, str]] = {}
    for backend in backends:
        own: Precision = "keep" if precision == "auto" else backend.computes_in(precision)
        options |= backend.session("all", own, use).provider_options
    return SessionSpec(optimization="all", provider_options=options)
