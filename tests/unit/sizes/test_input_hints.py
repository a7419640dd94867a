"""Hints on input values: ONNX Runtime accepts generated values at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from aotc.session.capture import value_of
from aotc.sizes.inputs.fixtures import generate
from aotc.sizes.inputs.hints import hints_of

HEAD = '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
SEED = 7
# Where two dims are free, sizes that tell them apart; and one that is alone.
SIZES = ({"n": 3, "m": 2}, {"n": 1, "m": 1}, {"n": 2, "m": 4})


def session_of(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def inputs_of(model: onnx.ModelProto, sizes: dict[str, int], hints: Any = None) -> dict[str, Any]:
    values = [value_of(info) for info in model.graph.input]
    return generate(values, sizes, hints_of(model) if hints is None else hints, SEED)


def runs(session: ort.InferenceSession, inputs: dict[str, Any]) -> bool:
    try:
        session.run(None, inputs)
    except Exception as error:
        assert "ONNXRuntimeError" in str(error)
        return False
    return True


# Each is rejected by ONNX Runtime at one of the sizes where values are drawn without hints.
ASKED = {
    "index within a dim that is free": """
        g (float[n, 2] x, int64[7] at) => (y) { y = Gather (x, at) }""",
    "index of the last axis": """
        g (float[3, n] x, int64[3, 7] at) => (y) { y = GatherElements <axis = 1> (x, at) }""",
    "index behind a cast and a shift": """
        g (float[n, 2] x, int32[9] at) => (y)
        { w = Cast <to = 7> (at)  one = Constant <value = int64 {-1}> ()
          z = Add (w, one)  k = Constant <value = int64 {2}> ()  v = Add (z, k)
          p = Concat <axis = 0> (x, x, x)  y = Gather (p, v) }""",
    "columns of ScatterND": """
        g (float[n, 2] x, int64[1, 2] at, float[1] with) => (y) { y = ScatterND (x, at, with) }""",
    "labels of a loss": """
        g (float[n, 2] x, int64[n] label) => (y)
        { y = SoftmaxCrossEntropyLoss <reduction = "mean"> (x, label) }""",
    "lengths of sequences": """
        g (float[n, m] x, int64[m] lengths) => (y)
        { y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, lengths) }""",
    "an axis": "g (float[n, m] x, int64 axis) => (y) { y = CumSum (x, axis) }",
    "distinct axes": """
        g (float[n, m] x, int64[2] axes) => (y) { y = ReduceSum (x, axes) }""",
    "axes to remove": """
        g (float[n, 1, m, 1] x, int64[2] axes) => (y) { y = Squeeze (x, axes) }""",
    "a shape with as many elements": """
        g (float[n, m] x, int64[1] shape) => (y) { y = Reshape (x, shape) }""",
    "a shape of more axes": """
        g (float[n, m] x, int64[3] shape) => (y) { y = Reshape (x, shape) }""",
    "a shape of which one size is declared": """
        g (float[6, n, m] x, int64[3] shape) => (float[2, k, l] y) { y = Reshape (x, shape) }""",
    "a declared shape": """
        g (float[n, 6] x, int64[3] shape) => (float[n, 2, 3] y) { y = Reshape (x, shape) }""",
    "a shape that is put together": """
        g (float[n, 6] x, int64[1] rows, int64[1] columns) => (float[n, 2, 3] y)
        { two = Constant <value = int64[1] {2}> ()
          shape = Concat <axis = 0> (rows, two, columns)  y = Reshape (x, shape) }""",
    "a shape to broadcast to": """
        g (float[n, 5] x, int64[2] shape) => (y) { y = Expand (x, shape) }""",
    "parts of an axis": """
        g (float[n, 7] x, int64[2] parts) => (y, z) { y, z = Split <axis = 1> (x, parts) }""",
    "no more than there are": """
        g (float[n, m] x, int64[1] k) => (y, i) { y, i = TopK <axis = 0> (x, k) }""",
    "axes and ends of a slice": """
        g (float[n, m] x, int64[2] starts, int64[2] ends, int64[2] axes, int64[2] steps) => (y)
        { y = Slice (x, starts, ends, axes, steps) }""",
    "padding by reflection": """
        g (float[n, m] x, int64[4] pads) => (y) { y = Pad <mode = "reflect"> (x, pads) }""",
    "scales": """
        g (float[n, 1, m, 4] x, float[4] scales) => (y)
        { y = Resize <mode = "linear"> (x, , scales) }""",
    "a divisor": """
        g (int32[n, 9] x, int32[n, 9] by) => (y) { y = Div (x, by) }""",
    "a depth": """
        g (int64[n] x, float depth, float[2] values) => (y) { y = OneHot (x, depth, values) }""",
    "a place in a sequence": """
        g (float[n] x, int64 at) => (y) { s = SequenceConstruct (x, x)  y = SequenceAt (s, at) }""",
    "a threshold": """
        g (float[1, n, 4] boxes, float[1, 1, n] scores, int64[1] most, float[1] iou) => (y)
        { y = NonMaxSuppression (boxes, scores, most, iou) }""",
    "an index that a body reads": """
        g (float[n, 2] x, bool flag, int64[9] at) => (y)
        { y = If (flag) <
            then_branch = t () => (a) { a = Gather (x, at) },
            else_branch = e () => (b) { c = Neg (x)  b = Gather (c, at) }> }""",
    "positions of rotary embeddings": """
        g (float[2, n, 8] x, int64[2, n] at, float[3, 4] cos, float[3, 4] sin) => (y)
        { y = com.microsoft.RotaryEmbedding <num_heads = 1> (x, at, cos, sin) }""",
    "a signal's length": """
        g (float[1, n, 8, 1] x, int64 axis) => (y) { y = DFT (x, , axis) }""",
    "an image made of columns": """
        g (float[1, 4, 5] x, int64[2] image, int64[2] block) => (float[1, 1, 6, 2] y)
        { y = Col2Im (x, image, block) }""",
    "text that is a number": """
        g (string[n] x) => (y) { y = Cast <to = 1> (x) }""",
}


@pytest.mark.parametrize("text", ASKED.values(), ids=ASKED)
def test_onnx_runtime_takes_what_operators_ask(text: str) -> None:
    model = parsed(text)
    session = session_of(model)
    for sizes in sized(model):
        assert runs(session, inputs_of(model, sizes)), sizes
    assert not all(runs(session, inputs_of(model, sizes, hints={})) for sizes in sized(model))


def parsed(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def sized(model: onnx.ModelProto) -> list[dict[str, int]]:
    reflects = any(a.s == b"reflect" for node in model.graph.node for a in node.attribute)
    return [sizes for sizes in SIZES if not reflects or 1 not in sizes.values()]


def test_a_function_of_the_model_is_looked_into() -> None:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20, "own" : 1]>\n'
        "g (float[n, 2] x, int64[9] at) => (y) { y = own.pick (x, at) }\n"
        '<domain: "own", opset_import: ["" : 20]>\n'
        "pick (data, places) => (z) { z = Gather (data, places) }"
    )
    assert hints_of(model) == {"at": {"kind": "index", "high": ["x", 0]}}


def test_names_of_two_bodies_are_told_apart() -> None:
    model = parsed("""
        g (float[5] x, bool flag, int64[9] at, int64[9] other) => (y)
        { y = If (flag) <
            then_branch = t () => (a) { v = Identity (at)  a = Gather (x, v) },
            else_branch = e () => (b) { v = Identity (other)  b = Cast <to = 1> (v) }> }""")
    assert hints_of(model) == {"at": {"kind": "index", "high": 5}}


def test_the_axes_are_those_whose_result_is_declared() -> None:
    model = parsed("""
        g (float[n, m] x, int64[1] axes) => (float[1, m] y)
        { a = ReduceSum (x, axes)  y = Exp (a) }""")
    assert hints_of(model)["axes"] == {"kind": "vector", "values": [0]}
    model = parsed("g (float[n, m] x, int64[1] axes) => (y) { y = ReduceSum (x, axes) }")
    assert hints_of(model)["axes"] == {"kind": "vector", "values": [-1]}


def test_the_smallest_of_several_tables_bounds_an_index() -> None:
    model = parsed("""
        g (float[n, 2] x, float[m, 2] z, int64[9] at) => (y)
        { a = Gather (x, at)  b = Gather (z, at)  y = Add (a, b) }""")
    assert hints_of(model)["at"]["high"] == {"minimum": [["x", 0], ["z", 0]]}
    assert inputs_of(model, {"n": 400, "m": 3})["at"].max() == 2


def test_ids_that_are_compared_with_one_of_them_are_others_too() -> None:
    model = parsed("""
        g (float[n, 2] x, int64[90] at) => (y, z)
        { one = Constant <value = int64 {1}> ()  z = Equal (at, one)  y = Gather (x, at) }""")
    drawn = inputs_of(model, {"n": 40})["at"]
    assert len(set(drawn.tolist())) > 20
    assert (drawn == 1).sum() > 4


def test_scattered_elements_do_not_meet() -> None:
    model = parsed("""
        g (float[9, n] x, int64[6, n] at, float[6, n] with, int64[20, 2] places, float[20] to)
        => (y, z) { y = ScatterElements (x, at, with)  z = ScatterND (x, places, to) }""")
    drawn = inputs_of(model, {"n": 4})
    assert all(len(set(column)) == 6 for column in drawn["at"].T.tolist())
    assert len(np.unique(drawn["places"], axis=0)) == 20


def test_constants_in_the_same_place_elsewhere_are_another_reading() -> None:
    model = parsed("""
        g (float[6, 4] x, int64[2] repeats) => (y, z)
        { twice = Constant <value = int64[2] {1, 3}> ()
          y = Tile (x, twice)  z = Tile (x, repeats) }""")
    assert hints_of(model)["repeats"] == {"kind": "vector", "values": [1, 3]}


def test_indices_of_which_nothing_is_known_are_drawn_before_they_are_constants() -> None:
    model = parsed("""
        g (int64[n] x, int64[9] at) => (y, z)
        { few, i, j, k = Unique (x)  first = Constant <value = int64 {0}> ()
          y = Gather (few, at)  z = Gather (few, first) }""")
    assert hints_of(model)["at"] == {"or": [{"kind": "full", "value": 0}]}


def test_divisors_elsewhere_bind_no_floats() -> None:
    model = parsed("""
        g (float[n] x, float[n] by) => (y, z)
        { eight = Constant <value = float {8.0}> ()  y = Div (x, eight)  z = Div (x, by) }""")
    assert hints_of(model) == {}


def test_lengths_of_a_cache_are_those_of_past_and_call() -> None:
    model = parsed("""
        g (float[2, n, 16] q, float[2, n, 8] k, float[2, n, 8] v,
           float[2, 1, m, 8] pk, float[2, 1, m, 8] pv, int32[2] seqlens, int32 total) => (y, a, b)
        { y, a, b = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 1>
            (q, k, v, pk, pv, seqlens, total) }""")
    drawn = inputs_of(model, {"n": 1, "m": 4})
    assert (drawn["seqlens"].tolist(), drawn["total"]) == ([4, 4], 5)
    assert runs(session_of(model), drawn)


def test_large_initializers_are_neither_read_nor_copied() -> None:
    weights = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[70_000, 4])
    # Its values are in a file that is not there.
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="gone.bin")
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "at"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("at", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights, numpy_helper.from_array(np.ones(3, np.float32), "unused")],
    )
    assert hints_of(helper.make_model(graph)) == {"at": {"kind": "index", "high": 70_000}}


def test_a_hint_is_json_whatever_the_constants() -> None:
    model = parsed("g (float[n] x) => (y) { y = Equal (x, limits) }")
    limits = numpy_helper.from_array(np.array([np.inf, np.nan, 2], np.float32), "limits")
    model.graph.initializer.append(limits)
    assert hints_of(model) == {"x": {"kind": "choice", "values": [2.0]}}


def test_floats_are_free_where_only_whole_numbers_are_bound() -> None:
    model = parsed("g (float[n] x, float[n] by) => (y) { y = Div (x, by) }")
    assert hints_of(model) == {}


def test_the_root_of_what_another_operator_made_asks_nothing() -> None:
    model = parsed("g (float[n] x) => (y) { a = Relu (x)  y = Sqrt (a) }")
    assert hints_of(model) == {}
