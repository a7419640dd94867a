"""Trial graphs in float16 and bfloat16: twins in float32 that round where the variant does."""

from __future__ import annotations

from pathlib import Path

import onnx

from aotc.contract.codec.parsing import Json
from aotc.errors import AotcError
from aotc.passes.base import walk_nodes
from aotc.stages.blaming.trial_graphs import TrialGraph, changed_nodes
from aotc.stages.optimizing.half_graph import half_graph

# Nothing is left to compute in half precision: that is the graph in float32.
_NOTHING_LEFT = "AOTC-N012"
# What they make is the same in any type.
_READ_NO_NUMBERS = frozenset({"Shape", "Size"})


def write_half(asked: Json, kept: frozenset[str], folder: Path) -> TrialGraph:
    """In the worker: the twin of a variant in half precision, on the CPU."""
    weights = Path(asked["weights"])
    source = onnx.load(asked["source"], load_external_data=False).graph
    before = onnx.load(asked["graph"], load_external_data=False)
    try:
        twin = half_graph(asked, kept, folder)
    except AotcError as error:
        if error.code != _NOTHING_LEFT:
            raise
        return TrialGraph(model=Path(asked["graph"]).resolve(), weights=weights, changed=())
    computing = [
        node
        for node in walk_nodes(before)
        if node.name in twin.changed and node.op_type not in _READ_NO_NUMBERS
    ]
    changed = changed_nodes(source, before.graph, computing, not_these=kept)
    return TrialGraph(model=twin.path.resolve(), weights=weights, changed=changed)
