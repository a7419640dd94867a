"""Trial graphs in int8 and int4, as the build's own step quantizes the variant."""

from __future__ import annotations

from pathlib import Path

import onnx

from aotc.contract.codec.parsing import Json
from aotc.contract.manifest.toolchain import PassRecord
from aotc.errors import AotcError
from aotc.graphs.offline import MODEL
from aotc.passes.base import walk_nodes
from aotc.passes.quantize.operators import BY_FORM, CARRIERS
from aotc.stages.blaming.trial_graphs import TrialGraph, changed_nodes
from aotc.stages.optimizing.integer_products import rewrite_products
from aotc.stages.quantizing.prepared_graph import prepared_graph
from aotc.stages.quantizing.quantized_graph import write_quantized

# Nothing is left to quantize: that is the graph in float32.
_NOTHING_LEFT = "AOTC-N015"


def write_quantized_trial(asked: Json, kept: frozenset[str], folder: Path) -> TrialGraph:
    """In the worker: the variant quantized as it is, but for `kept`."""
    prepared = prepared_graph(asked)
    try:
        made = write_quantized(asked, kept, folder / MODEL)
    except AotcError as error:
        if error.code != _NOTHING_LEFT:
            raise
        return TrialGraph(model=prepared.resolve(), weights=prepared.parent.resolve(), changed=())
    if asked["one_sign"]:
        _write_in_one_sign(folder)
    return TrialGraph(
        model=(folder / MODEL).resolve(),
        weights=folder.resolve(),
        changed=_changed(asked, prepared, made, kept),
    )


def _write_in_one_sign(folder: Path) -> None:
    """Rewrite integer products to operands of one sign, which are exact on every CPU."""
    model = onnx.load(folder / MODEL, load_external_data=False)
    _, count = rewrite_products(model, folder)
    if count:
        (folder / MODEL).write_bytes(model.SerializeToString())


def _changed(
    asked: Json, prepared: Path, made: PassRecord, kept: frozenset[str]
) -> tuple[str, ...]:
    """What is quantized; what only carries integers from one such node to the next is not."""
    source = onnx.load(asked["source"], load_external_data=False)
    model = onnx.load(prepared, load_external_data=False)
    wanted = BY_FORM[asked["form"]]
    operators = wanted.intersection(asked["quantization"]["operators"] or wanted) - CARRIERS
    computing = [node for node in walk_nodes(model) if node.op_type in operators]
    left = {*made.kept, *asked["kept"], *kept}
    return changed_nodes(source.graph, model.graph, computing, not_these=left)
