"""Quantization: which nodes are chosen, what is written for them, and that it answers alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.base.records import replace
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.view import every_node
from aotc.host.probe import probe
from aotc.precision.kernel_rates import rates_of
from aotc.precision.quantize import Blocks, Chosen, Quantize, Scheme, written_nodes
from aotc.precision.quantized_nodes import BY_FORM, Choice, Observed, Weighs, choose, observable
from aotc.spec.precision import QuantizedForm
from aotc.spec.variant import PassRecord

ROWS, K, N = 64, 96, 80
RANDOM = np.random.default_rng(3)
# In 7 bits where sums of 8-bit products saturate, as in a build for such a CPU.
SATURATES = not exact_feature(probe(gpus=False).isa)
UNSIGNED = Scheme("uint8", "int8", True, SATURATES)
IN_FLOAT32 = Blocks()


def values(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, Any],
    given: Mapping[str, tuple[int, ...]],
    made: str,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(made, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(found)


def run(model: onnx.ModelProto, inputs: Mapping[str, Any], *names: str) -> list[Any]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    session = ort.InferenceSession(copy.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(list(names) or None, dict(inputs))
    return found


def seen(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> dict[str, Observed]:
    names = observable(model, ())
    made = [name for name in names if name not in inputs]
    arrays = {**inputs, **dict(zip(made, run(model, inputs, *made), strict=True))}
    return {
        name: Observed((float(arrays[name].min()), float(arrays[name].max())), arrays[name].shape)
        for name in names
    }


def quantized(
    source: onnx.ModelProto,
    form: QuantizedForm,
    inputs: Mapping[str, Any],
    *,
    bits: Any = 8,
    scheme: Scheme = UNSIGNED,
    kept: tuple[str, ...] = (),
    blocks: Blocks = IN_FLOAT32,
) -> tuple[onnx.ModelProto, Choice, PassRecord]:
    found = onnx.ModelProto()
    found.CopyFrom(source)
    observed = seen(source, inputs) if form == "static" else {}
    choice = choose(found, form, (), kept, observed, Weighs(rates_of(())))
    ranges = {name: each.bounds for name, each in observed.items() if each.bounds is not None}
    change = Quantize(
        form=form,
        bits=bits,
        scheme=scheme,
        blocks=blocks,
        method="minmax",
        chosen=choice.chosen,
        ranges=ranges,
    )
    (record,) = run_passes(found, (change,))
    del found.graph.value_info[:]
    onnx.checker.check_model(found) if form != "weights" else None
    return found, choice, record


def error(source: onnx.ModelProto, changed: onnx.ModelProto, inputs: Mapping[str, Any]) -> float:
    (expected,), (found,) = run(source, inputs), run(changed, inputs)
    return float(np.abs(expected - found).max() / np.abs(expected).max())


def column_error(
    source: onnx.ModelProto, changed: onnx.ModelProto, inputs: Mapping[str, Any]
) -> float:
    """The root mean square error of the worst column of the answer, by that of its values."""
    (expected,), (found,) = run(source, inputs), run(changed, inputs)
    axes = tuple(range(expected.ndim - 1))
    squares = ((expected - found) ** 2).mean(axes) / (expected**2).mean(axes)
    return float(np.sqrt(squares.max()))


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in every_node(model)]


def product() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["s"], "sum"),
        helper.make_node("Tanh", ["s"], ["y"], "tanh"),
    ]
    return model(nodes, {"w": values(K, N) / 20, "b": values(N)}, {"x": (ROWS, K)}, "y")


def gemm(transposed: bool, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(
        "Gemm", ["x", "w", "b"], ["y"], "gemm", transB=int(transposed), **attributes
    )
    weights = values(N, K) if transposed else values(K, N)
    return model([node], {"w": weights, "b": values(N)}, {"x": (ROWS, K)}, "y")


@pytest.mark.parametrize("form", ["static", "dynamic", "weights"])
@pytest.mark.parametrize("source", [product(), gemm(False), gemm(True)], ids=["matmul", "nn", "nt"])
def test_a_product_answers_alike_in_every_form(
    source: onnx.ModelProto, form: QuantizedForm
) -> None:
    inputs = {"x": values(ROWS, K)}
    changed, choice, _ = quantized(source, form, inputs)
    assert len(choice.chosen) == 1
    assert 0 < error(source, changed, inputs) < 0.03
    stored = {t.data_type for t in changed.graph.initializer if np.prod(t.dims) >= K * N}
    assert stored <= {TensorProto.INT8, TensorProto.UINT8}
    assert stored


def test_int4_stores_two_weights_a_byte_where_blocks_do_not_divide_them() -> None:
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        {"w": values(K + 7, N)},
        {"x": (ROWS, K + 7)},
        "y",
    )
    inputs = {"x": values(ROWS, K + 7)}
    changed, _, record = quantized(source, "weights", inputs, bits=4)
    assert operators(changed) == ["MatMulNBits"]
    assert 0 < error(source, changed, inputs) < 0.25
    assert changed.ByteSize() < source.ByteSize() / 4
    assert record.options == {
        **{"form": "weights", "bits": 4},
        **{"block_size": 32, "symmetric": True, "accuracy_level": 0},
    }


def test_products_that_share_weights_share_them_still() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "first"),
        helper.make_node("Relu", ["p"], ["r"], "between"),
        helper.make_node("MatMul", ["r", "w"], ["y"], "second"),
    ]
    source = model(nodes, {"w": values(K, K)}, {"x": (ROWS, K)}, "y")
    inputs = {"x": values(ROWS, K)}
    for form in ("static", "dynamic", "weights"):
        changed, choice, _ = quantized(source, form, inputs)
        assert len(choice.chosen) == 2
        assert error(source, changed, inputs) < 0.05
        assert changed.ByteSize() < source.ByteSize() / 2
        names = [tensor.name for tensor in changed.graph.initializer]
        assert len(set(names)) == len(names)


def test_what_float32_reads_is_not_rounded_for_what_integers_read() -> None:
    """The residual sum of a transformer reads what its products read."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "before"),
        helper.make_node("MatMul", ["t", "w"], ["p"], "product"),
        helper.make_node("Add", ["t", "p"], ["s"], "residual"),
        helper.make_node("Sigmoid", ["s"], ["y"], "after"),
    ]
    source = model(nodes, {"w": values(K, K)}, {"x": (ROWS, K)}, "y")
    changed, choice, _ = quantized(source, "static", {"x": values(ROWS, K)})
    (residual,) = (node for node in changed.graph.node if node.name == "residual")
    assert list(residual.input) == ["t", "p"]
    assert choice.boundaries == 1


