"""Which products become integers, by measured rates; forms that mix; and factors of Gemm."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.precision.kernel_rates import rates_of
from aotc.precision.quantize import Blocks, Chosen, Quantize, Scheme, fold_factors
from aotc.precision.quantized_nodes import (
    Observed,
    ProductTimes,
    Weighs,
    choose,
    kernel_of,
    last_products,
    observable,
)

VNNI = ("avx2", "avx512_vnni")
node = helper.make_node


def network(nodes: list[onnx.NodeProto], constants: dict[str, Any], rows: Any) -> onnx.ModelProto:
    """A network that reads `x` [rows, 256] and answers `y`."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return (values / shape[0] ** 0.5).astype(np.float32)


def decoder(rows: Any = 8) -> onnx.ModelProto:
    """Two products and a head, with a product of few columns beside."""
    nodes = [
        node("MatMul", ["x", "w0"], ["p0"], "first"),
        node("Tanh", ["p0"], ["t0"], "tanh"),
        node("MatMul", ["t0", "w1"], ["p1"], "second"),
        node("Tanh", ["p1"], ["t1"], "tanh2"),
        node("MatMul", ["t1", "head"], ["y"], "head"),
        node("MatMul", ["x", "few"], ["z"], "few"),
    ]
    constants = {"w0": drawn(256, 256), "w1": drawn(256, 256), "head": drawn(256, 1024)}
    return network(nodes, {**constants, "few": drawn(256, 1)}, rows)


def seen(rows: int) -> dict[str, Observed]:
    found = {name: Observed((-1.0, 1.0), (rows, 256)) for name in ("x", "p0", "t0", "p1", "t1")}
    return {
        **found,
        "y": Observed((-1.0, 1.0), (rows, 1024)),
        "z": Observed((-1.0, 1.0), (rows, 1)),
    }


def weighs(**fields: Any) -> Weighs:
    return Weighs(rates_of(VNNI), **fields)


def test_every_kernel_that_is_weighed_has_rates_in_both_forms() -> None:
    for isa in (VNNI, None, ("avx2",)):
        rates = rates_of(isa).rates
        for name, rate in rates.items():
            assert rate.call > 0 and rate.operation > 0, name
            pair = {"float32": "static", "static": "float32"}.get(name.rpartition(" ")[2])
            # In integers, a limit is no pass of its own.
            limit = name == "Relu float32"
            assert pair is None or limit or f"{name.rpartition(' ')[0]} {pair}" in rates, name
    with_vnni, without = rates_of(VNNI), rates_of(None)
    assert with_vnni is not without
    assert without.of("product", "static").operation > with_vnni.of("product", "static").operation


@pytest.mark.parametrize(
    ("group", "shape", "kernel"),
    [
        (1, (8, 16, 3, 3), "convolution"),
        (1, (8, 3, 3, 3), "first convolution"),
        (16, (16, 1, 3, 3), "depthwise"),
        (4, (16, 4, 3, 3), "grouped"),
    ],
)
def test_convolutions_are_of_the_kind_of_their_kernel(
    group: int, shape: tuple[int, ...], kernel: str
) -> None:
    assert kernel_of(node("Conv", ["x", "w"], ["y"], group=group), shape) == kernel
    assert kernel_of(node("Gemm", ["x", "w"], ["y"]), (4, 4)) == "product"


def test_a_dim_that_was_not_observed_has_the_size_to_weigh_by() -> None:
    model = decoder("batch")
    first = model.graph.node[0]
    assert ProductTimes(model, {}, weighs()).seconds(first, "float32") is None
    one, many = (
        ProductTimes(model, {}, weighs(sizes={"batch": size})).seconds(first, "float32")
        for size in (1, 64)
    )
    assert one is not None and many is not None and one < many
    # Conv has no dynamic form.
    assert ProductTimes(model, seen(4), weighs()).seconds(first, "unknown form") is None


def test_of_the_dynamic_form_a_product_stays_that_gains_nothing() -> None:
    model = decoder()
    choice = choose(model, "dynamic", (), (), {}, weighs())
    assert choice.reasons == {"few": "kept: island"}
    assert choice.chosen.dynamic == {"first", "second", "head"}
    # For size, everything is quantized.
    choice = choose(model, "dynamic", (), (), {}, weighs(speed=False))
    assert choice.chosen.dynamic == {"first", "second", "head", "few"} and not choice.reasons


def test_for_size_the_static_form_leaves_no_islands() -> None:
    model = decoder()
    assert choose(model, "static", (), (), seen(8), weighs()).reasons == {"few": "kept: island"}
    choice = choose(model, "static", (), (), seen(8), weighs(speed=False))
    assert choice.chosen.static == {"first", "second", "head", "few"}


