"""Graphs that compute in float32 or float64 what another one computes in lower precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aotc.base.records import field, record
from aotc.graph.kernels import (
    KernelTable,
    bind_types,
    claim_by_kernels,
    opsets_of,
    pair_values,
    signature_of_node,
)
from aotc.graph.passes.base import Pass, all_names, cast_node, free_name, rename_read, set_nodes
from aotc.graph.types import constant_type, stated_types, type_name
from aotc.graph.view import has_subgraphs, subgraphs
from aotc.precision.half_conversion import (
    FLOAT,
    HALF_TYPES,
    HalfName,
    HalfType,
    TypedGraph,
    retype,
    what_is_untyped,
)
from aotc.spec.providers import CPU

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from aotc.precision.half_conversion import Read


_TENSOR: Final = "tensor(double)"
# What the first draw differs by type; the others have a kernel that refuses to run.
_KEPT: Final = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
    | {"GRU", "LSTM"}
)
# Each round keeps more nodes, and most need one.
_MAX_ROUNDS: Final = 8
_FLOAT = 1


class _Double:
    """float64, as the rewrite asks for it."""

    name = "float64"
    tensor_name = _TENSOR
    onnx_type = 11

    def tensor(self, values: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
        """A tensor of `values` in float64."""
        import numpy as np
        import onnx

        return onnx.numpy_helper.from_array(values.astype(np.float64), name)


@record
class DoubleTwin(Pass):
    """Compute in float64 what is computed in float32: the exact side of a comparison.

    The values of the model all have types; inputs and outputs keep theirs.  `kept` are names of
    nodes that stay in float32, between casts, as do control flow, quantized operators and what is
    random.  `read` returns the values of a tensor, which may be external.  Without it only types
    are changed, which is enough to ask which kernels there are.
    """

    name = "float64-twin"

    kept: frozenset[str] = field(default_factory=frozenset)
    read: Read | None = None

    def options(self) -> dict[str, object]:
        """None: what is kept follows from the kernels."""
        return {}

    def requires(self, model: onnx.ModelProto) -> str:
        return what_is_untyped(model.graph)

    def apply(self, model: onnx.ModelProto) -> None:
        flow = {node.name for node in model.graph.node if has_subgraphs(node)}
        graph = TypedGraph(model, _TENSOR, CPU)
        retype(graph, _Double(), CPU, self.kept | flow, self.read)


def without_float64(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of the nodes that read or make float32 and cannot change, by node.

    The names of nodes are unique, and all values have types.
    """
    import onnx

    graph = TypedGraph(model, _TENSOR, CPU)
    kept = {
        node.name: node.op_type
        for index, node in enumerate(graph.nodes)
        if graph.touches_float(index)
        and node.op_type != "Constant"
        and (not graph.slots[index] or node.op_type in _KEPT)
    }
    changing = {node.name: node.op_type for node in graph.nodes if node.name not in kept}
    for _ in range(_MAX_ROUNDS):
        trial = onnx.ModelProto()
        trial.CopyFrom(model)
        DoubleTwin(kept=frozenset(kept)).apply(trial)
        # In float32 ONNX Runtime may replace an operator by others that it has; then it is kept.
        claims = claim_by_kernels(trial, CPU, KernelTable.load(), lambda node: "")
        refused = {name: changing[name] for name, _ in claims.refusals if name in changing}
        refused = {name: op for name, op in refused.items() if name not in kept}
        if not refused:
            break
        kept.update(refused)
    return kept


def changes_nothing(model: onnx.ModelProto) -> bool:
    """Whether no value of the model is float32."""
    return FLOAT not in stated_types(model.graph).values()


def float_twin(model: onnx.ModelProto, ep: str, to: HalfName) -> onnx.ModelProto:
    """A graph that computes in float32 what `model` does in half precision, equally rounded.

    ONNX Runtime's CPU has nearly no kernels for bfloat16, and computes what is in float16 in
    float32, where nothing overflows.  So a build host without a GPU runs this twin: each value is
    computed in float32, as kernels do inside, and then rounded, beyond the range to infinity.
    Values keep their names; ONNX Runtime leaves the pairs of casts in place at every level of its
    optimizer.  Inputs and outputs have their types, and constants stay where they are.  `ep` is the
    provider whose kernels tell the types of operators that ONNX does not know.
    """
    import onnx

    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    _Twin(HALF_TYPES[to], ep, opsets_of(twin), all_names(twin)).main(twin.graph)
    return twin


