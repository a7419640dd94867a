"""Small models, no two equal: of dense layers, of convolutions, and of attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 20


def write_models(folder: Path, count: int) -> list[Path]:
    """`count` models in a folder, which is made; each kind in turn."""
    folder.mkdir(parents=True)
    kinds = (_dense, _convolutions, _attention)
    paths = []
    for number in range(count):
        model = kinds[number % len(kinds)](number)
        path = folder / f"model-{number:04}.onnx"
        path.write_bytes(model.SerializeToString())
        paths.append(path)
    return paths


class _Graph:
    """Nodes one after the other, with weights drawn from a seed."""

    def __init__(self, seed: int, shape: Sequence[int | str]) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = list(shape)
        self.last = "x"

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        values = self.draw.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def constant(self, *values: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        self.last = name
        return name

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "small",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, None)],
            self.weights,
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def _dense(seed: int) -> onnx.ModelProto:
    width = 32 + 8 * (seed % 7)
    graph = _Graph(seed, ("batch", 16))
    size = 16
    for _ in range(2 + seed % 4):
        graph.add("MatMul", graph.last, graph.weight(size, width))
        graph.add("Relu", graph.last)
        size = width
    graph.add("Softmax", graph.last, axis=-1)
    return graph.model()


def _convolutions(seed: int) -> onnx.ModelProto:
    graph = _Graph(seed, (1, 3, 32, 32))
    channels = 3
    for layer in range(2 + seed % 3):
        width = 8 << layer
        graph.add("Conv", graph.last, graph.weight(width, channels, 3, 3), strides=[2, 2])
        graph.add("Relu", graph.last)
        channels = width
    graph.add("GlobalAveragePool", graph.last)
    graph.add("Flatten", graph.last)
    return graph.model()


def _attention(seed: int) -> onnx.ModelProto:
    width = 16 + 16 * (seed % 3)
    graph = _Graph(seed, (1, 12, width))
    for _ in range(1 + seed % 2):
        given = graph.last
        query, key, value = (
            graph.add("MatMul", given, graph.weight(width, width)) for _ in range(3)
        )
        turned = graph.add("Transpose", key, perm=[0, 2, 1])
        scores = graph.add("Softmax", graph.add("MatMul", query, turned), axis=-1)
        graph.add("Add", graph.add("MatMul", scores, value), given)
    graph.add("ReduceMean", graph.last, graph.constant(1), keepdims=0)
    return graph.model()
