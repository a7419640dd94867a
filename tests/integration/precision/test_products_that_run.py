"""Static int8 of what follows products, and of how weights are written: none is unpacked in calls.

ONNX Runtime fuses a product with QuantizeLinear and DequantizeLinear around it into one in integers
only where it knows the pattern.  Elsewhere the weights would be made float32 in each call.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import small_profile
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench

from aotc.base.records import replace
from aotc.pipeline.integer_products import computed_products
from aotc.session.inference import write_optimized

WIDTH = 256
ROWS = 16
node = helper.make_node
Nodes = list[onnx.NodeProto]


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    generator = np.random.default_rng(sum(shape))
    fan = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return (generator.standard_normal(shape) / fan**0.5).astype(np.float32)


def erf_gelu(given: str, output: str) -> Nodes:
    names = [f"{output}_{part}" for part in ("scaled", "erf", "more", "half")]
    return [
        node("Div", [given, "root"], [names[0]]),
        node("Erf", [names[0]], [names[1]]),
        node("Add", [names[1], "one"], [names[2]]),
        node("Mul", [given, "half"], [names[3]]),
        node("Mul", [names[3], names[2]], [output]),
    ]


def single(op: str, **attributes: Any) -> Callable[[str, str], Nodes]:
    return lambda given, output: [node(op, [given], [output], **attributes)]


ACTIVATIONS: dict[str, Callable[[str, str], Nodes]] = {
    "Relu": single("Relu"),
    "Clip": lambda given, output: [node("Clip", [given, "zero", "six"], [output])],
    "Gelu by Erf": erf_gelu,
    "HardSwish": single("HardSwish"),
    "Sigmoid": single("Sigmoid"),
    "LeakyRelu": single("LeakyRelu", alpha=0.1),
    "Tanh": single("Tanh"),
    "Softplus": single("Softplus"),
}
OFTEN = ("Relu", "Clip", "Gelu by Erf", "HardSwish")
SCALARS = {"root": 2**0.5, "one": 1.0, "half": 0.5, "zero": 0.0, "six": 6.0}


def rows_model(layers: Callable[[str, int], tuple[Nodes, dict[str, Any], str]]) -> onnx.ModelProto:
    """Three layers, the last of 10 columns; `layers` writes one."""
    nodes: Nodes = []
    constants: dict[str, Any] = {name: np.float32(value) for name, value in SCALARS.items()}
    value = "x"
    for at in range(3):
        made, own, value = layers(value, at)
        nodes += made
        constants |= own
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(values, name)
            for name, values in constants.items()
            if name in used
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def columns(at: int) -> int:
    return 10 if at == 2 else WIDTH


def gemms(activation: Callable[[str, str], Nodes]) -> onnx.ModelProto:
    def layer(given: str, at: int) -> tuple[Nodes, dict[str, Any], str]:
        made = [node("Gemm", [given, f"w{at}", f"b{at}"], [f"g{at}"], f"gemm_{at}", transB=1)]
        made += activation(f"g{at}", f"a{at}")
        own = {f"w{at}": drawn(columns(at), WIDTH), f"b{at}": np.full(columns(at), 0.1, np.float32)}
        return made, own, f"a{at}"

    return rows_model(layer)


def products(activation: Callable[[str, str], Nodes], biased: bool) -> onnx.ModelProto:
    def layer(given: str, at: int) -> tuple[Nodes, dict[str, Any], str]:
        made = [node("MatMul", [given, f"w{at}"], [f"p{at}"], f"matmul_{at}")]
        value, own = f"p{at}", {f"w{at}": drawn(WIDTH, columns(at))}
        if biased:
            made.append(node("Add", [value, f"b{at}"], [f"s{at}"], f"add_{at}"))
            own[f"b{at}"], value = np.full(columns(at), 0.1, np.float32), f"s{at}"
        return [*made, *activation(value, f"a{at}")], own, f"a{at}"

    return rows_model(layer)


def tied() -> onnx.ModelProto:
    """Three products with one weight, one of them a Gemm of its transpose."""

    def layer(given: str, at: int) -> tuple[Nodes, dict[str, Any], str]:
        op: dict[str, Any] = {"transB": 1} if at == 1 else {}
        made = [node("Gemm" if at == 1 else "MatMul", [given, "w"], [f"p{at}"], f"p_{at}", **op)]
        return [*made, node("Relu", [f"p{at}"], [f"a{at}"])], {"w": drawn(WIDTH, WIDTH)}, f"a{at}"

    return rows_model(layer)


def images(activation: Callable[[str, str], Nodes], group: int) -> onnx.ModelProto:
    """Three convolutions of 32 channels, a pooling, and a product."""
    nodes: Nodes = []
    constants: dict[str, Any] = {name: np.float32(value) for name, value in SCALARS.items()}
    value = "x"
    for at in range(3):
        nodes.append(node("Conv", [value, f"w{at}", f"b{at}"], [f"c{at}"], f"conv_{at}",
                          pads=[1] * 4, group=group if at == 1 else 1))  # fmt: skip
        nodes += activation(f"c{at}", f"a{at}")
        constants[f"w{at}"] = drawn(32, 32 // (group if at == 1 else 1), 3, 3)
        constants[f"b{at}"] = np.full(32, 0.1, np.float32)
        value = f"a{at}"
    nodes += [
        node("GlobalAveragePool", [value], ["pooled"]),
        node("Flatten", ["pooled"], ["flat"]),
        node("Gemm", ["flat", "v", "u"], ["y"], "gemm", transB=1),
    ]
    constants |= {"v": drawn(10, 32), "u": np.zeros(10, np.float32)}
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes,
        "images",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [
            numpy_helper.from_array(values, name)
            for name, values in constants.items()
            if name in used
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def one_layer(made: Nodes, constants: dict[str, Any]) -> onnx.ModelProto:
    """Products of the input and of what `made` computes, `p`, one behind the other."""

    def layer(given: str, at: int) -> tuple[Nodes, dict[str, Any], str]:
        if at == 0:
            return [*made, node("Tanh", ["p"], ["t"])], constants, "t"
        step = [node("MatMul", [given, f"v{at}"], [f"q{at}"]), node("Relu", [f"q{at}"], [f"r{at}"])]
        return step, {f"v{at}": drawn(WIDTH, WIDTH)}, f"r{at}"

    return rows_model(layer)


ODD: dict[str, Callable[[], onnx.ModelProto]] = {
    "factors": lambda: one_layer(
        [node("Gemm", ["x", "w", "b"], ["p"], "g", alpha=0.5, beta=2.0)],
        {"w": drawn(WIDTH, WIDTH), "b": np.full(WIDTH, 0.1, np.float32)},
    ),
    "bias of rows": lambda: one_layer(
        [node("Gemm", ["x", "w", "b"], ["p"], "g")],
        {"w": drawn(WIDTH, WIDTH), "b": np.full((ROWS, 1), 0.1, np.float32)},
    ),
    "bias that is computed": lambda: one_layer(
        [node("Abs", ["x"], ["b"]), node("Gemm", ["x", "w", "b"], ["p"], "g")],
        {"w": drawn(WIDTH, WIDTH)},
    ),
    "both transposed": lambda: one_layer(
        [
            node("Transpose", ["x"], ["turned"], perm=[1, 0]),
            node("Abs", ["turned"], ["positive"]),
            node("Gemm", ["positive", "w"], ["p"], "g", transA=1, transB=1),
        ],
        {"w": drawn(WIDTH, WIDTH)},
    ),
    "several matrices": lambda: one_layer(
        [
            node("MatMul", ["x", "w"], ["several"], "g"),
            node("ReduceMean", ["several"], ["p"], axes=[0], keepdims=0),
        ],
        {"w": np.stack([drawn(WIDTH, WIDTH), drawn(WIDTH, WIDTH) * 2])},
    ),
    "weights behind a Transpose": lambda: one_layer(
        [node("Transpose", ["w"], ["wt"], perm=[1, 0]), node("MatMul", ["x", "wt"], ["p"], "g")],
        {"w": drawn(WIDTH, WIDTH)},
    ),
}
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{f"Gemm, {name}": lambda each=each: gemms(each) for name, each in ACTIVATIONS.items()},
    **{
        f"MatMul{' and Add' * biased}, {name}": lambda e=each, b=biased: products(e, b)
        for name, each in ACTIVATIONS.items()
        for biased in (False, True)
        if name in OFTEN
    },
    **{f"Conv, {name}": lambda each=ACTIVATIONS[name]: images(each, 1) for name in OFTEN},
    "Conv, by channel, Clip": lambda: images(ACTIVATIONS["Clip"], 32),
    "Conv, in groups, Relu": lambda: images(ACTIVATIONS["Relu"], 4),
    "tied weights": tied,
    **ODD,
}  # type: ignore[misc]


def build(bench: Workbench, folder: Path, name: str) -> Built:
    source = onnx.shape_inference.infer_shapes(MODELS[name]())
    shape = [dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim]
    data = folder / "samples.npz"
    count = 8 if len(shape) == 4 else 8 * ROWS
    samples = np.random.default_rng(3).standard_normal((count, *shape[1:])).astype(np.float32)
    np.savez(data, x=samples)
    profile = small_profile(
        "edge",
        precision="int8",
        dims={},
        # Random layers make errors larger.
        parity={"int8": {"atol": 0.1, "rtol": 0.2, "max_slice": 0.3}},
    )
    file = name.replace(",", "").replace(" ", "_")
    return bench.build(source, file, profile=profile, calibration=data)


@pytest.mark.parametrize("name", MODELS)
def test_no_weights_are_unpacked_in_each_call(name: str, bench: Workbench, tmp_path: Path) -> None:
    built = build(bench, tmp_path, name)
    (variant,) = built.manifest.variants
    found = variant.computed_products
    assert found is not None and found.quantized >= 2, found
    assert name not in ODD or found.in_float == 0, found
    assert found.total == len(found.names) + found.quantized
    component = next(built.path.rglob("model.onnx"))
    weights = next(built.path.rglob("weights.bin"))
    here = tmp_path / "loaded"
    here.mkdir()
    (here / "model.onnx").write_bytes(component.read_bytes())
    (here / "weights.bin").write_bytes(weights.read_bytes())
    write_optimized(here / "model.onnx", "all", here, into=tmp_path)
    loaded = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    counted, unpacked = computed_products(loaded)
    assert not unpacked
    # Where the CPU has kernels for blocks of channels, the last level renames what stays in float.
    assert len(counted.names) == len(found.names)
    assert replace(counted, names=()) == replace(found, names=())