def test_convolutions_stay_in_integers_through_what_stands_between() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["d"], "next", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "r"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["q"], "last"),
        helper.make_node("Softmax", ["q"], ["y"], "softmax"),
    ]
    constants = {"w": values(16, 16, 3, 3), "b": values(16), "v": values(16, 16, 3, 3)}
    source = model(nodes, constants, {"x": (1, 16, 32, 32)}, "y")
    inputs = {"x": values(1, 16, 32, 32)}
    changed, choice, record = quantized(source, "static", inputs)
    assert choice.chosen.static == {"conv", "relu", "next", "sum", "last"}
    assert choice.boundaries == 2
    assert not choice.reasons
    assert record.options["per_channel"] is True
    session = ort.InferenceSession(changed.SerializeToString())
    assert session.get_inputs()[0].type == session.get_outputs()[0].type == "tensor(float)"


def loaded_operators(changed: onnx.ModelProto, folder: Path) -> list[str]:
    """The operators of the graph that ONNX Runtime runs, as a build has it optimize."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    options.log_severity_level = 3
    ort.InferenceSession(
        changed.SerializeToString(), options, disabled_optimizers=["MatMulAddFusion"]
    )
    return operators(onnx.load(folder / "loaded.onnx"))


@pytest.mark.parametrize("product", ["Gemm", "MatMul"])
@pytest.mark.parametrize("limit", ["Relu", "Clip", "Clip without bounds", "Clip by attributes"])
def test_a_product_whose_floats_are_limited_is_in_integers_when_it_runs(
    product: str, limit: str, tmp_path: Path
) -> None:
    """Where a Relu or Clip follows, and no QuantizeLinear, ONNX Runtime fuses nothing."""
    op = limit.split()[0]
    limits = {"Clip": ["p", "low", "high"], "Clip without bounds": ["p", "low", ""]}
    nodes = [
        helper.make_node(product, ["x", "w"], ["p"], "product"),
        helper.make_node(op, limits.get(limit, ["p"]), ["r"], "limit"),
        helper.make_node("Softmax", ["r"], ["y"], "softmax"),
    ]
    bias = {} if product == "MatMul" else {"b": np.zeros(N, np.float32)}
    nodes[0].input.extend(bias)
    weights = values(K, N) / np.float32(20)
    constants = {"w": weights, "low": np.float32(-0.5), "high": np.float32(0.75), **bias}
    source = model(nodes, constants, {"x": (ROWS, K)}, "y")
    if limit == "Clip by attributes":
        source.opset_import[0].version = 10
        nodes_of = source.graph.node
        nodes_of[1].attribute.extend(
            [helper.make_attribute("min", -0.5), helper.make_attribute("max", 0.75)]
        )
    inputs = {"x": values(ROWS, K)}
    scheme = replace(UNSIGNED, per_channel=source.opset_import[0].version > 12, reduce_range=True)
    changed, choice, _ = quantized(source, "static", inputs, scheme=scheme)
    assert choice.chosen.static == {"product"}
    assert error(source, changed, inputs) < 0.04
    found = loaded_operators(changed, tmp_path)
    assert {"MatMulIntegerToFloat", "QGemm"}.intersection(found)
    assert not {"MatMul", "Gemm", "FusedGemm"}.intersection(found)


def test_a_node_that_gains_less_than_its_boundaries_cost_is_left() -> None:
    """A product with one column takes less than writing its operand in integers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "narrow"),
        helper.make_node("Tanh", ["p"], ["y"], "tanh"),
    ]
    source = model(nodes, {"w": values(K, 1)}, {"x": (ROWS, K)}, "y")
    _, choice, _ = quantized(source, "static", {"x": values(ROWS, K)})
    assert len(choice.chosen) == 0
    assert choice.reasons == {"narrow": "kept: island"}
    assert choice.matched() == {"boundaries": 0, "kept: island": 1, "quantized": 0}