def test_mixed_is_dynamic_where_ranges_gain_nothing_or_were_not_seen() -> None:
    model = decoder()
    found = seen(8)
    del found["t1"]
    choice = choose(model, "mixed", (), (), found, weighs())
    assert "head" in choice.chosen.dynamic
    assert choice.chosen.static | choice.chosen.dynamic == {"first", "second", "head"}
    assert choice.reasons == {"few": "kept: island"}
    assert observable(model, ()) == ("x", "p0", "t0", "p1", "t1", "y", "z")
    assert not choose(model, "mixed", (), (), {}, weighs()).chosen.static


def test_nothing_is_carried_in_integers_behind_a_convolution_in_float32() -> None:
    """As of a vision transformer, whose patches have 3 channels: it would round for nothing."""
    nodes = [
        node("Conv", ["image", "w"], ["c"], "patches"),
        node("Concat", ["c", "c"], ["tokens"], "tokens", axis=3),
        node("Add", ["tokens", "tokens"], ["sum"], "sum"),
        node("Relu", ["sum"], ["y"], "relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "patches",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(drawn(4, 3, 1, 1), "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )
    shapes = {"image": (1, 3, 64, 64), "c": (1, 4, 64, 64), "tokens": (1, 4, 64, 128)}
    shapes |= {"sum": shapes["tokens"], "y": shapes["tokens"]}
    found = {name: Observed((-1.0, 1.0), shape) for name, shape in shapes.items()}
    choice = choose(model, "static", (), (), found, weighs())
    assert not choice.chosen.static and choice.reasons == {"patches": "kept: island"}


def test_the_last_products_of_int4_have_8_bits() -> None:
    model = decoder()
    assert last_products(model, {"first", "second", "head", "few"}) == {"head", "few"}
    choice = choose(model, "weights", (), (), {}, weighs(), widens=True)
    assert choice.chosen.wide == {"head", "few"}
    change = Quantize(
        form="weights",
        bits=4,
        scheme=Scheme("uint8", "int8", True, False),
        blocks=Blocks(accuracy_level=4),
        chosen=choice.chosen,
    )
    assert change.options()["last_bits"] == 8
    run_passes(model, (change,))
    bits = {
        made.name: next(item.i for item in made.attribute if item.name == "bits")
        for made in model.graph.node
        if made.op_type == "MatMulNBits"
    }
    assert bits == {"first": 4, "second": 4, "head": 8, "few": 8}


def test_one_table_may_be_read_in_4_and_in_8_bits() -> None:
    """Each has scales of its own, though both are made of one constant."""
    nodes = [
        node("MatMul", ["x", "w"], ["p"], "first"),
        node("Tanh", ["p"], ["t"], "tanh"),
        node("MatMul", ["t", "w"], ["y"], "head"),
    ]
    source = network(nodes, {"w": drawn(256, 256)}, 8)
    model = onnx.ModelProto()
    model.CopyFrom(source)
    both = frozenset({"first", "head"})
    change = Quantize(
        form="weights",
        bits=4,
        scheme=Scheme("uint8", "int8", True, False),
        chosen=Chosen(weights=both, wide=frozenset({"head"})),
    )
    run_passes(model, (change,))
    del model.graph.value_info[:]
    x = {"x": drawn(8, 256) * np.float32(3)}
    expected, found = (
        ort.InferenceSession(each.SerializeToString()).run(None, x)[0] for each in (source, model)
    )
    assert np.abs(expected - found).max() < 0.25 * np.abs(expected).max()


@pytest.mark.parametrize("transposed", [0, 1])
def test_factors_of_a_gemm_go_into_its_constants(transposed: int) -> None:
    nodes = [
        node("Gemm", ["x", "w", "b"], ["p"], "one", alpha=0.5, beta=3.0, transB=transposed),
        node("Gemm", ["p", "w", "b"], ["y"], "other", alpha=2.0, transB=transposed),
    ]
    source = network(nodes, {"w": drawn(256, 256), "b": drawn(256)}, 8)
    model = onnx.ModelProto()
    model.CopyFrom(source)
    fold_factors(model)
    left = {item.name for each in model.graph.node for item in each.attribute}
    assert not left & {"alpha", "beta"}
    x = {"x": drawn(8, 256)}
    expected, found = (
        ort.InferenceSession(each.SerializeToString()).run(None, x)[0] for each in (source, model)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_factor_of_what_is_no_constant_stays() -> None:
    nodes = [node("Gemm", ["x", "w", "x"], ["y"], "one", beta=2.0)]
    model = network(nodes, {"w": drawn(256, 256)}, 8)
    fold_factors(model)
    assert [item.name for item in model.graph.node[0].attribute] == ["beta"]
