"""Products whose activations are quantized in each call, in the main graph and in bodies.

Nodes are those that ONNX Runtime fuses into `DynamicQuantizeMatMul` and `MatMulIntegerToFloat`.
Written here: the quantizer of ONNX Runtime rewrites every Gemm of a model, also those that are to
stay, and takes weights that several of them share for one's own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from aotc.passes.quantize.integers import Scheme, add_constant, quantized
from aotc.passes.quantize.scoped_constants import (
    MICROSOFT,
    Scope,
    drop_unread,
    replace_nodes,
    require_domain,
    scopes_of,
)
from aotc.records import replace

if TYPE_CHECKING:
    import onnx


def quantize_dynamic(model: onnx.ModelProto, chosen: Collection[str], scheme: Scheme) -> None:
    """Quantize the `chosen` MatMul and LSTM nodes, whose weights are constants."""
    for scope in scopes_of(model.graph):
        made = {}
        ready: dict[str, tuple[str, str, str]] = {}
        for node in scope.graph.node:
            if node.name in chosen and node.op_type == "MatMul":
                made[node.name] = _product(node, scope, scheme, ready)
            elif node.name in chosen and node.op_type == "LSTM":
                made[node.name] = [_recurrence(node, scope, replace(scheme, weights="int8"))]
                require_domain(model, MICROSOFT)
        replace_nodes(scope.graph, made)
    drop_unread(model)


def _product(
    node: onnx.NodeProto, scope: Scope, scheme: Scheme, ready: dict[str, tuple[str, str, str]]
) -> list[onnx.NodeProto]:
    """The nodes that compute one product; `ready` is what earlier ones made of activations."""
    import onnx

    make = onnx.helper.make_node
    given, name, output = node.input[0], node.name, node.output[0]
    found = []
    if given not in ready:
        # A body may quantize what the graph around it quantizes too, under other names.
        ready[given] = (f"{output}_given", f"{output}_given_scale", f"{output}_given_zero")
        found.append(make("DynamicQuantizeLinear", [given], ready[given], f"{name}_quantize"))
    integers, scale, zero = ready[given]
    weights, weight_scale, weight_zero = _weights(node.input[1], scope, scheme)
    summed, cast, scales = (f"{output}_{what}" for what in ("integers", "float", "scales"))
    product = [integers, weights, zero, weight_zero]
    found += [
        make("MatMulInteger", product, [summed], name),
        make("Cast", [summed], [cast], f"{name}_cast", to=onnx.TensorProto.FLOAT),
        make("Mul", [scale, weight_scale], [scales], f"{name}_scales"),
        make("Mul", [cast, scales], [output], f"{name}_scaled"),
    ]
    return found


def _weights(name: str, scope: Scope, scheme: Scheme) -> tuple[str, str, str]:
    """The names of the integers, the scale and the zero point, in the graph that has `name`."""
    import onnx

    found = scope.constant(name)
    assert found is not None
    tensor, holder = found
    made = (f"{name}_quantized", f"{name}_scale", f"{name}_zero_point")
    if all(item.name != made[0] for item in holder.initializer):
        axis = 1 if scheme.per_channel and len(tensor.dims) == 2 else None
        integers = quantized(onnx.numpy_helper.to_array(tensor), scheme, axis)
        for each, values in zip(
            made, (integers.values, integers.scale, integers.zero), strict=True
        ):
            add_constant(holder, each, values)
    return made


def _recurrence(node: onnx.NodeProto, scope: Scope, scheme: Scheme) -> onnx.NodeProto:
    """`DynamicQuantizeLSTM`, whose weights are transposed: [directions, inputs, 4 * hidden].

    Its kernel wants one zero point for all columns, so weights are symmetric: int8.
    """
    import onnx

    given = [*node.input, *[""] * (8 - len(node.input))]
    quantization = []
    for at in (1, 2):
        name = given[at]
        found = scope.constant(name)
        assert found is not None
        tensor, holder = found
        values = onnx.numpy_helper.to_array(tensor)
        rows = [
            quantized(np.ascontiguousarray(part.T), scheme, 1 if scheme.per_channel else None)
            for part in values
        ]
        integers = np.stack([row.values for row in rows])
        given[at] = add_constant(holder, f"{name}_lstm", integers)
        scale = np.stack([row.scale for row in rows])
        zero = np.stack([row.zero for row in rows])
        quantization += [
            add_constant(holder, f"{name}_lstm_scale", scale),
            add_constant(holder, f"{name}_lstm_zero_point", zero),
        ]
    made = onnx.helper.make_node(
        "DynamicQuantizeLSTM",
        [*given, *quantization],
        list(node.output),
        node.name,
        domain=MICROSOFT,
    )
    made.attribute.extend(item for item in node.attribute if item.name != "layout")
    return made
