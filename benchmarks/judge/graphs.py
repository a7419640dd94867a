"""Networks whose outputs hold things of different scales, written node by node.

Weights are drawn from a seed.  Nodes of a head that joins such things have names that begin with
`joined.`: a good variant in 8 bits keeps them in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEAD: Final = "joined."
_OPSET: Final = 17
Shape = Sequence[int | str]


class Graph:
    """Nodes, constants and drawn weights; each method returns the name of what it adds."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray[Any, Any]] = {}

    def node(self, op: str, given: Sequence[str], name: str, **attributes: Any) -> str:
        """A node with one output, which has the node's name."""
        self.nodes(op, given, [name], **attributes)
        return name

    def nodes(self, op: str, given: Sequence[str], made: Sequence[str], **attributes: Any) -> None:
        """A node with several outputs, named after the first."""
        self._nodes.append(helper.make_node(op, given, made, made[0], **attributes))

    def constant(self, name: str, value: Any) -> str:
        """A constant; floats become float32, integers int64."""
        array = np.asarray(value)
        kind = np.float32 if array.dtype.kind == "f" else np.int64
        self._constants[name] = array.astype(kind)
        return name

    def weights(self, name: str, *shape: int, gain: float = 1.0) -> str:
        """Normal weights of variance gain² / fan-in; the fan-in is all but the first axis."""
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant(name, self._rng.normal(0, gain * fan**-0.5, shape))

    def convolution(
        self, value: str, name: str, inner: int, outer: int, *, kernel: int = 3, stride: int = 1
    ) -> str:
        """A convolution with a bias that keeps the size, or halves it with a stride of 2."""
        kernels = self.weights(f"{name}.weight", outer, inner, kernel, kernel, gain=1.4)
        bias = self.constant(f"{name}.bias", self._rng.normal(0, 0.05, outer))
        return self.node(
            "Conv",
            [value, kernels, bias],
            name,
            pads=[kernel // 2] * 4,
            strides=[stride] * 2,
            kernel_shape=[kernel] * 2,
        )

    def dense(self, value: str, name: str, inner: int, outer: int, gain: float = 1.0) -> str:
        """A product with weights [inner, outer], and a bias."""
        matrix = self.constant(
            f"{name}.weight", self._rng.normal(0, gain * inner**-0.5, (inner, outer))
        )
        product = self.node("MatMul", [value, matrix], f"{name}.product")
        bias = self.constant(f"{name}.bias", self._rng.normal(0, 0.1, outer))
        return self.node("Add", [product, bias], name)

    def swish(self, value: str, name: str) -> str:
        """The value times its sigmoid."""
        return self.node(
            "Mul", [value, self.node("Sigmoid", [value], f"{name}.gate")], f"{name}.swish"
        )

    def save(
        self,
        path: Path,
        inputs: Mapping[str, tuple[int, Shape]],
        outputs: Mapping[str, tuple[int, Shape]],
    ) -> None:
        """Write the model; inputs and outputs have an element type and a shape."""
        made = helper.make_graph(
            self._nodes,
            path.stem,
            [helper.make_tensor_value_info(name, *each) for name, each in inputs.items()],
            [helper.make_tensor_value_info(name, *each) for name, each in outputs.items()],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = 8
        onnx.save(model, path)


_CLASSES: Final = 80


def write_detector(path: Path, *, form: str, seed: int, width: int = 24, size: int = 64) -> None:
    """Boxes in pixels of 640 and scores of 80 classes, joined as YOLO's heads do.

    Image [batch, 3, size, size] to [batch, 84, cells] (`joined`), [batch, cells, 84]
    (`transposed`) or [batch, 84 * cells] (`flat`), with cells = size * size / 16.
    """
    cells = size * size // 16
    graph = Graph(seed)
    value, inner = "image", 3
    for index, stride in enumerate((2, 2, 1)):
        name = f"stage{index}"
        value = graph.swish(graph.convolution(value, name, inner, width, stride=stride), name)
        inner = width
    boxes = graph.convolution(value, "boxes", width, 4, kernel=1)
    boxes = graph.node("Sigmoid", [boxes], f"{HEAD}boxes.share")
    pixels = graph.constant("pixels", 640.0)
    boxes = graph.node("Mul", [boxes, pixels], f"{HEAD}boxes")
    scores = graph.convolution(value, "classes", width, _CLASSES, kernel=1)
    shift = graph.constant("rare", -4.0)
    scores = graph.node("Add", [scores, shift], f"{HEAD}scores.low")
    scores = graph.node("Sigmoid", [scores], f"{HEAD}scores")
    joined = graph.node("Concat", [boxes, scores], f"{HEAD}joined", axis=1)
    shapes: dict[str, list[int]] = {
        "joined": [0, _CLASSES + 4, -1],
        "transposed": [0, _CLASSES + 4, -1],
        "flat": [0, -1],
    }
    found = graph.node(
        "Reshape", [joined, graph.constant("shape", shapes[form])], f"{HEAD}reshaped"
    )
    declared: Shape = ["batch", _CLASSES + 4, cells]
    if form == "transposed":
        found = graph.node("Transpose", [found], f"{HEAD}rows", perm=[0, 2, 1])
        declared = ["batch", cells, _CLASSES + 4]
    elif form == "flat":
        declared = ["batch", cells * (_CLASSES + 4)]
    graph.node("Identity", [found], "detections")
    graph.save(
        path,
        {"image": (TensorProto.FLOAT, ["batch", 3, size, size])},
        {"detections": (TensorProto.FLOAT, declared)},
    )


def write_segmentation(path: Path, *, seed: int) -> None:
    """Image to the probabilities of 21 classes, and to the map of the likeliest."""
    graph = Graph(seed)
    value = graph.node("Relu", [graph.convolution("image", "first", 3, 16, stride=2)], "first.relu")
    value = graph.node("Relu", [graph.convolution(value, "second", 16, 24)], "second.relu")
    logits = graph.convolution(value, "classes", 24, 21, kernel=1)
    logits = graph.node(
        "Resize",
        [logits, "", graph.constant("scales", [1.0, 1.0, 2.0, 2.0])],
        "grown",
        mode="nearest",
    )
    graph.node("Softmax", [logits], "probabilities", axis=1)
    graph.node("ArgMax", [logits], "labels", axis=1, keepdims=0)
    graph.save(
        path,
        {"image": (TensorProto.FLOAT, ["batch", 3, 48, 48])},
        {
            "probabilities": (TensorProto.FLOAT, ["batch", 21, 48, 48]),
            "labels": (TensorProto.INT64, ["batch", 48, 48]),
        },
    )


def write_decoder(path: Path, *, fill: float, seed: int) -> None:
    """Token ids to logits, and to the scores of attention under a causal mask of `fill`."""
    graph = Graph(seed)
    hidden, heads, vocabulary = 48, 4, 96
    words = graph.constant(
        "words", np.random.default_rng((seed, 1)).normal(0, 1, (vocabulary, hidden))
    )
    value = graph.node("Gather", [words, "ids"], "embedded")
    parts = graph.constant("parts", [0, 0, heads, hidden // heads])
    split = {}
    for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        rows = graph.node("Reshape", [graph.dense(value, name, hidden, hidden), parts], f"{name}.h")
        split[name] = graph.node("Transpose", [rows], f"{name}.t", perm=order)
    scores = graph.node("MatMul", [split["query"], split["key"]], "products")
    scores = graph.node(
        "Div", [scores, graph.constant("root", (hidden / heads) ** 0.5)], "products.scaled"
    )
    length = graph.node(
        "Slice",
        [
            graph.node("Shape", ["ids"], "sizes"),
            graph.constant("one", [1]),
            graph.constant("two", [2]),
        ],
        "length",
    )
    square = graph.node("Concat", [length, length], "square", axis=0)
    ones = graph.node(
        "ConstantOfShape",
        [square],
        "ones",
        value=helper.make_tensor("value", TensorProto.FLOAT, [1], [1.0]),
    )
    later = graph.node(
        "Cast",
        [graph.node("Trilu", [ones, graph.constant("above", 1)], "upper", upper=1)],
        "later",
        to=TensorProto.BOOL,
    )
    masked = graph.node("Where", [later, graph.constant("fill", fill), scores], "scores")
    weighed = graph.node(
        "MatMul", [graph.node("Softmax", [masked], "shares", axis=-1), split["value"]], "attended"
    )
    rows = graph.node("Transpose", [weighed], "attended.t", perm=[0, 2, 1, 3])
    merged = graph.node("Reshape", [rows, graph.constant("merged", [0, 0, hidden])], "together")
    total = graph.node("Add", [merged, value], "residual")
    graph.node("Identity", [graph.dense(total, "out", hidden, vocabulary)], "logits")
    graph.save(
        path,
        {"ids": (TensorProto.INT64, ["batch", "length"])},
        {
            "logits": (TensorProto.FLOAT, ["batch", "length", vocabulary]),
            "scores": (TensorProto.FLOAT, ["batch", heads, "length", "length"]),
        },
    )


def write_regression(path: Path, *, columns: int, seed: int) -> None:
    """Rows of 16 features to columns of scales from 1e-3 to 1e3."""
    graph = Graph(seed)
    value = graph.node("Tanh", [graph.dense("features", "first", 16, 64)], "first.tanh")
    value = graph.node("Tanh", [graph.dense(value, "second", 64, 64)], "second.tanh")
    value = graph.dense(value, "columns", 64, columns)
    scales = graph.constant("scales", np.logspace(-3, 3, columns))
    graph.node("Mul", [value, scales], "targets")
    graph.save(
        path,
        {"features": (TensorProto.FLOAT, ["batch", 16])},
        {"targets": (TensorProto.FLOAT, ["batch", columns])},
    )


def write_image(path: Path, *, seed: int) -> None:
    """Image of 0 to 255 to an image in uint8 of the same size."""
    graph = Graph(seed)
    part = graph.node("Div", ["image", graph.constant("most", 255.0)], "share")
    value = graph.node("Relu", [graph.convolution(part, "first", 3, 16)], "first.relu")
    value = graph.node("Sigmoid", [graph.convolution(value, "second", 16, 3)], "second.share")
    wide = graph.node("Mul", [value, "most"], "second.wide")
    graph.node("Cast", [graph.node("Round", [wide], "rounded")], "picture", to=TensorProto.UINT8)
    graph.save(
        path,
        {"image": (TensorProto.FLOAT, ["batch", 3, 32, 32])},
        {"picture": (TensorProto.UINT8, ["batch", 3, 32, 32])},
    )


def write_ranking(path: Path, *, seed: int) -> None:
    """Rows of 32 features to the five largest of 200 scores, and their indices."""
    graph = Graph(seed)
    value = graph.node("Relu", [graph.dense("features", "first", 32, 64)], "first.relu")
    scores = graph.dense(value, "scores", 64, 200)
    graph.nodes("TopK", [scores, graph.constant("count", [5])], ["largest", "indices"], axis=-1)
    graph.save(
        path,
        {"features": (TensorProto.FLOAT, ["batch", 32])},
        {
            "largest": (TensorProto.FLOAT, ["batch", 5]),
            "indices": (TensorProto.INT64, ["batch", 5]),
        },
    )


_SEED: Final = 38
WRITERS: Final[Mapping[str, Callable[[Path], None]]] = {
    **{
        f"detector_{form}": partial(write_detector, form=form, seed=_SEED)
        for form in ("joined", "transposed", "flat")
    },
    "segmentation": partial(write_segmentation, seed=_SEED),
    "decoder_masked": partial(write_decoder, fill=-1e9, seed=_SEED),
    "decoder_lowest": partial(write_decoder, fill=float(np.finfo(np.float32).min), seed=_SEED),
    "decoder_infinite": partial(write_decoder, fill=float("-inf"), seed=_SEED),
    "regression": partial(write_regression, columns=7, seed=_SEED),
    "image": partial(write_image, seed=_SEED),
    "ranking": partial(write_ranking, seed=_SEED),
}
