"""Smoothing: what is divided and multiplied, what is left alone, and that float32 stays exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.precision.quantize import Scheme
from aotc.precision.smoothing import Channels, Smooth, smoothable, smoothing_factors

ROWS, K, N = 32, 48, 24
RANDOM = np.random.default_rng(5)
SCHEME = Scheme("uint8", "int8", True, False)
# Channels of x that are large.
LARGE = np.where(np.isin(np.arange(K), (3, 17)), np.float32(100), np.float32(1))
make = helper.make_node


def drawn(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def large_weights(*shape: int) -> Any:
    """Weights that read the large channels as weakly as they are large."""
    return drawn(K, *shape) / LARGE[:, None]


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Any],
    made: Sequence[str] = ("y",),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, K])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )


def answers(of: onnx.ModelProto, *further: str) -> dict[str, Any]:
    """The outputs, and `further` values, on inputs from a seed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(of)
    known = [value.name for value in copy.graph.output]
    copy.graph.output.extend(onnx.ValueInfoProto(name=n) for n in further if n not in known)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(copy.SerializeToString(), options)
    names = list(dict.fromkeys((*known, *further)))
    x = np.random.default_rng(9).standard_normal((ROWS, K)).astype(np.float32)
    return dict(zip(names, session.run(names, {"x": x}), strict=True)) | {"x": x}


def channels_of(values: Any) -> Channels:
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    return Channels(rows.min(axis=0), rows.max(axis=0), np.square(rows).mean(axis=0))


def smoothed(of: onnx.ModelProto, chosen: Sequence[str] = ()) -> tuple[onnx.ModelProto, Smooth]:
    """The model after the pass, which computes what it did to the bit."""
    names = smoothable(of)
    found = answers(of, *names)
    change = Smooth(
        chosen=chosen or [node.name for node in of.graph.node],
        scheme=SCHEME,
        channels={name: channels_of(found[name]) for name in names},
    )
    made = onnx.ModelProto()
    made.CopyFrom(of)
    gains = change.gains(made)
    run_passes(made, (change,))
    onnx.checker.check_model(made, full_check=True)
    assert gains == bool(change.matched["products"])
    before, after = answers(of), answers(made)
    for value in of.graph.output:
        np.testing.assert_array_equal(before[value.name], after[value.name])
    for name, bounds in change.ranges.items():
        seen = answers(made, name)[name]
        assert bounds == pytest.approx((seen.min(), seen.max()))
    return made, change


def unevenness(of: onnx.ModelProto, name: str) -> float:
    """The largest channel of a value by the usual one."""
    largest = np.abs(answers(of, name)[name]).max(axis=0)
    return float(largest.max() / np.median(largest))


def counts(change: Smooth) -> tuple[int, int, int]:
    found = change.matched
    return found["products"], found["values"], found["added"]


NORM = make("LayerNormalization", ["x", "gamma", "beta"], ["n"], "norm")
PRODUCT = make("MatMul", ["n", "w"], ["y"], "product")
NORM_CONSTANTS = {"gamma": LARGE, "beta": drawn(K) * LARGE, "w": large_weights(N)}


def test_a_normalization_takes_the_factors() -> None:
    source = model([NORM, PRODUCT], NORM_CONSTANTS)
    made, change = smoothed(source)
    assert counts(change) == (1, 1, 0)
    assert len(made.graph.node) == 2
    # Half of it, as the weights were as uneven.
    assert unevenness(source, "n") > 60
    assert unevenness(made, "n") < 4


def test_a_normalization_written_as_single_nodes() -> None:
    nodes = [
        make("ReduceMean", ["x"], ["mean"], "mean", axes=[-1]),
        make("Sub", ["x", "mean"], ["centred"], "centre"),
        make("Mul", ["centred", "gamma"], ["scaled"], "scale"),
        make("Add", ["beta", "scaled"], ["n"], "shift"),
        PRODUCT,
    ]
    made, change = smoothed(model(nodes, NORM_CONSTANTS, opset=13))
    assert counts(change) == (1, 1, 0)
    assert set(change.ranges) == {"n", "scaled"}
    assert unevenness(made, "n") < 4


