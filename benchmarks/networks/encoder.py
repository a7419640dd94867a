"""Parts of transformer encoders, node by node as exporters write them: exact-erf GELU, opset 17.

Weights are normal with deviation 0.02, as J. Devlin et al. initialize them (2018).  A planted
product reads channels that are many times as large as the others, and divides its weights by as
much: in float32 no bit of its answer changes, in a lower precision it is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """Input channels of one product that are made `factor` times as large, a power of two.

    `channels`: how many, 0 for all.
    """

    product: str
    factor: float
    channels: int = 0

    @property
    def nodes(self) -> tuple[str, str]:
        """The node that makes the large numbers, and the product that reads them."""
        return f"{self.product}.large", f"{self.product}.matmul"

    def scales(self, width: int) -> npt.NDArray[np.float32]:
        """By channel: what it is multiplied by."""
        found = np.ones(width, np.float32)
        found[: self.channels or width] = self.factor
        return found


class EncoderGraph:
    """Nodes and weights under construction; each method returns the name of its output."""

    def __init__(self, seed: int, plants: Sequence[Plant] = ()) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._plants = {plant.product: plant for plant in plants}
        self._rng = np.random.default_rng(seed)

    def node(self, op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        """Add a node with one output of its own name."""
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        """Add an initializer."""
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def random_weight(self, name: str, *shape: int) -> str:
        """Add an initializer of random numbers."""
        return self.constant(name, self._drawn(*shape))

    def _drawn(self, *shape: int) -> npt.NDArray[np.float32]:
        return self._rng.standard_normal(shape, np.float32) * np.float32(0.02)

    def dense(self, value: str, name: str, inner: int, outer: int) -> str:
        """A product with weights [inner, outer], planted if it is to be, and a bias."""
        weight = self._drawn(inner, outer)
        if (plant := self._plants.get(name)) is not None:
            scales = plant.scales(inner)
            weight = weight / scales[:, None]
            value = self.node(
                "Mul", [value, self.constant(f"{name}.scales", scales)], plant.nodes[0]
            )
        product = self.node(
            "MatMul", [value, self.constant(f"{name}.weight", weight)], f"{name}.matmul"
        )
        return self.node("Add", [self.random_weight(f"{name}.bias", outer), product], f"{name}.add")

    def normalized(self, value: str, name: str, width: int) -> str:
        """Layer normalization over the last axis."""
        scale = self.constant(f"{name}.scale", np.ones(width, np.float32))
        bias = self.random_weight(f"{name}.bias", width)
        return self.node("LayerNormalization", [value, scale, bias], name, axis=-1, epsilon=1e-12)

    def save(
        self,
        path: Path,
        name: str,
        inputs: Mapping[str, tuple[int, list[int | str]]],
        output: tuple[str, list[int | str]],
        further: Mapping[str, list[int | str]] | None = None,
    ) -> None:
        """Write the model; inputs are element types and shapes by name.

        The output, and `further` ones by name, are float32.
        """
        made = helper.make_graph(
            self.nodes,
            name,
            [
                helper.make_tensor_value_info(given, kind, shape)
                for given, (kind, shape) in inputs.items()
            ],
            [
                helper.make_tensor_value_info(made, TensorProto.FLOAT, shape)
                for made, shape in {output[0]: output[1], **(further or {})}.items()
            ],
            self.weights,
        )
        opsets = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(made, opset_imports=opsets, ir_version=8), path)


def attention(
    graph: EncoderGraph,
    value: str,
    name: str,
    hidden: int,
    shape: str,
    merged: str,
    scale: str,
    mask: str = "",
) -> str:
    """Self-attention of float32 [batch, sequence, hidden]; `mask` is added to the scores."""

    def heads(kind: str, order: list[int]) -> str:
        projected = graph.dense(value, f"{name}.{kind}", hidden, hidden)
        split = graph.node("Reshape", [projected, shape], f"{name}.{kind}.split")
        return graph.node("Transpose", [split], f"{name}.{kind}.heads", perm=order)

    query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
    scores = graph.node("MatMul", [query, key], f"{name}.scores")
    scaled = graph.node("Div", [scores, scale], f"{name}.scaled")
    masked = graph.node("Add", [scaled, mask], f"{name}.masked") if mask else scaled
    shares = graph.node("Softmax", [masked], f"{name}.softmax", axis=-1)
    mixed = graph.node("MatMul", [shares, heads("value", [0, 2, 1, 3])], f"{name}.mixed")
    joined = graph.node("Transpose", [mixed], f"{name}.joined", perm=[0, 2, 1, 3])
    flat = graph.node("Reshape", [joined, merged], f"{name}.flat")
    return graph.dense(flat, f"{name}.out", hidden, hidden)


def gelu(graph: EncoderGraph, value: str, name: str) -> str:
    """x * (1 + erf(x / sqrt(2))) / 2; `one` is a constant of the graph."""
    root = graph.constant(f"{name}.root", np.array(math.sqrt(2.0), np.float32))
    half = graph.constant(f"{name}.half", np.array(0.5, np.float32))
    erf = graph.node("Erf", [graph.node("Div", [value, root], f"{name}.div")], f"{name}.erf")
    shifted = graph.node("Add", [erf, "one"], f"{name}.shifted")
    product = graph.node("Mul", [value, shifted], f"{name}.product")
    return graph.node("Mul", [product, half], name)