def test_the_profile_keeps_nodes_and_unfit_ones_say_why() -> None:
    bad = values(K, N)
    bad[3, 4] = np.nan
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "kept"),
        helper.make_node("MatMul", ["x", "n"], ["b"], "nan"),
        helper.make_node("Transpose", ["x"], ["t"], "turned", perm=[1, 0]),
        helper.make_node("MatMul", ["t", "x"], ["c"], "variable"),
        helper.make_node("MatMul", ["x", "v"], ["d"], "fit"),
        helper.make_node("Concat", ["a", "b", "d"], ["y"], "all", axis=1),
    ]
    source = model(nodes, {"w": values(K, N), "n": bad, "v": values(K, N)}, {"x": (ROWS, K)}, "y")
    for form in ("dynamic", "weights"):
        _, choice, _ = quantized(source, form, {}, kept=("kept",))
        assert choice.reasons == {
            "kept": "kept: profile",
            "nan": "kept: values that are not finite",
            "variable": "kept: weights that are not constant",
        }
        assert choice.chosen.dynamic | choice.chosen.weights == {"fit"}


def test_an_activation_that_was_not_finite_or_not_seen_keeps_its_node() -> None:
    source = product()
    for observed, why in (
        ({}, "kept: not observed"),
        (
            {"x": Observed(None, (ROWS, K)), "p": Observed((0.0, 1.0), (ROWS, N))},
            "kept: values that are not finite",
        ),
    ):
        choice = choose(source, "static", (), (), observed, Weighs(rates_of(())))
        assert choice.reasons == {"product": why}