@pytest.mark.parametrize("transposed", [False, True])
def test_two_products_share_the_factors(transposed: bool) -> None:
    nodes = [
        make("Mul", ["x", "s"], ["n"], "scale"),
        make("Gemm", ["n", "v", "b"], ["z"], "first", transB=int(transposed)),
        make("MatMul", ["n", "w"], ["y"], "second"),
    ]
    v = large_weights(N)
    constants = {"s": LARGE, "v": np.ascontiguousarray(v.T) if transposed else v, "b": drawn(N)}
    made, change = smoothed(model(nodes, {**constants, "w": large_weights(N)}, ("y", "z")))
    assert counts(change) == (2, 1, 0)
    assert unevenness(made, "n") < 4


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", ""])
def test_the_columns_of_the_product_before_take_them(activation: str) -> None:
    nodes = [make("Gemm", ["x", "v", "b"], ["g"], "first")]
    nodes += [make(activation, ["g"], ["n"], "activation")] if activation else []
    nodes += [make("MatMul", ["n" if activation else "g", "w"], ["y"], "second")]
    constants = {"v": drawn(K, K) * LARGE, "b": drawn(K), "w": large_weights(N)}
    made, change = smoothed(model(nodes, constants))
    assert counts(change) == (1, 1, 0)
    assert unevenness(made, "n" if activation else "g") < 6


def test_of_a_product_of_two_values_one_is_divided() -> None:
    nodes = [
        make("MatMul", ["x", "u"], ["up"], "up"),
        make("MatMul", ["x", "v"], ["gate"], "gate"),
        make("Sigmoid", ["gate"], ["open"], "open"),
        make("Mul", ["open", "up"], ["n"], "gated"),
        PRODUCT,
    ]
    constants = {"u": drawn(K, K) * LARGE, "v": drawn(K, K), "w": large_weights(N)}
    made, change = smoothed(model(nodes, constants))
    assert counts(change) == (1, 1, 0)
    assert unevenness(made, "n") < 6


def test_the_square_of_a_value_is_not_divided_twice() -> None:
    nodes = [
        make("MatMul", ["x", "w"], ["h"], "before"),
        make("Relu", ["h"], ["r"], "relu"),
        make("Mul", ["r", "r"], ["m"], "square"),
        make("MatMul", ["m", "v"], ["y"], "product"),
    ]
    of = model(nodes, {"w": drawn(K, K) * np.sqrt(LARGE), "v": large_weights(N)})
    # The helper compares to the bit.
    smoothed(of)


def test_what_others_read_too_is_divided_for_the_products_alone() -> None:
    """A node is added, and the residual sum reads what it did."""
    nodes = [NORM, PRODUCT, make("Identity", ["n"], ["other"], "other")]
    source = model(nodes, NORM_CONSTANTS, ("y", "other"))
    made, change = smoothed(source)
    assert counts(change) == (1, 1, 1)
    assert [node.op_type for node in made.graph.node][:2] == ["LayerNormalization", "Mul"]
    assert unevenness(made, "n") > 60
    assert unevenness(made, "n_smoothed") < 4


@pytest.mark.parametrize("how", ["output", "body", "input"])
def test_values_that_something_else_sees_stay(how: str) -> None:
    if how == "input":
        source = model([make("MatMul", ["x", "w"], ["y"], "product")], {"w": drawn(K, N)})
        assert counts(smoothed(source)[1]) == (0, 0, 0)
        return
    outputs = ["y"]
    nodes = [NORM, PRODUCT]
    if how == "output":
        outputs.append("n")
    else:
        info = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [ROWS, K])
        body = helper.make_graph(
            [make("Identity", ["n"], ["inner"], "in body")], "body", [], [info]
        )
        nodes.append(make("If", ["yes"], ["z"], "branch", then_branch=body, else_branch=body))
        outputs.append("z")
    source = model(nodes, {**NORM_CONSTANTS, "yes": np.array(True)}, outputs)
    made, change = smoothed(source)
    assert counts(change) == (1, 1, 1)
    np.testing.assert_array_equal(answers(source, "n")["n"], answers(made, "n")["n"])


