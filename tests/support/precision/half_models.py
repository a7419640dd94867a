"""Float32 models with all of their floats in another type, as exporters write a half network."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper


def in_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose inputs, constants, values and outputs are float16 where they are float32."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            kind.elem_type = TensorProto.FLOAT16
    for tensor in graph.initializer:
        _to_half(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.HasField("t"):
                _to_half(attribute.t)
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    return copy


def _to_half(tensor: onnx.TensorProto) -> None:
    if tensor.data_type != TensorProto.FLOAT:
        return
    limits = np.finfo(np.float16)
    values = np.clip(numpy_helper.to_array(tensor), limits.min, limits.max).astype(np.float16)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