def test_weights_without_elements_stay() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "none"),
        helper.make_node("Concat", ["p", "x"], ["y"], "all", axis=1),
    ]
    source = model(nodes, {"w": values(K, 0)}, {"x": (ROWS, K)}, "y")
    for form in BY_FORM:
        observed = {"x": Observed((0.0, 1.0), (ROWS, K)), "p": Observed(None, (ROWS, 0))}
        choice = choose(source, form, (), (), observed, Weighs(rates_of(())))  # type: ignore[arg-type]
        assert choice.reasons == {"none": "kept: weights without elements"}


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_are_of_matrices_alone(bits: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["p"], "stacked"),
        helper.make_node("MatMul", ["p", "w"], ["y"], "flat"),
    ]
    source = model(nodes, {"v": values(1, K, K), "w": values(K, N)}, {"x": (ROWS, K)}, "y")
    changed, choice, _ = quantized(source, "weights", {}, bits=bits)
    assert choice.chosen == Chosen(weights=frozenset({"flat"}))
    assert choice.reasons == {"stacked": "kept: weights of more than two dims"}
    assert operators(changed) == ["MatMul", "MatMulNBits"]


def test_what_was_written_is_what_was_chosen() -> None:
    inputs = {"x": values(ROWS, K)}
    for source in (branching(), gemm(True)):
        for form in BY_FORM:
            changed, choice, _ = quantized(source, form, inputs)  # type: ignore[arg-type]
            assert written_nodes(changed, choice.chosen) == choice.chosen
            assert len(written_nodes(source, choice.chosen)) == 0


def test_rows_of_a_table_have_a_scale_each() -> None:
    table = values(512, 48) * np.logspace(-3, 3, 512, dtype=np.float32)[:, None]
    nodes = [helper.make_node("Gather", ["t", "x"], ["y"], "lookup")]
    source = model(nodes, {"t": table}, {"x": (4,)}, "y", TensorProto.INT64)
    inputs = {"x": np.array([0, 100, 300, 511])}
    changed, choice, _ = quantized(source, "dynamic", inputs)
    assert choice.chosen.tables == {"lookup"}
    (expected,), (found,) = run(source, inputs), run(changed, inputs)
    largest = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(expected - found) / largest).max() < 0.005
    assert changed.ByteSize() < source.ByteSize() * 0.3


def test_a_recurrence_is_quantized_in_each_call() -> None:
    hidden, steps = 32, 5
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], "lstm", hidden_size=hidden)]
    constants = {
        "w": values(1, 4 * hidden, 24) / 5,
        "r": values(1, 4 * hidden, hidden) / 5,
        "b": values(1, 8 * hidden),
    }
    source = model(nodes, constants, {"x": (steps, 2, 24)}, "y")
    inputs = {"x": values(steps, 2, 24)}
    cases: list[tuple[QuantizedForm, Scheme]] = [
        ("static", UNSIGNED),
        ("dynamic", UNSIGNED),
        ("dynamic", Scheme("uint8", "uint8", True, SATURATES)),
    ]
    for form, scheme in cases:
        changed, _, _ = quantized(source, form, inputs, scheme=scheme)
        assert operators(changed) == ["DynamicQuantizeLSTM"]
        assert 0 < error(source, changed, inputs) < 0.06