def test_products_in_bodies_are_left_alone() -> None:
    info = helper.make_tensor_value_info("inner", TensorProto.FLOAT, [ROWS, N])
    inside = make("MatMul", ["n", "w"], ["inner"], "product in body")
    body = helper.make_graph([inside], "body", [], [info])
    branch = make("If", ["yes"], ["y"], "branch", then_branch=body, else_branch=body)
    source = model([NORM, branch], {**NORM_CONSTANTS, "yes": np.array(True)})
    made, change = smoothed(source, ["product in body"])
    assert counts(change) == (0, 0, 0)
    assert made.graph == source.graph


def test_weights_that_another_product_reads_stay_as_they_are() -> None:
    """It reads something else: with other weights it would be wrong."""
    nodes = [NORM, PRODUCT, make("MatMul", ["x", "w"], ["z"], "tied")]
    source = model(nodes, NORM_CONSTANTS, ("y", "z"))
    assert counts(smoothed(source)[1]) == (0, 0, 0)


def test_weights_that_two_smoothed_products_share_are_multiplied_once() -> None:
    nodes = [NORM, PRODUCT, make("MatMul", ["n", "w"], ["z"], "again")]
    assert counts(smoothed(model(nodes, NORM_CONSTANTS, ("y", "z")))[1]) == (2, 1, 0)


def test_constants_that_others_read_stay_theirs() -> None:
    nodes = [NORM, PRODUCT, make("Mul", ["x", "gamma"], ["z"], "other")]
    made, change = smoothed(model(nodes, NORM_CONSTANTS, ("y", "z")))
    assert counts(change) == (1, 1, 0)
    assert {"gamma", "gamma_smoothed", "beta_smoothed"} <= {t.name for t in made.graph.initializer}
    assert "beta" not in {t.name for t in made.graph.initializer}


def test_a_product_that_is_not_quantized_counts_as_another_reader() -> None:
    nodes = [NORM, PRODUCT, make("MatMul", ["n", "v"], ["z"], "kept")]
    source = model(nodes, {**NORM_CONSTANTS, "v": drawn(K, N)}, ("y", "z"))
    made, change = smoothed(source, ["product"])
    assert counts(change) == (1, 1, 1)
    assert [node.input[0] for node in made.graph.node if node.name == "kept"] == ["n"]


@pytest.mark.parametrize("what", ["channels", "weights"])
def test_channels_that_are_always_zero(what: str) -> None:
    gone = np.where(np.arange(K) < 5, np.float32(0), np.float32(1))
    constants = dict(NORM_CONSTANTS)
    if what == "channels":
        constants |= {"gamma": LARGE * gone, "beta": constants["beta"] * gone}
    else:
        constants |= {"w": constants["w"] * gone[:, None]}
    made, change = smoothed(model([NORM, PRODUCT], constants))
    assert counts(change) == (1, 1, 0)
    assert all(np.isfinite(numpy_helper.to_array(each)).all() for each in made.graph.initializer)


def test_what_is_even_is_left_as_it_is() -> None:
    even = {"gamma": np.ones(K, np.float32), "beta": drawn(K), "w": drawn(K, N)}
    source = model([NORM, PRODUCT], even)
    made, change = smoothed(source)
    assert counts(change) == (0, 0, 0)
    assert made.graph == source.graph


def test_values_without_observed_channels_are_left() -> None:
    source = model([NORM, PRODUCT], NORM_CONSTANTS)
    change = Smooth(chosen=["product"], scheme=SCHEME, channels={})
    assert not change.gains(source)


def test_factors_are_powers_of_two_and_say_what_is_left() -> None:
    values = drawn(1000, K) * LARGE
    factors, left = smoothing_factors(channels_of(values), [large_weights(N)], SCHEME)
    assert set(np.log2(factors)) <= set(range(-30, 30))
    assert 0 < left < 0.05
    even, none = smoothing_factors(channels_of(drawn(1000, K)), [drawn(K, N)], SCHEME)
    assert none > 0.5
    assert set(even) <= {0.5, 1.0, 2.0}
