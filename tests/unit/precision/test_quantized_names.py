"""What quantizing makes has names of its own, whatever the names of a model are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.same_sign_weights import exact_feature
from aotc.graph.view import every_graph, every_node
from aotc.host.probe import probe
from aotc.precision.kernel_rates import rates_of
from aotc.precision.quantize import Quantize, Scheme
from aotc.precision.quantized_nodes import Observed, Weighs, choose, observable

ROWS, WIDTH = 64, 96
FORMS = ("static", "dynamic", "weights")
# Weights in 7 bits where sums of 8-bit products saturate, as in a build for such a CPU.
SATURATES = not exact_feature(probe(gpus=False).isa)
RANDOM = np.random.default_rng(5)


def values(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def answer(model: onnx.ModelProto, inputs: dict[str, Any], *names: str) -> list[Any]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    session = ort.InferenceSession(copy.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(list(names) or None, inputs)
    return found


def quantized(
    source: onnx.ModelProto, form: Any, inputs: dict[str, Any], bits: Any = 8
) -> onnx.ModelProto:
    model = onnx.shape_inference.infer_shapes(source)
    observed = {}
    if form == "static":
        names = observable(model, ())
        made = [name for name in names if name not in inputs]
        arrays = {**inputs, **dict(zip(made, answer(model, inputs, *made), strict=True))}
        observed = {
            name: Observed(
                (float(arrays[name].min()), float(arrays[name].max())), arrays[name].shape
            )
            for name in names
        }
    choice = choose(model, form, (), (), observed, Weighs(rates_of(())))
    assert len(choice.chosen)
    change = Quantize(
        form=form,
        bits=bits,
        scheme=Scheme("uint8", "int8", True, SATURATES),
        chosen=choice.chosen,
        ranges={name: seen.bounds for name, seen in observed.items() if seen.bounds},
    )
    run_passes(model, (change,))
    del model.graph.value_info[:]
    return model


def assert_alike(source: onnx.ModelProto, form: str, inputs: dict[str, Any]) -> onnx.ModelProto:
    changed = quantized(source, form, inputs)
    if form != "weights":
        onnx.checker.check_model(changed)
    made = Counter(definitions(changed.graph))
    assert [name for name, count in made.items() if count > 1] == []
    for expected, found in zip(answer(source, inputs), answer(changed, inputs), strict=True):
        assert np.abs(expected - found).max() < 0.05 * np.abs(expected).max()
    before = [node.name for node in every_node(source)]
    after = Counter(node.name for node in every_node(changed))
    assert all(after[name] <= 1 for name in before)
    for side in ("input", "output"):
        names = [[v.name for v in getattr(m.graph, side)] for m in (source, changed)]
        assert names[0] == names[1]
    return changed


def definitions(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of values, once for each definition."""
    for each in every_graph(helper.make_model(graph)):
        yield from (value.name for value in (*each.input, *each.initializer))
        yield from (name for node in each.node for name in node.output if name)


def model(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "named",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


WEIGHTS = (
    "w_quantized",
    "w_scale",
    "w_zero_point",
    "w_transposed",
    "w_Q8",
    "w_scales",
    "x_scale",
    "x_zero_point",
    "w_DequantizeLinear_Output",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("taken", WEIGHTS)
@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_constants_keep_their_values(form: str, taken: str, operator: str) -> None:
    attributes = {"transB": 1} if operator == "Gemm" else {}
    nodes = [
        helper.make_node(operator, ["x", "w"], ["p"], "product", **attributes),
        helper.make_node("Add", ["p", taken], ["s"], "sum"),
        helper.make_node("Tanh", ["s"], ["t"], "tanh"),
        helper.make_node(operator, ["t", "w"], ["y"], "again", **attributes),
    ]
    constants = {"w": values(WIDTH, WIDTH) / 10, taken: values(WIDTH, WIDTH)[:ROWS]}
    changed = assert_alike(model(nodes, constants), form, {"x": values(ROWS, WIDTH)})
    (kept,) = (tensor for tensor in changed.graph.initializer if tensor.name == taken)
    assert (numpy_helper.to_array(kept) == constants[taken]).all()


ACTIVATIONS = (
    "x_scale",
    "x_zero_point",
    "x_QuantizeLinear_Output",
    "x_DequantizeLinear_Output",
    "p_given",
    "p_integers",
    "p_float",
    "p_scales",
    "x_dynamic",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("taken", ACTIVATIONS)
@pytest.mark.parametrize("inner", [True, False], ids=["inner", "output"])
def test_activations_and_outputs_keep_theirs(form: str, taken: str, inner: bool) -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], [taken], "product_quantize"),
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Mul", ["p", "w_rows"], ["m"], "product_cast"),
        helper.make_node("MatMul", [taken, "w"], ["q"], "second"),
        helper.make_node("Sub", ["m", "q"], ["y"], "difference"),
    ]
    constants = {"w": values(WIDTH, WIDTH), "w_rows": values(ROWS, WIDTH)}
    outputs = ("y",) if inner else ("y", taken)
    source = model(nodes, constants, outputs)
    changed = assert_alike(source, form, {"x": values(ROWS, WIDTH)})
    operators = {node.name: node.op_type for node in changed.graph.node}
    assert (operators["product_quantize"], operators["product_cast"]) == ("Tanh", "Mul")