def branching() -> onnx.ModelProto:
    """An If whose branches multiply with weights of their own, and with one of the main graph."""
    then = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "own"], ["i"], "inner"),
            helper.make_node("MatMul", ["i", "outer"], ["o"], "captured"),
        ],
        "then",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values(K, K), "own")],
    )
    other = helper.make_graph(
        [helper.make_node("Gemm", ["x", "outer"], ["e"], "inner_gemm")],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["m"], "largest", keepdims=0),
        helper.make_node("Greater", ["m", "limit"], ["c"], "compare"),
        helper.make_node("If", ["c"], ["b"], "choice", then_branch=then, else_branch=other),
        helper.make_node("MatMul", ["b", "last"], ["y"], "product"),
    ]
    constants = {"limit": np.float32(100), "outer": values(K, K), "last": values(K, N)}
    return model(nodes, constants, {"x": (ROWS, K)}, "y")


@pytest.mark.parametrize("form", ["static", "dynamic", "weights"])
@pytest.mark.parametrize("largest", [1.0, 1000.0])
def test_bodies_are_quantized_too(form: QuantizedForm, largest: float) -> None:
    source = branching()
    inputs = {"x": values(ROWS, K)}
    inputs["x"][0, 0] = largest
    changed, choice, _ = quantized(source, form, inputs)
    chosen = choice.chosen
    inner = {"inner", "captured", "inner_gemm"}
    assert inner <= (chosen.weights if form == "weights" else chosen.dynamic)
    assert (choice.matched().get("in each call", 0) == 3) == (form == "static")
    limit = 0.05 if largest == 1.0 else 0.2
    assert 0 < error(source, changed, inputs) < limit
    assert changed.ByteSize() < source.ByteSize() / 2


def test_the_same_input_gives_the_same_bytes() -> None:
    source, inputs = branching(), {"x": values(ROWS, K)}
    for form in ("static", "dynamic", "weights"):
        made = [quantized(source, form, inputs)[0].SerializeToString() for _ in range(2)]
        assert made[0] == made[1]


def test_one_scale_for_all_and_seven_bits_where_asked() -> None:
    source, inputs = product(), {"x": values(ROWS, K)}
    scheme = Scheme("uint8", "int8", False, True)
    for form in ("static", "dynamic"):
        changed, _, _ = quantized(source, form, inputs, scheme=scheme)
        (weights,) = (t for t in changed.graph.initializer if list(t.dims) == [K, N])
        assert np.abs(numpy_helper.to_array(weights).astype(int)).max() <= 64
        assert error(source, changed, inputs) < 0.06


def test_nothing_is_written_for_nothing_chosen() -> None:
    source = product()
    same = onnx.ModelProto()
    same.CopyFrom(source)
    change = Quantize(form="dynamic", bits=8, scheme=UNSIGNED, chosen=Chosen())
    run_passes(same, (change,))
    assert operators(same) == operators(source)


