"""Give inputs and outputs of float32 a half-precision type; the model computes as before.

Cases: an input (what reads it reads a cast of it); an output that a node makes, or that is constant
(it is a cast of the value, which other nodes read as before); an output that is an input (both have
one type).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass, all_names, cast_node, free_name, rename_read, set_nodes

if TYPE_CHECKING:
    import onnx


_FLOAT: Final = 1
# Numbers are those of `TensorProto.DataType`, and the first operator set whose `Cast` has the type.
_TYPES: Final[Mapping[str, int]] = {"float16": 10, "bfloat16": 16}
_OPSETS: Final[Mapping[str, int]] = {"float16": 6, "bfloat16": 13}


@record
class InterfaceTypes(Pass):
    """`inputs` and `outputs`: the new type by name, `float16` or `bfloat16`."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    name = "interface-types"

    def requires(self, model: onnx.ModelProto) -> str:
        wrong = self.inputs.keys() - float_tensors(model.graph.input)
        wrong |= self.outputs.keys() - float_tensors(model.graph.output)
        return f"no input or output of float32: {sorted(wrong)[:3]}" if wrong else ""

    def apply(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        used = all_names(model)
        before: list[onnx.NodeProto] = []
        after: list[onnx.NodeProto] = []
        renamed: dict[str, str] = {}

        def inner_name(value: onnx.ValueInfoProto) -> str:
            renamed[value.name] = free_name(f"{value.name}_float32", used)
            graph.value_info.add().CopyFrom(value)
            graph.value_info[-1].name = renamed[value.name]
            return renamed[value.name]

        for value in graph.input:
            if value.name in self.inputs:
                before.append(cast_node(value.name, inner_name(value), _FLOAT, used))
                value.type.tensor_type.elem_type = _TYPES[self.inputs[value.name]]
        given = {value.name for value in graph.input}
        for value in graph.output:
            if value.name in self.outputs:
                kind = _TYPES[self.outputs[value.name]]
                if value.name not in given:
                    after.append(cast_node(inner_name(value), value.name, kind, used))
                value.type.tensor_type.elem_type = kind
        rename_read(graph.node, renamed)
        for node in graph.node:
            for at, name in enumerate(node.output):
                node.output[at] = renamed.get(name, name)
        for tensor in graph.initializer:
            tensor.name = renamed.get(tensor.name, tensor.name)
        set_nodes(graph, [*before, *graph.node, *after])

    def ensures(self, model: onnx.ModelProto) -> str:
        left = self.inputs.keys() & float_tensors(model.graph.input)
        left |= self.outputs.keys() & float_tensors(model.graph.output)
        return f"still float32: {sorted(left)[:3]}" if left else ""


def float_tensors(values: Iterable[onnx.ValueInfoProto]) -> set[str]:
    """The names of those `values` that are tensors of float32."""
    return {value.name for value in values if value.type.tensor_type.elem_type == _FLOAT}


def why_not_cast(model: onnx.ModelProto, dtype: str) -> str:
    """Why float32 cannot be cast to `dtype` in this model; empty if it can."""
    opsets = {one.domain or "ai.onnx": one.version for one in model.opset_import}
    found, first = opsets.get("ai.onnx", 0), _OPSETS[dtype]
    return f"operator set {found}; Cast to {dtype} exists from {first} on" if found < first else ""