def test_tables_keep_theirs() -> None:
    table = values(512, 48)
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], "cast", to=TensorProto.INT64),
        helper.make_node("Gather", ["t", "i"], ["g"], "lookup"),
        helper.make_node("Mul", ["g", "t_rows"], ["m"], "product"),
        helper.make_node("Add", ["m", "t_row_scales"], ["y"], "sum"),
    ]
    constants = {"t": table, "t_rows": values(48), "t_row_scales": values(48)}
    for form in FORMS:
        assert_alike(model(nodes, constants), form, {"x": values(ROWS, WIDTH) * 0 + 3})


@pytest.mark.parametrize("form", FORMS)
def test_a_body_quantizes_what_the_graph_around_it_does_too(form: str) -> None:
    def branch(name: str, weights: str) -> onnx.GraphProto:
        return helper.make_graph(
            [helper.make_node("MatMul", ["x", weights], [f"{name}_o"], f"{name}_product")],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_o", TensorProto.FLOAT, None)],
        )

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("ReduceMax", ["x"], ["m"], "largest", keepdims=0),
        helper.make_node("Greater", ["m", "limit"], ["c"], "compare"),
        helper.make_node(
            "If",
            ["c"],
            ["b"],
            "choice",
            then_branch=branch("then", "w"),
            else_branch=branch("else", "v"),
        ),
        helper.make_node("Add", ["p", "b"], ["y"], "sum"),
    ]
    constants = {"limit": np.float32(9), "w": values(WIDTH, WIDTH), "v": values(WIDTH, WIDTH)}
    source = model(nodes, constants)
    inputs = {"x": values(ROWS, WIDTH)}
    assert_alike(source, form, inputs)
    inputs["x"][0] = 10
    assert_alike(source, form, inputs)


def test_constants_of_forms_differ_where_they_share_weights() -> None:
    """A body's product has the scales of its columns, a Gemm those of its rows."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["o"], "inner")],
        "then",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["e"], "same")],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["p"], "product", transB=1),
        helper.make_node("If", ["yes"], ["b"], "choice", then_branch=body, else_branch=other),
        helper.make_node("Add", ["p", "b"], ["y"], "sum"),
    ]
    spread = np.logspace(-2, 0, WIDTH, dtype=np.float32)
    constants = {"yes": np.bool_(True), "w": values(WIDTH, WIDTH) * spread}
    assert_alike(model(nodes, constants), "static", {"x": values(ROWS, WIDTH)})


def test_names_of_a_model_that_has_our_marks() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "<0>"], ["<<3>"], "<1>"),
        helper.make_node("Add", ["<<3>", "<0>_scale"], ["y"], "sum"),
    ]
    constants = {"<0>": values(WIDTH, WIDTH), "<0>_scale": values(WIDTH)}
    for form in FORMS:
        changed = assert_alike(model(nodes, constants), form, {"x": values(ROWS, WIDTH)})
        names = {tensor.name for tensor in changed.graph.initializer}
        assert "<0>_scale" in names
