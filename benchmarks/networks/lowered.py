"""The networks that `benchmarks.precision.quantizers` lowers, at the sizes that are timed.

Architectures: those of `models` and `vit`; A. Howard et al., "Searching for MobileNetV3" (2019),
its large form, with batch normalization folded into convolutions as exporters do; A. Baevski et
al., "wav2vec 2.0" (2020), its base form; a small CNN, a head of Gemm and Relu, and an LSTM.  All is
generated from a seed, so that values keep their size through all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.networks.bert import write_bert
from benchmarks.networks.encoder import EncoderGraph, attention, gelu
from benchmarks.networks.models import SEED, input_shapes, write_light
from benchmarks.networks.vit import write_vit

# The mean square of an activation's values, where what it reads is normal: the next product's
# weights make up for it.
_MEAN_SQUARE: Mapping[str, float] = {"Relu": 0.5, "HardSwish": 0.36, "": 1.0}
# Of a sigmoid's value at nothing, by which squeeze-and-excitation multiplies.
_EXCITED = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network, the sizes of its free dims, and the number below which its integers are drawn."""

    title: str
    write: Callable[[Path], None]
    sizes: Mapping[str, int] = field(default_factory=dict)
    below: int = 1
    samples: int = 32

    def write_fixed(self, path: Path) -> None:
        """Write the model with its dims fixed at `sizes`."""
        self.write(path)
        model = onnx.load(path)
        for value in (*model.graph.input, *model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in self.sizes:
                    dim.dim_value = self.sizes[dim.dim_param]
        onnx.save(model, path)

    def draw(self, path: Path, samples: int, seed: int) -> dict[str, Any]:
        """Arrays by input, with `samples` entries along the first axis, which is of size 1."""
        rng = np.random.default_rng(seed)
        found: dict[str, Any] = {}
        for name, (shape, dtype) in input_shapes(path).items():
            drawn = (samples, *(int(size) for size in shape[1:]))
            if dtype == "float32":
                found[name] = rng.standard_normal(drawn, np.float32)
            elif "mask" in name:
                found[name] = np.ones(drawn, dtype)
            else:
                found[name] = rng.integers(0, 1 if "type" in name else self.below, drawn, dtype)
        return found


class _Layers:
    """A graph of layers under construction; `value` is what the next one reads."""

    def __init__(self, value: str, channels: int, seed: int = SEED) -> None:
        self.graph = EncoderGraph(seed)
        self.value, self.channels = value, channels
        self._rng = np.random.default_rng(seed)
        self._count = 0
        self.mean_square = 1.0

    def node(self, op_type: str, *more: str, **attributes: Any) -> str:
        """A node that reads `value`, and becomes it."""
        self._count += 1
        name = f"{op_type.lower()}_{self._count}"
        self.value = self.graph.node(op_type, [self.value, *more], name, **attributes)
        return self.value

    def activation(self, op_type: str) -> None:
        """An activation; "" is none."""
        self.mean_square = _MEAN_SQUARE[op_type]
        if op_type:
            self.node(op_type)

    def weight(self, *shape: int, fan_in: int) -> str:
        """Weights that keep the mean square of what they read at 1."""
        scale = np.float32((fan_in * self.mean_square) ** -0.5)
        drawn = self._rng.standard_normal(shape, np.float32) * scale
        return self.graph.constant(f"weight_{self._count + 1}", drawn)

    def bias(self, size: int) -> str:
        """Small numbers."""
        drawn = self._rng.standard_normal(size, np.float32) * np.float32(0.05)
        return self.graph.constant(f"bias_{self._count + 1}", drawn)

    def convolution(
        self, channels: int, kernel: int, stride: int, activation: str, *, depthwise: bool = False
    ) -> None:
        """A convolution with bias, and its activation."""
        inner = 1 if depthwise else self.channels
        weight = self.weight(channels, inner, kernel, kernel, fan_in=inner * kernel * kernel)
        self.node(
            "Conv",
            weight,
            self.bias(channels),
            kernel_shape=[kernel, kernel],
            pads=[kernel // 2] * 4,
            strides=[stride, stride],
            group=channels if depthwise else 1,
        )
        self.channels = channels
        self.activation(activation)

    def gemm(self, inner: int, outer: int, activation: str = "") -> None:
        """A product with transposed weights and bias, as exporters write `Linear`."""
        weight = self.weight(outer, inner, fan_in=inner)
        self.node("Gemm", weight, self.bias(outer), transB=1)
        self.activation(activation)

    def excited(self, reduced: int) -> None:
        """Squeeze-and-excitation."""
        value, channels, before = self.value, self.channels, self.mean_square
        self.node("GlobalAveragePool")
        self.convolution(reduced, 1, 1, "Relu")
        self.convolution(channels, 1, 1, "")
        self.node("HardSigmoid", alpha=1 / 6)
        self.node("Mul", value)
        self.mean_square = before * _EXCITED

    def save(self, path: Path, shape: list[int | str], output: list[int | str]) -> None:
        """Write the model of the input `x` to the output `y`."""
        self.graph.node("Identity", [self.value], "y")
        self.graph.save(path, path.parent.name, {"x": (TensorProto.FLOAT, shape)}, ("y", output))


# Of each block: kernel, width, output, squeeze-and-excitation's width or 0, activation, stride.
_BLOCKS = (
    (3, 16, 16, 0, "Relu", 1),
    (3, 64, 24, 0, "Relu", 2),
    (3, 72, 24, 0, "Relu", 1),
    (5, 72, 40, 24, "Relu", 2),
    (5, 120, 40, 32, "Relu", 1),
    (5, 120, 40, 32, "Relu", 1),
    (3, 240, 80, 0, "HardSwish", 2),
    (3, 200, 80, 0, "HardSwish", 1),
    (3, 184, 80, 0, "HardSwish", 1),
    (3, 184, 80, 0, "HardSwish", 1),
    (3, 480, 112, 120, "HardSwish", 1),
    (3, 672, 112, 168, "HardSwish", 1),
    (5, 672, 160, 168, "HardSwish", 2),
    (5, 960, 160, 240, "HardSwish", 1),
    (5, 960, 160, 240, "HardSwish", 1),
)


def write_mobilenet(path: Path) -> None:
    """MobileNetV3-Large of float32 images [1, 3, 224, 224]."""
    layers = _Layers("x", 3)
    layers.convolution(16, 3, 2, "HardSwish")
    for kernel, width, outer, squeezed, activation, stride in _BLOCKS:
        value, inner, square = layers.value, layers.channels, layers.mean_square
        if width != inner:
            layers.convolution(width, 1, 1, activation)
        layers.convolution(width, kernel, stride, activation, depthwise=True)
        if squeezed:
            layers.excited(squeezed)
        layers.convolution(outer, 1, 1, "")
        if stride == 1 and inner == outer:
            layers.node("Add", value)
            layers.mean_square += square
    layers.convolution(960, 1, 1, "HardSwish")
    layers.node("GlobalAveragePool")
    layers.node("Flatten", axis=1)
    layers.gemm(960, 1280, "HardSwish")
    layers.gemm(1280, 1000)
    layers.save(path, [1, 3, 224, 224], [1, 1000])


def write_cnn(path: Path) -> None:
    """Two convolutions with pooling and a head, for float32 images [1, 3, 32, 32]."""
    layers = _Layers("x", 3)
    for channels in (32, 64):
        layers.convolution(channels, 3, 1, "Relu")
        layers.node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    layers.node("Flatten", axis=1)
    layers.gemm(64 * 8 * 8, 128, "Relu")
    layers.gemm(128, 10)
    layers.save(path, [1, 3, 32, 32], [1, 10])


def write_mlp(path: Path) -> None:
    """Gemm and Relu on float32 [1, 512]."""
    layers = _Layers("x", 512)
    layers.gemm(512, 1024, "Relu")
    layers.gemm(1024, 1024, "Relu")
    layers.gemm(1024, 10)
    layers.save(path, [1, 512], [1, 10])


def write_lstm(path: Path) -> None:
    """Two LSTMs on 50 steps of float32 [1, 50, 128], and a head on the last state."""
    layers, width, inner = _Layers("x", 128), 256, 128
    layers.node("Transpose", perm=[1, 0, 2])
    axis = layers.graph.constant("direction", np.array([1], np.int64))
    for _ in range(2):
        weight = layers.weight(1, 4 * width, inner, fan_in=inner)
        recurrent = layers.graph.random_weight(f"{weight}.recurrent", 1, 4 * width, width)
        bias = layers.graph.random_weight(f"{weight}.bias", 1, 8 * width)
        layers.node("LSTM", weight, recurrent, bias, hidden_size=width)
        layers.node("Squeeze", axis)
        inner = width
    layers.node("Gather", layers.graph.constant("last", np.array(-1, np.int64)), axis=0)
    layers.gemm(width, 10)
    layers.save(path, [1, 50, 128], [1, 10])


# Channels of the convolutions over sound, and each one's kernel and stride.
_SOUND, _STEPS = 512, ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
_POSITIONS, _GROUPS = 128, 16


def write_wav2vec2(path: Path, *, layers: int, hidden: int, heads: int) -> None:
    """wav2vec 2.0 on a second of sound, float32 [1, 16000], to 32 characters a frame."""
    made = _Layers("x", 1)
    graph = made.graph
    graph.constant("one", np.array(1.0, np.float32))
    shape = graph.constant("heads.shape", np.array([0, 0, heads, hidden // heads], np.int64))
    merged = graph.constant("merged.shape", np.array([0, 0, hidden], np.int64))
    scale = graph.constant("scale", np.array((hidden // heads) ** 0.5, np.float32))
    made.node("Unsqueeze", graph.constant("channel", np.array([1], np.int64)))
    for index, (kernel, stride) in enumerate(_STEPS):
        fan_in = made.channels * kernel
        weight = made.weight(_SOUND, made.channels, kernel, fan_in=fan_in)
        made.node("Conv", weight, kernel_shape=[kernel], strides=[stride])
        if not index:
            ones = graph.constant("sound.scale", np.ones(_SOUND, np.float32))
            made.node("InstanceNormalization", ones, graph.random_weight("sound.bias", _SOUND))
        made.value = gelu(graph, made.value, f"sound.{index}.gelu")
        made.channels, made.mean_square = _SOUND, _MEAN_SQUARE["HardSwish"]
    made.node("Transpose", perm=[0, 2, 1])
    value = graph.normalized(made.value, "sound.norm", _SOUND)
    made.value = value = graph.dense(value, "projection", _SOUND, hidden)
    made.node("Transpose", perm=[0, 2, 1])
    inner, made.mean_square = hidden // _GROUPS, 0.2
    weight = made.weight(hidden, inner, _POSITIONS, fan_in=inner * _POSITIONS)
    pads, kernel_shape = [_POSITIONS // 2] * 2, [_POSITIONS]
    made.node(
        "Conv", weight, made.bias(hidden), kernel_shape=kernel_shape, pads=pads, group=_GROUPS
    )
    first, last, axis = (graph.constant(f"cut.{n}", np.array([n], np.int64)) for n in (0, -1, 2))
    made.node("Slice", first, last, axis)
    made.value = gelu(graph, made.value, "positions.gelu")
    made.node("Transpose", perm=[0, 2, 1])
    total = graph.node("Add", [value, made.value], "positions")
    value = graph.normalized(total, "encoder.norm", hidden)
    for index in range(layers):
        name = f"layer.{index}"
        attended = attention(graph, value, name, hidden, shape, merged, scale)
        total = graph.node("Add", [attended, value], f"{name}.attention.residual")
        value = graph.normalized(total, f"{name}.attention.norm", hidden)
        up = gelu(graph, graph.dense(value, f"{name}.up", hidden, 4 * hidden), f"{name}.gelu")
        down = graph.dense(up, f"{name}.down", 4 * hidden, hidden)
        value = graph.normalized(graph.node("Add", [down, value], f"{name}.residual"), name, hidden)
    made.value = graph.dense(value, "characters", hidden, 32)
    made.save(path, [1, 16000], [1, 49, 32])


NETWORKS: Mapping[str, Network] = {
    "mlp": Network(title="MLP", write=write_mlp, samples=64),
    "cnn": Network(title="Small CNN", write=write_cnn, samples=64),
    "lstm": Network(title="LSTM", write=write_lstm),
    "mobilenet": Network(title="MobileNetV3-Large", write=write_mobilenet),
    "vit": Network(
        title="ViT-tiny",
        write=partial(write_vit, layers=12, hidden=192, heads=3, size=224, classes=1000, seed=SEED),
        sizes={"batch": 1},
    ),
    "resnet": Network(
        title="ResNet-50", write=partial(write_light, "light_resnet50", opset=17), samples=16
    ),
    "wav2vec2": Network(
        title="wav2vec 2.0's encoder",
        write=partial(write_wav2vec2, layers=12, hidden=768, heads=12),
        samples=16,
    ),
    "bert": Network(
        title="BERT-base",
        write=partial(write_bert, layers=12, hidden=768, heads=12, vocabulary=30522, seed=SEED),
        sizes={"batch": 1, "sequence": 128},
        below=30522,
        samples=16,
    ),
}