@record(frozen=False, kw_only=False)
class _Twin:
    """The rewrite of one model; in it, the name of a value in half precision means float32."""

    half: HalfType
    ep: str
    opsets: Mapping[str, int]
    used: set[str] = field(default_factory=set)

    def main(self, graph: onnx.GraphProto) -> None:
        """Rewrite the main graph, whose inputs and outputs keep their types."""
        types = self._types(graph, {})
        renamed = {
            value.name: free_name(f"{value.name}_aotc_twin", self.used)
            for value in (*graph.input, *graph.output)
            if type_name(value.type) == self.half.tensor_name
        }
        given = {value.name for value in graph.input}
        nodes = [
            cast_node(name, renamed[name], _FLOAT, self.used) for name in renamed if name in given
        ]  # fmt: skip
        nodes += self._constants(graph, given)
        rename_read(graph.node, renamed)
        for node in graph.node:
            for at, name in enumerate(node.output):
                node.output[at] = renamed.get(name, name)
        types |= dict.fromkeys(renamed.values(), self.half.tensor_name)
        nodes += self._nodes(graph, types)
        nodes += [
            cast_node(renamed[value.name], value.name, self.half.onnx_type, self.used)
            for value in graph.output
            if value.name in renamed and value.name not in given
        ]
        set_nodes(graph, nodes)

    def _body(self, graph: onnx.GraphProto, outer: Mapping[str, str]) -> None:
        """Rewrite a body: what enters and leaves it is in float32."""
        types = self._types(graph, outer)
        for value in (*graph.input, *graph.output):
            if type_name(value.type) == self.half.tensor_name:
                value.type.tensor_type.elem_type = _FLOAT
        nodes = self._constants(graph, set())
        set_nodes(graph, [*nodes, *self._nodes(graph, types)])

    def _constants(self, graph: onnx.GraphProto, given: set[str]) -> list[onnx.NodeProto]:
        """Casts to float32 of the constants in half precision, which get another name."""
        nodes = []
        for tensor in graph.initializer:
            if tensor.data_type == self.half.onnx_type and tensor.name not in given:
                name = tensor.name
                tensor.name = free_name(f"{name}_aotc_half", self.used)
                nodes.append(cast_node(tensor.name, name, _FLOAT, self.used))
        return nodes

    def _nodes(self, graph: onnx.GraphProto, types: Mapping[str, str]) -> list[onnx.NodeProto]:
        """The nodes of a graph, with two casts after each value that was in half precision."""
        nodes = []
        for node in graph.node:
            for body in subgraphs(node):
                self._body(body, types)
            half = [name for name in node.output if types.get(name) == self.half.tensor_name]
            exact = {name: free_name(f"{name}_aotc_exact", self.used) for name in half}
            for at, name in enumerate(node.output):
                node.output[at] = exact.get(name, name)
            self._state_float(node)
            nodes.append(node)
            for name in half:
                rounded = free_name(f"{name}_aotc_rounded", self.used)
                nodes.append(cast_node(exact[name], rounded, self.half.onnx_type, self.used))
                nodes.append(cast_node(rounded, name, _FLOAT, self.used))
        return nodes

    def _state_float(self, node: onnx.NodeProto) -> None:
        """What a node is told to make in half precision, it makes in float32."""
        import onnx

        for attribute in node.attribute:
            if (
                node.op_type == "Cast"
                and attribute.name == "to"
                and attribute.i == self.half.onnx_type
            ):
                attribute.i = _FLOAT
            elif attribute.HasField("t") and attribute.t.data_type == self.half.onnx_type:
                values = onnx.numpy_helper.to_array(attribute.t).astype("float32")
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(values, attribute.t.name))

    def _types(self, graph: onnx.GraphProto, outer: Mapping[str, str]) -> dict[str, str]:
        """Types of all values; those that are not stated follow from the operators."""
        types = {**outer, **stated_types(graph)}
        # They are those of the graph as it was.
        del graph.value_info[:]
        for node in graph.node:
            if all(name in types for name in node.output):
                continue
            if node.op_type == "Constant":
                types.update(constant_type(node))
                continue
            signature = signature_of_node(node, self.opsets, self.ep, KernelTable.load(self.ep))
            if signature is None:
                continue
            bound, _ = bind_types(node, signature, types)
            for formal, name in pair_values(signature.outputs, node.output):
                found = formal.kind if "(" in formal.kind else bound.get(formal.kind)
                if name and found:
                    types.setdefault(name, found)
            self._types_of_bodies(node, types)
        return types

    def _types_of_bodies(self, node: onnx.NodeProto, types: dict[str, str]) -> None:
        """The results of control flow have the types that its bodies state, one to one at the end.

        A body of `Loop` states a condition before them.
        """
        for body in subgraphs(node):
            stated = [type_name(value.type) for value in body.output]
            for name, found in zip(node.output, stated[-len(node.output) :], strict=False):
                if name and found:
                    types.setdefault(name, found)
