"""Twins of a variant's half-precision graph that the CPU runs, with any further nodes in float32.

They serve to find the nodes that half precision spoils: what is costly is done once for all twins
of a variant, and none stores weights of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

import onnx

from aotc.contract.codec.parsing import Json
from aotc.graphs.offline import MODEL
from aotc.graphs.source_nodes import standing_for
from aotc.graphs.value_types import with_types
from aotc.passes.base import run_passes
from aotc.passes.half_precision import HalfPrecision
from aotc.passes.half_precision.float_twin import float_twin
from aotc.passes.half_precision.masks import lower_masks
from aotc.passes.half_precision.typed_graph import lift_constants
from aotc.records import record, replace
from aotc.stages.build_options import BuildOptions
from aotc.stages.optimizing.half_choice import Chooser
from aotc.stages.optimizing.half_precision import chooser_for, nodes_of_profile, request_of
from aotc.stages.optimizing.half_ranges import beyond, largest_values
from aotc.stages.optimizing.half_weights import rounding_twin
from aotc.stages.types import OptimizedModel

# The folder of the graph before it was changed, in that of the optimizer.
BEFORE: Final = "before"
_TYPED: Final = "typed.onnx"
_LARGEST: Final = "largest.json"
_HELD: Final = "held.json"


def half_graph_request(optimized: OptimizedModel, options: BuildOptions) -> Json:
    """What `half_graph` wants to know of a variant whose precision is float16 or bfloat16.

    Its `weights` are the folder of the external data of all twins.
    """
    specialized = optimized.specialized
    before = optimized.graph.parent / BEFORE
    changed = (before / MODEL).is_file()
    seen = options.work / f"half-{specialized.plan.name}"
    seen.mkdir(exist_ok=True)
    return {
        **request_of(specialized, options),
        # Providers that compute in half precision by an option have no changed graph.
        "graph": str(before / MODEL if changed else specialized.graph),
        "weights": str(before if changed else specialized.weights),
        "seen": str(seen),
    }


@record(kw_only=False)
class HalfTwin:
    """A twin on disk; `changed` are the nodes of the graph before it that round, by name."""

    path: Path
    changed: frozenset[str]


def half_graph(request: Json, kept: Collection[str], place: Path) -> HalfTwin:
    """In the worker: write the twin to the folder `place`.

    It computes in float32, and rounds to the type where the variant does, beyond the range to
    infinity.  `kept` are names of nodes of the imported graph that stay in float32 in addition to
    those that the variant keeps.  Values have the names of the imported graph as far as the
    variant's graph computes them, and are float32.  Create its session with the optimization
    `disable`, and with `weights` of the request as folder of its external data.
    """
    weights = Path(request["weights"])
    model = onnx.load(request["graph"], load_external_data=False)
    source = onnx.load(request["source"], load_external_data=False)
    names = standing_for(source.graph, model.graph, kept) | nodes_of_profile(model, request)
    if request["stored_only"]:
        made, changed = rounding_twin(model, request, names)
    else:
        made, changed = _computing(model, request, chooser_for(request, weights, names))
    place.mkdir(parents=True, exist_ok=True)
    path = place / MODEL
    path.write_bytes(made.SerializeToString(deterministic=True))
    return HalfTwin(path, changed)


def _computing(
    model: onnx.ModelProto, request: Json, chooser: Chooser
) -> tuple[onnx.ModelProto, frozenset[str]]:
    typed, largest = _seen(model, request)
    held_file = Path(request["seen"]) / _HELD
    chooser = replace(
        chooser,
        wide=tuple(beyond(largest, chooser.half)),
        held=json.loads(held_file.read_text()) if held_file.is_file() else {},
    )
    graph = chooser.graph_of(typed)
    lower_masks(graph, chooser.half, chooser.read)
    reasons = chooser.all_reasons(graph)
    changed = frozenset(chooser.changed(graph, reasons))
    rewrite = HalfPrecision(
        to=chooser.half.name,
        ep=chooser.backend.ort_name,
        kept=frozenset(reasons),
        read=chooser.read,
        cast_constants=True,
    )
    held_file.write_text(json.dumps(chooser.held))
    run_passes(typed, (rewrite,))
    return float_twin(typed, chooser.backend.ort_name, chooser.half.name), changed


def _seen(model: onnx.ModelProto, request: Json) -> tuple[onnx.ModelProto, dict[str, float]]:
    """The graph with its types, and the largest magnitudes; found by the first twin."""
    seen = Path(request["seen"])
    if (seen / _LARGEST).is_file():
        return onnx.load(seen / _TYPED, load_external_data=False), json.loads(
            (seen / _LARGEST).read_text()
        )
    lift_constants(model)
    typed = with_types(model, Path(request["weights"]))
    largest, _ = largest_values(typed, request)
    (seen / _TYPED).write_bytes(typed.SerializeToString(deterministic=True))
    (seen / _LARGEST).write_text(json.dumps(largest))
    return typed, largest
