"""Gemm as a product and a sum, for forms that know MatMul alone."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from aotc.passes.quantize.integers import add_constant
from aotc.passes.quantize.scoped_constants import drop_unread, replace_nodes, scopes_of

if TYPE_CHECKING:
    import onnx

T = TypeVar("T")


def split_gemms(model: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Write the `chosen` Gemm nodes as MatMul, of the same name, and Add.

    They have a constant second operand, no transposed first one, and `alpha` and `beta` of 1.
    """
    import onnx

    for scope in scopes_of(model.graph):
        made = {}
        for node in scope.graph.node:
            if node.op_type != "Gemm" or node.name not in chosen:
                continue
            weights = node.input[1]
            if attribute_of(node, "transB", 0):
                found = scope.constant(weights)
                assert found is not None
                tensor, holder = found
                values = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor).T)
                weights = add_constant(holder, f"{weights}_transposed", values)
            biased = len(node.input) > 2 and bool(node.input[2])
            product = f"{node.output[0]}_product" if biased else node.output[0]
            make = onnx.helper.make_node
            made[node.name] = [make("MatMul", [node.input[0], weights], [product], node.name)]
            if biased:
                bias = make("Add", [product, node.input[2]], [node.output[0]], f"{node.name}_bias")
                made[node.name].append(bias)
        replace_nodes(scope.graph, made)
    drop_unread(model)


def attribute_of(node: onnx.NodeProto, name: str, default: T) -> T:
    """The value of an attribute, or `default`."""
    import onnx

    for attribute in node.attribute:
        if attribute.name == name:
            value: T = onnx.helper.get_attribute_value(attribute)
            return value
    return default
