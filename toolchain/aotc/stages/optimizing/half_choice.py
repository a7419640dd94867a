"""Which nodes stay in float32 when a graph is changed to half precision, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

import numpy as np
import onnx

from aotc.backends.base import Backend, Claims
from aotc.contract.manifest.toolchain import KEPT
from aotc.passes.base import run_passes, walk_nodes
from aotc.passes.half_precision import HalfPrecision
from aotc.passes.half_precision.bodies import body_models, has_bodies
from aotc.passes.half_precision.boundaries import saving_nodes
from aotc.passes.half_precision.half_types import HalfType
from aotc.passes.half_precision.logarithms import logarithm_nodes
from aotc.passes.half_precision.positions import position_nodes
from aotc.passes.half_precision.slots import ALWAYS_KEPT
from aotc.passes.half_precision.typed_graph import TypedGraph, typed_graph
from aotc.records import field, record
from aotc.stages.optimizing.half_weights import PROFILE, WEIGHTS

Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]

# Why a node is kept, as the manifest counts it.
ACTIVATIONS: Final = f"{KEPT}activations out of range"
READERS: Final = f"{KEPT}reads values out of range"
KERNELS: Final = f"{KEPT}no kernel"
POSITIONS: Final = f"{KEPT}positions"
LOGARITHMS: Final = f"{KEPT}logarithms"
CASTS: Final = f"{KEPT}saves casts"
BODIES: Final = f"{KEPT}bodies without products"
# Each round keeps more nodes, and most need one.
_MAX_ROUNDS: Final = 8
# A body without any would compute no faster, between casts in each iteration.
_PRODUCTS: Final = frozenset(
    {"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"}
)


@record(kw_only=False)
class Chooser:
    """What decides: the type, the provider, values out of range, and nodes that are kept anyway."""

    half: HalfType
    backend: Backend
    read: Read
    wide: Collection[str]
    kept: frozenset[str]
    # By name and place in the file: whether a large constant is in the type's range.
    held: dict[str, bool] = field(default_factory=dict)

    def graph_of(self, model: onnx.ModelProto) -> TypedGraph:
        """The main graph of `model`, whose values all have types."""
        return typed_graph(model, self.half.tensor_name, self.backend.ort_name)

    def all_reasons(self, graph: TypedGraph) -> dict[str, str]:
        """Why nodes are kept, by name, those in bodies included; nodes without float32 are none."""
        found = self._reasons(graph)
        for inner in self._bodies(graph):
            if any(one.op_type in _PRODUCTS or one.domain for one in walk_nodes(inner.model)):
                found |= self.all_reasons(inner)
            else:
                found |= {
                    node.name: BODIES
                    for index, node in enumerate(inner.nodes)
                    if inner.slots[index] or has_bodies(node)
                }
        return found

    def stated_reasons(self, model: onnx.ModelProto) -> dict[str, str]:
        """Of all nodes: those that the profile keeps, and that make or read values out of range.

        They hold for providers that choose their kernels and casts themselves.
        """
        wide = frozenset(self.wide)
        found = {}
        for node in walk_nodes(model):
            if node.name in self.kept:
                found[node.name] = PROFILE
            elif wide.intersection(node.output):
                found[node.name] = ACTIVATIONS
            elif wide.intersection(node.input):
                found[node.name] = READERS
        return found

    def changed(self, graph: TypedGraph, kept: Collection[str]) -> list[str]:
        """The names of nodes that change, those in bodies included."""
        found = [
            node.name
            for index, node in enumerate(graph.nodes)
            if graph.slots[index] and node.name not in kept
        ]
        for node in graph.nodes:
            if node.name not in kept:
                for _, model in body_models(graph, node):
                    found += self.changed(self.graph_of(model), kept)
        return found

    def _bodies(self, graph: TypedGraph) -> Iterator[TypedGraph]:
        for node in graph.nodes:
            if node.name not in self.kept:
                for _, model in body_models(graph, node):
                    yield self.graph_of(model)

    def _reasons(self, graph: TypedGraph) -> dict[str, str]:
        narrow = {
            name
            for name, tensor in graph.constants.items()
            if graph.is_float(name) and not self._holds(tensor)
        }
        angles = position_nodes(graph)
        # bfloat16 has the small numbers of float32.
        logarithms = logarithm_nodes(graph) if self.half.name == "float16" else set()
        wide = frozenset(self.wide)
        found: dict[int, str] = {}
        for index, node in enumerate(graph.nodes):
            slots = graph.slots[index]
            if has_bodies(node):
                if node.name in self.kept:
                    found[index] = PROFILE
                continue
            if not slots:
                if graph.touches_float(index) and node.op_type != "Constant":
                    found[index] = KERNELS
                continue
            given = [node.input[at] for at in slots.inputs]
            made = [node.output[at] for at in slots.outputs]
            if node.name in self.kept:
                found[index] = PROFILE
            elif narrow.intersection(given) or not _holds_attribute(node, self.half):
                found[index] = WEIGHTS
            elif wide.intersection(made):
                found[index] = ACTIVATIONS
            elif wide.intersection(given):
                found[index] = READERS
            elif index in angles or node.op_type in ALWAYS_KEPT:
                found[index] = POSITIONS
            elif index in logarithms:
                found[index] = LOGARITHMS
        for index in self._without_kernel(graph, set(found)):
            found[index] = KERNELS
        for index in saving_nodes(graph, set(found)):
            found[index] = CASTS
        return {graph.nodes[index].name: why for index, why in sorted(found.items())}

    def _holds(self, tensor: onnx.TensorProto) -> bool:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return self.half.holds(self.read(tensor))
        offset = {pair.key: pair.value for pair in tensor.external_data}.get("offset", "0")
        key = f"{tensor.name} {offset}"
        if key not in self.held:
            self.held[key] = self.half.holds(self.read(tensor))
        return self.held[key]

    def _without_kernel(self, graph: TypedGraph, kept: set[int]) -> set[int]:
        """Nodes that the provider would refuse in half precision, as it predicts."""
        found: set[int] = set()
        positions = {node.name: index for index, node in enumerate(graph.nodes)}
        with_bodies = {index for index, node in enumerate(graph.nodes) if has_bodies(node)}
        for _ in range(_MAX_ROUNDS):
            trial = onnx.ModelProto()
            trial.CopyFrom(graph.model)
            names = frozenset(graph.nodes[index].name for index in kept | found | with_bodies)
            rewrite = HalfPrecision(to=self.half.name, ep=self.backend.ort_name, kept=names)
            run_passes(trial, (rewrite,))
            claims: Claims | None = self.backend.predict(trial)
            if claims is None:
                return found
            refused = {
                positions[refusal.node] for refusal in claims.refusals if refusal.node in positions
            }
            new = {index for index in refused - kept - found if graph.slots[index]}
            if not new:
                return found
            found |= new
        return found


def _holds_attribute(node: onnx.NodeProto, half: HalfType) -> bool:
    if node.op_type != "ConstantOfShape":
        return True
    return all(
        half.holds(onnx.numpy_helper.to_array(attribute.t))
        for attribute in node.attribute
        if attribute.name == "value" and attribute.t.data_type == onnx.TensorProto.FLOAT
    )
