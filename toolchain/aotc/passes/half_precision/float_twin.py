"""A graph that computes in float32 what another one computes in bfloat16, with the same roundings.

ONNX Runtime's CPU has nearly no kernels for bfloat16, so a build host without a GPU runs this twin:
each value is computed in float32, as kernels do inside, and then rounded to bfloat16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.backends.kernels.signature import (
    bind_types,
    pair_values,
    signature_of,
    signature_of_kernel,
)
from aotc.backends.kernels.table import KernelTable
from aotc.backends.kernels.type_names import constant_type, stated_types, type_name
from aotc.contract.operator_domains import STANDARD
from aotc.passes.half_precision.half_types import HALF_TYPES

if TYPE_CHECKING:
    import onnx

_FLOAT = 1
_HALF = HALF_TYPES["bfloat16"]


def float_twin(model: onnx.ModelProto, ep: str) -> onnx.ModelProto:
    """The twin of `model`; inputs and outputs have their types, and constants stay where they are.

    `ep` is the provider whose kernels tell the types of operators that ONNX does not know.
    """
    import onnx

    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    graph = twin.graph
    types = _types(twin, ep)
    nodes: list[onnx.NodeProto] = []

    def cast(source: str, target: str, kind: int) -> None:
        name = f"aotc_twin_{len(nodes)}"
        nodes.append(onnx.helper.make_node("Cast", [source], [target], name=name, to=kind))

    inputs = [value.name for value in graph.input]
    outer = [*inputs, *(tensor.name for tensor in graph.initializer if tensor.name not in inputs)]
    renamed = {}
    for name in outer:
        if types.get(name) == _HALF.tensor_name:
            renamed[name] = f"{name}_aotc_twin"
            cast(name, renamed[name], _FLOAT)
    made_in_half = {value.name for value in graph.output if _is_half(value)}
    for node in graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = renamed.get(name, name)
        half = [name for name in node.output if types.get(name) == _HALF.tensor_name]
        for at, name in enumerate(node.output):
            if name in half:
                node.output[at] = f"{name}_aotc_exact"
        _state_float(node)
        nodes.append(node)
        for name in half:
            rounded = name if name in made_in_half else f"{name}_aotc_rounded"
            cast(f"{name}_aotc_exact", rounded, _HALF.onnx_type)
            renamed[name] = f"{name}_aotc_twin"
            cast(rounded, renamed[name], _FLOAT)
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copied)
    del graph.value_info[:]
    return twin


def _is_half(value: onnx.ValueInfoProto) -> bool:
    return type_name(value.type) == _HALF.tensor_name


def _state_float(node: onnx.NodeProto) -> None:
    """What a node is told to make in bfloat16, it makes in float32."""
    import onnx

    for attribute in node.attribute:
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _HALF.onnx_type:
            attribute.i = _FLOAT
        elif attribute.HasField("t") and attribute.t.data_type == _HALF.onnx_type:
            values = onnx.numpy_helper.to_array(attribute.t).astype("float32")
            attribute.t.CopyFrom(onnx.numpy_helper.from_array(values, attribute.t.name))


def _types(model: onnx.ModelProto, ep: str) -> dict[str, str]:
    """Types of all values; those that are not stated follow from the operators."""
    types = stated_types(model.graph)
    opsets = {
        "" if entry.domain in STANDARD else entry.domain: entry.version
        for entry in model.opset_import
    }
    for node in model.graph.node:
        if all(name in types for name in node.output):
            continue
        if node.op_type == "Constant":
            types.update(constant_type(node))
            continue
        domain = "" if node.domain in STANDARD else node.domain
        signature = signature_of(domain, node.op_type, opsets.get(domain, 1))
        if signature is None:
            registered = KernelTable.load().registered(ep, domain, node.op_type)
            if not registered:
                continue
            signature = signature_of_kernel(registered[-1])
        bound, _ = bind_types(node, signature, types)
        for formal, name in pair_values(signature.outputs, node.output):
            found = formal.kind if "(" in formal.kind else bound.get(formal.kind)
            if name and found:
                types.setdefault(name, found)
    return types