def test_blocks_of_weights_say_which_library_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, importing it fails so."""
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime.quantization.matmul_nbits_quantizer", None)
    with pytest.raises(ImportError, match="matmul_nbits_quantizer"):
        quantized(product(), "weights", {})


# Weights alone, in blocks.


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_of_any_size_answer_alike(bits: Any, size: int, symmetric: bool, level: Any) -> None:
    """The depth is no multiple of most sizes, and less than the largest."""
    source, inputs = product(), {"x": values(ROWS, K)}
    blocks = Blocks(size=size, symmetric=symmetric, accuracy_level=level)
    changed, _, record = quantized(source, "weights", inputs, bits=bits, blocks=blocks)
    assert 0 < error(source, changed, inputs) < (0.4 if bits == 4 else 0.04)
    assert record.options["block_size"] == size
    assert record.options["symmetric"] is symmetric
    assert record.options["accuracy_level"] == level
    (node,) = (node for node in changed.graph.node if node.op_type == "MatMulNBits")
    assert node.name == "product"
    assert len(node.input) == (3 if symmetric else 4)
    stated = [item.i for item in node.attribute if item.name == "accuracy_level"]
    assert stated == [level] * bool(level)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_of_few_columns_are_stored_in_blocks(bits: Any, columns: int) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "narrow")]
    source = model(nodes, {"w": values(K, columns)}, {"x": (ROWS, K)}, "y")
    blocks = Blocks(accuracy_level=4)
    changed, _, _ = quantized(source, "weights", {}, bits=bits, blocks=blocks)
    assert 0 < error(source, changed, {"x": values(ROWS, K)}) < (0.4 if bits == 4 else 0.04)


def embedding(columns: int, *heads: onnx.NodeProto) -> onnx.ModelProto:
    """A table of 600 rows, and nodes that read it and `looked`, which make `y`."""
    nodes = [helper.make_node("Gather", ["t", "x"], ["looked" if heads else "y"], "lookup"), *heads]
    return model(nodes, {"t": values(600, columns)}, {"x": (5,)}, "y", TensorProto.INT64)


LOOKED_UP = {"x": np.array([0, -1, 599, 7, 7])}


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [16, 32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_tables_have_blocks_in_the_form_of_weights(bits: Any, size: int, symmetric: bool) -> None:
    source = embedding(48)
    blocks = Blocks(size=size, symmetric=symmetric, table_bits=bits)
    changed, choice, record = quantized(source, "weights", {}, bits=bits, blocks=blocks)
    assert choice.chosen == Chosen(tables=frozenset({"lookup"}))
    assert written_nodes(changed, choice.chosen) == choice.chosen
    assert operators(changed) == ["Gather", "GatherBlockQuantized"]
    assert record.options["table_bits"] == bits
    assert 0 < error(source, changed, LOOKED_UP) < (0.2 if bits == 4 else 0.02)
    assert changed.ByteSize() < source.ByteSize() * (0.3 if bits == 4 else 0.45)


def test_an_index_outside_of_a_table_in_blocks_is_an_error_still() -> None:
    """The kernel of blocks gives zeros for it."""
    changed, _, _ = quantized(embedding(48), "weights", {}, bits=4, blocks=Blocks(table_bits=4))
    for index in (600, -601):
        with pytest.raises(Exception, match="out of data bounds"):
            run(changed, {"x": np.array([0, 0, 0, 0, index])})


def test_a_table_whose_rows_are_no_whole_bytes_has_8_bits_by_row() -> None:
    source = embedding(47)
    changed, choice, _ = quantized(source, "weights", {}, bits=4, blocks=Blocks(table_bits=4))
    assert written_nodes(changed, choice.chosen) == choice.chosen
    assert "GatherBlockQuantized" not in operators(changed)
    assert 0 < error(source, changed, LOOKED_UP) < 0.01


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_table_that_a_product_reads_has_its_bytes(bits: Any, symmetric: bool) -> None:
    """Where an artifact stores equal bytes once, tied embeddings are stored once."""
    head = helper.make_node("Gemm", ["looked", "t"], ["y"], "head", transB=1)
    source = embedding(64, head)
    blocks = Blocks(symmetric=symmetric, accuracy_level=4, table_bits=bits)
    changed, choice, _ = quantized(source, "weights", {}, bits=bits, blocks=blocks)
    assert len(choice.chosen) == 2
    assert 0 < error(source, changed, LOOKED_UP) < (0.2 if bits == 4 else 0.02)
    stored = [tensor for tensor in changed.graph.initializer if "_numbers" not in tensor.name]
    contents = [tensor.raw_data for tensor in stored]
    assert len(stored) == (4 if symmetric else 6)
    assert len(set(contents)) == len(stored) / 2
    assert all(
        tensor.data_type != TensorProto.FLOAT or "scales" in tensor.name for tensor in stored
    )


def test_products_and_tables_in_a_loop_read_blocks_of_the_graph_around() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"], "same"),
            helper.make_node("Gather", ["t", "x"], ["found"], "lookup"),
            helper.make_node("MatMul", ["found", "w"], ["made"], "product"),
            helper.make_node("Add", ["sum", "made"], ["next"], "more"),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    nodes = [helper.make_node("Loop", ["three", "", "zero"], ["y"], "loop", body=body)]
    constants = {"three": np.int64(3), "zero": np.zeros((5, N), np.float32)}
    constants |= {"t": values(600, 64), "w": values(64, N)}
    source = model(nodes, constants, {"x": (5,)}, "y", TensorProto.INT64)
    blocks = Blocks(accuracy_level=4, table_bits=4)
    changed, choice, _ = quantized(source, "weights", {}, bits=4, blocks=blocks)
    assert choice.chosen.names() == {"lookup", "product"}
    assert {"MatMulNBits", "GatherBlockQuantized"} <= set(operators(changed))
    assert {"t", "w"}.isdisjoint(tensor.name for tensor in changed.graph.initializer)
    assert 0 < error(source, changed, LOOKED_UP) < 0.4


# Columns of weights, and of what they make, whose sizes differ by far.
UNEVEN = np.exp(np.random.default_rng(4).normal(0, 1.5, N)).astype(np.float32)


@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize("form", ["static", "dynamic"])
@pytest.mark.parametrize("given", [(4, ROWS, K), (2, 4, ROWS, K), (ROWS, K), (1, ROWS, K)])
def test_columns_of_several_matrices_have_scales_of_their_own(
    given: tuple[int, ...], form: QuantizedForm, weights: Any
) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    source = model([node], {"w": values(4, K, N) * UNEVEN}, {"x": given}, "y")
    scheme = Scheme("uint8", weights, True, SATURATES)
    changed, choice, _ = quantized(source, form, {"x": values(*given)}, scheme=scheme)
    assert choice.chosen.dynamic == {"product"}
    assert column_error(source, changed, {"x": values(*given)}) < 0.04


@pytest.mark.parametrize("kind", ["depthwise", "one axis", "gemm", "transposed gemm", "matmul"])
def test_channels_have_scales_of_their_own_in_the_static_form(kind: str) -> None:
    # Kernels of products write float32; the result of a convolution has one scale for all.
    make = helper.make_node
    if kind in ("depthwise", "one axis"):
        depthwise = kind == "depthwise"
        node = make("Conv", ["x", "w"], ["y"], "made", group=K if depthwise else 1)
        shape, axis = ((K, 1, 3, 3), 0) if depthwise else ((N, K, 3), 0)
        given = (1, K, 20, 20) if depthwise else (1, K, 200)
    elif kind == "matmul":
        node, shape, axis = make("MatMul", ["x", "w"], ["y"], "made"), (K, N), 1
        given = (ROWS, K)
    else:
        transposed = kind == "transposed gemm"
        node = make("Gemm", ["x", "w"], ["y"], "made", transB=int(transposed))
        shape, axis, given = ((N, K), 0, (ROWS, K)) if transposed else ((K, N), 1, (ROWS, K))
    source = model([node], {"w": values(*shape)}, {"x": given}, "y")
    observed = seen(source, {"x": values(*given)})
    choice = Choice(Chosen(static=frozenset({"made"})), {}, 0)
    made = Quantize(
        form="static",
        bits=8,
        scheme=UNSIGNED,
        blocks=IN_FLOAT32,
        chosen=choice.chosen,
        ranges={name: each.bounds for name, each in observed.items() if each.bounds is not None},
    )
    run_passes(source, (made,))
    scales = [
        (each.attribute[0].i, constant.dims[0])
        for each in source.graph.node
        if each.op_type == "DequantizeLinear"
        for constant in source.graph.initializer
        if constant.name == each.input[1] and each.input[0].startswith("w_") and constant.dims
    ]
    assert scales == [(axis, shape[axis])]
