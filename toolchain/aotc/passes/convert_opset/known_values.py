"""What is known of a model's values without its weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

_SMALL_ELEMENTS = 1024  # larger constants are left out of the copy
_NO_FILE = "weights-are-not-read"


class Values:
    """Small constants and inferred types of a model's values, computed when first used.

    A name that subgraphs use for different values is left out.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = without_weights(model)

    @cached_property
    def constants(self) -> dict[str, onnx.TensorProto]:
        found: dict[str, list[onnx.TensorProto]] = {}
        for graph in _graphs(self._model.graph):
            given = {info.name for info in graph.input}
            for tensor in graph.initializer:
                if tensor.name not in given:
                    found.setdefault(tensor.name, []).append(tensor)
            for node in graph.node:
                if node.op_type == "Constant" and node.attribute[0].HasField("t"):
                    tensor = copy.deepcopy(node.attribute[0].t)
                    tensor.name = node.output[0]
                    found.setdefault(tensor.name, []).append(tensor)
        return {
            name: tensors[0]
            for name, tensors in found.items()
            if not tensors[0].external_data and all(tensor == tensors[0] for tensor in tensors)
        }

    @cached_property
    def infos(self) -> dict[str, onnx.ValueInfoProto]:
        found: dict[str, list[onnx.ValueInfoProto]] = {}
        for graph in _graphs(_inferred(self._model).graph):
            for info in (*graph.input, *graph.output, *graph.value_info):
                found.setdefault(info.name, []).append(info)
            for tensor in graph.initializer:
                found.setdefault(tensor.name, []).append(_value_info(tensor))
        return {
            name: infos[0]
            for name, infos in found.items()
            if all(info.type == infos[0].type for info in infos)
        }


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for subgraph in (
                *([attribute.g] if attribute.HasField("g") else []),
                *attribute.graphs,
            ):
                yield from _graphs(subgraph)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return model


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers of the main graph are external, without any data."""
    light = type(model)()
    _copy_fields(model, light, but="graph")
    _copy_fields(model.graph, light.graph, but="initializer")
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL_ELEMENTS:
            light.graph.initializer.add().CopyFrom(tensor)
            continue
        stub = light.graph.initializer.add(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims
        )
        stub.data_location = stub.EXTERNAL
        stub.external_data.add(key="location", value=_NO_FILE)
    return light


def _copy_fields(source: Message, target: Message, but: str) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if hasattr(value, "MergeFrom"):
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def _value_info(tensor: onnx.TensorProto) -> onnx.ValueInfoProto:
    import onnx

    return onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
