"""Partitions as models: run one after another, they compute what the complete model computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_parts import constant
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.partition.assignment import Part, Rules, assign
from aotc.graph.partition.division import Extractor, boundary_values, hybrid_model
from aotc.graph.view import GraphView, every_node, op_of
from aotc.session.inference import with_types
from aotc.spec.providers import EP_CONTEXT

node = partial(model_parts.node, name="node_{output}")

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
OPSET = 18


def info(name: str, kind: int = FLOAT, shape: Sequence[int | str] = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def extract(
    model: onnx.ModelProto, graph: GraphView, nodes: Sequence[int], name: str
) -> onnx.ModelProto:
    return Extractor(model, graph).extract(nodes, name)


def typed_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    constants: Sequence[onnx.TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model with the types of all values."""
    stated = {value.name: value for value in inputs}
    made = model_parts.model_of(
        nodes,
        inputs,
        [stated.get(name, onnx.ValueInfoProto(name=name)) for name in outputs],
        constants,
        opset=OPSET,
        domains=sorted({function.domain for function in functions}),
        ir_version=9,
        functions=functions,
    )
    return with_types(made, Path())


def run(
    model: onnx.ModelProto, values: Mapping[str, Any], wanted: Sequence[str] = ()
) -> dict[str, Any]:
    """Outputs of a session with all optimizations off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = list(wanted) or [value.name for value in session.get_outputs()]
    given_ = {value.name: values[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, given_), strict=True))


def run_parts(
    model: onnx.ModelProto, graph: GraphView, parts: Sequence[Part], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Run each part as its own model, in order, with the outputs of those before it."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values |= inputs
    for number, part in enumerate(parts):
        inside, outside = boundary_values(graph, part.nodes)
        extracted = extract(model, graph, part.nodes, f"part{number}")
        assert [value.name for value in extracted.graph.input] == list(inside)
        assert [value.name for value in extracted.graph.output] == list(outside)
        values |= run(extracted, values)
    return {name: values[name] for name in graph.outputs}


def assert_same(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    assert list(expected) == list(found)
    for name, value in expected.items():
        np.testing.assert_array_equal(value, found[name], err_msg=name)


def divided(model: onnx.ModelProto, taken: Callable[[int], bool]) -> list[Part]:
    """Parts: `a` gets the nodes at some indices, `b` the others, each with their subgraphs."""
    graph = GraphView(model.graph)
    first = {node.name for index, node in enumerate(graph.nodes) if taken(index)}
    first |= {node.name for body in graph.bodies if body.owner in first for node in body.nodes}
    names = frozenset(node.name for node in every_node(model.graph))
    found, missing = assign(graph, [("a", frozenset(first)), ("b", names)], Rules())
    assert missing == ()
    return list(found.parts)


def check(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> None:
    """Extract every single node, all but one, and every second one, and compare the answers."""
    graph = GraphView(model.graph)
    expected = run(model, inputs)
    count = len(graph.nodes)
    singles = [Part("a", index, (index,)) for index in range(count)]
    divisions = [singles, divided(model, lambda index: bool(index % 2))]
    divisions += [divided(model, lambda index, out=out: index != out) for out in range(count)]
    for parts in divisions:
        assert_same(expected, run_parts(model, graph, parts, inputs))
        assert_hybrid(model, graph, parts)
        assert_undivided(model, graph, parts, inputs, expected)


def assert_hybrid(model: onnx.ModelProto, graph: GraphView, parts: Sequence[Part]) -> None:
    """With the parts of `a` as EPContext nodes, the graph is valid and its signature the same."""
    chosen = {
        index: (f"context{index}", {"embed_mode": 0, "ep_cache_context": f"{index}.bin"})
        for index, part in enumerate(parts)
        if part.provider == "a"
    }
    made = hybrid_model(model, graph, parts, chosen, {"SomeProvider": "1;2"} if chosen else {})
    onnx.checker.check_model(made)
    assert list(made.graph.input) == list(model.graph.input)
    assert list(made.graph.output) == list(model.graph.output)
    contexts = {node.name: node for node in made.graph.node if node.op_type == EP_CONTEXT}
    assert set(contexts) == {name for name, _ in chosen.values()}
    stated = {value.name for value in (*made.graph.value_info, *made.graph.output)}
    for index, (name, _) in chosen.items():
        read, written = boundary_values(graph, parts[index].nodes)
        assert (list(contexts[name].input), list(contexts[name].output)) == (
            list(read),
            list(written),
        )
        assert stated.issuperset(written)
    made_there = {value for node in made.graph.node for value in node.output}
    assert {value.name for value in made.graph.value_info} <= made_there
    if chosen:
        assert {p.key: p.value for p in made.metadata_props} == {
            "ep_compatibility_info.SomeProvider": "1;2"
        }


def assert_undivided(
    model: onnx.ModelProto,
    graph: GraphView,
    parts: Sequence[Part],
    inputs: Mapping[str, Any],
    expected: Mapping[str, Any],
) -> None:
    """With nothing compiled, the hybrid graph is the model, except for the order of its nodes."""
    made = hybrid_model(model, graph, parts, {}, {})
    assert sorted(n.name for n in made.graph.node) == sorted(n.name for n in model.graph.node)
    assert_same(expected, run(made, inputs))


def x_of(seed: int = 0, shape: Sequence[int] = (2, 3)) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_chain_with_constants_that_several_parts_read() -> None:
    model = typed_model(
        [
            node("Add", ["x", "w"], "a"),
            node("Mul", ["a", "w"], "b"),
            node("Sub", ["b", "v"], "c"),
            node("Mul", ["c", "w"], "y"),
        ],
        [info("x")],
        ["y"],
        [constant("w", x_of(1)), constant("v", x_of(2)), constant("idle", x_of(3))],
    )
    check(model, {"x": x_of()})
    graph = GraphView(model.graph)
    kept = [tensor.name for tensor in extract(model, graph, [1, 2], "p").graph.initializer]
    assert kept == ["w", "v"]


def test_an_output_that_is_also_read_inside() -> None:
    model = typed_model(
        [node("Relu", ["x"], "a"), node("Neg", ["a"], "b"), node("Add", ["a", "b"], "c")],
        [info("x")],
        ["b", "a", "c"],
    )
    check(model, {"x": x_of()})
    assert boundary_values(GraphView(model.graph), (0, 1, 2)) == (("x",), ("a", "b", "c"))


def test_an_input_that_is_directly_an_output() -> None:
    model = typed_model([node("Relu", ["x"], "y")], [info("x"), info("z")], ["z", "y", "x"])
    check(model, {"x": x_of(), "z": x_of(1)})


def test_an_output_that_is_a_constant() -> None:
    model = typed_model([node("Relu", ["x"], "y")], [info("x")], ["y"], [constant("w", x_of(4))])
    model.graph.output.append(info("w"))
    check(model, {"x": x_of()})


def test_many_outputs_and_absent_values() -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["s", "r", "t"], name="split", axis=1, num_outputs=3),
        helper.make_node("Clip", ["s", "", "most"], ["c"], name="clip"),
        helper.make_node("Unsqueeze", ["c", "axis"], ["u"], name="unsqueeze"),
        helper.make_node("LSTM", ["u", "W", "R"], ["", "h"], name="lstm", hidden_size=2),
        node("ReduceSum", ["h"], "k", keepdims=0),
        node("Add", ["k", "t"], "y"),
    ]
    weights = np.random.default_rng(8).standard_normal((1, 8, 3)).astype(np.float32)
    model = typed_model(
        nodes,
        [info("x")],
        ["y"],
        [
            constant("most", np.float32(0.1)),
            constant("axis", np.array([0], np.int64)),
            constant("W", weights[:, :, :1]),
            constant("R", weights[:, :, 1:]),
        ],
    )
    check(model, {"x": x_of()})
    assert boundary_values(GraphView(model.graph), (0,)) == (("x",), ("s", "t"))


def test_a_value_read_twice_by_one_node() -> None:
    model = typed_model(
        [node("Relu", ["x"], "a"), node("Mul", ["a", "a"], "y")], [info("x")], ["y"]
    )
    check(model, {"x": x_of()})
    assert boundary_values(GraphView(model.graph), (1,)) == (("a",), ("y",))


def condition() -> list[onnx.NodeProto]:
    return [
        node("ReduceSum", ["x"], "total", keepdims=0),
        node("Greater", ["total", "zero"], "positive"),
    ]


def test_an_if_whose_subgraphs_read_values_and_constants_of_the_outer_graph() -> None:
    then = helper.make_graph(
        [helper.make_node("Add", ["a", "only_then"], ["t"], name="then_add")],
        "then",
        [],
        [info("t")],
    )
    inner = helper.make_graph(
        [helper.make_node("Mul", ["x", "deep"], ["i"], name="inner_mul")], "inner", [], [info("i")]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["b"], ["j"], name="inner_neg")], "other", [], [info("j")]
    )
    otherwise = helper.make_graph(
        [
            helper.make_node(
                "If", ["positive"], ["e"], name="inner_if", then_branch=inner, else_branch=other
            )
        ],
        "else",
        [],
        [info("e")],
    )
    model = typed_model(
        [
            *condition(),
            node("Relu", ["x"], "a"),
            node("Neg", ["x"], "b"),
            helper.make_node(
                "If", ["positive"], ["c"], name="if", then_branch=then, else_branch=otherwise
            ),
            node("Add", ["c", "a"], "y"),
        ],
        [info("x")],
        ["y"],
        [
            constant("zero", np.float32(0)),
            constant("only_then", x_of(5)),
            constant("deep", x_of(6)),
        ],
    )
    graph = GraphView(model.graph)
    assert set(graph.reads[4]) - graph.initializers == {"positive", "a", "b", "x"}
    assert set(graph.inside["if"]) == {"then_add", "inner_if", "inner_mul", "inner_neg"}
    bodies = {node.name: (body.owner, body.label) for body in graph.bodies for node in body.nodes}
    assert bodies["inner_mul"] == ("if", "inner_if.then_branch")
    for sign in (1, -1):
        check(model, {"x": sign * np.abs(x_of())})


def test_a_loop_and_a_scan() -> None:
    loop_body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "a"], ["next"], name="loop_add"),
            helper.make_node("Mul", ["next", "factor"], ["scaled"], name="loop_mul"),
            helper.make_node("Identity", ["going"], ["goes_on"], name="loop_on"),
        ],
        "loop_body",
        [info("round", INT64, []), info("going", BOOL, []), info("state")],
        [info("goes_on", BOOL, []), info("next"), info("scaled")],
    )
    scan_body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "row"], ["sum_out"], name="scan_add"),
            helper.make_node("Mul", ["sum_out", "shift"], ["row_out"], name="scan_mul"),
        ],
        "scan_body",
        [info("sum_in", shape=[3]), info("row", shape=[3])],
        [info("sum_out", shape=[3]), info("row_out", shape=[3])],
    )
    model = typed_model(
        [
            node("Relu", ["x"], "a"),
            helper.make_node(
                "Loop", ["rounds", "", "x"], ["l", "all"], name="loop", body=loop_body
            ),
            node("Abs", ["l"], "m"),
            helper.make_node(
                "Scan", ["start", "m"], ["end", "rows"], name="scan", body=scan_body,
                num_scan_inputs=1,
            ),
            node("Add", ["rows", "end"], "y"),
        ],
        [info("x")],
        ["y", "all"],
        [
            constant("rounds", np.int64(3)),
            constant("factor", np.float32(0.5)),
            constant("start", np.zeros(3, np.float32)),
            constant("shift", np.float32(2)),
        ],
    )  # fmt: skip
    check(model, {"x": x_of()})


def test_a_subgraph_that_returns_an_outer_value_unchanged() -> None:
    """An If's branch may have no node at all: its output is a value of the outer graph."""
    then = helper.make_graph([], "then", [], [info("a")])
    otherwise = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["n"], name="neg")], "else", [], [info("n")]
    )
    model = typed_model(
        [
            *condition(),
            node("Relu", ["x"], "a"),
            helper.make_node(
                "If", ["positive"], ["c"], name="if", then_branch=then, else_branch=otherwise
            ),
            node("Add", ["c", "x"], "y"),
        ],
        [info("x")],
        ["y"],
        [constant("zero", np.float32(0))],
    )
    graph = GraphView(model.graph)
    assert set(graph.reads[3]) - graph.initializers == {"positive", "a"}
    assert boundary_values(graph, (3,))[0] == ("positive", "a")


def test_functions_of_the_model() -> None:
    function = helper.make_function(
        "own",
        "Twice",
        ["v"],
        ["w"],
        [helper.make_node("Add", ["v", "v"], ["w"])],
        [helper.make_opsetid("", OPSET)],
    )
    model = typed_model(
        [
            helper.make_node("Twice", ["x"], ["a"], name="twice", domain="own"),
            node("Neg", ["a"], "b"),
            helper.make_node("Twice", ["b"], ["y"], name="again", domain="own"),
        ],
        [info("x")],
        ["y"],
        functions=[function],
    )
    assert [op_of(node) for node in model.graph.node] == ["own::Twice", "Neg", "own::Twice"]
    check(model, {"x": x_of()})


def test_sparse_constants_are_not_inputs_and_stay() -> None:
    dense = constant("w", np.array([1.5, 2.5], np.float32))
    indices = constant("w_indices", np.array([0, 4], np.int64))
    sparse = helper.make_sparse_tensor(dense, indices, [2, 3])
    model = typed_model([node("Relu", ["x"], "a")], [info("x")], ["a"])
    model.graph.sparse_initializer.append(sparse)
    model.graph.node.append(node("Add", ["a", "w"], "y"))
    model.graph.output.append(info("y"))
    graph = GraphView(model.graph)
    assert boundary_values(graph, (1,)) == (("a",), ("y",))
    extracted = extract(model, graph, (1,), "p")
    assert [tensor.values.name for tensor in extracted.graph.sparse_initializer] == ["w"]
    assert not extract(model, graph, (0,), "p").graph.sparse_initializer


def test_external_data_stays_where_it_is() -> None:
    weight = constant("w", x_of(7))
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "64"), ("length", "24")):
        weight.external_data.add(key=key, value=value)
    model = typed_model(
        [node("Relu", ["x"], "a"), node("Add", ["a", "w"], "y")], [info("x")], ["y"]
    )
    model.graph.initializer.append(weight)
    model = with_types(model, Path())
    (kept,) = extract(model, GraphView(model.graph), (1,), "p").graph.initializer
    assert kept == weight


def test_a_boundary_value_of_unknown_type_is_named() -> None:
    model = typed_model([node("Relu", ["x"], "a"), node("Neg", ["a"], "y")], [info("x")], ["y"])
    del model.graph.value_info[:]
    graph = GraphView(model.graph)
    with pytest.raises(ValueError, match="the type of 'a' is not known"):
        extract(model, graph, (1,), "p")
    context = {0: ("c", {"embed_mode": 0})}
    with pytest.raises(ValueError, match="the type of 'a' is not known"):
        hybrid_model(model, graph, [Part("a", 0, (0,)), Part("b", 1, (1,))], context, {})


def test_parts_in_a_wrong_order_are_noticed() -> None:
    model = typed_model([node("Relu", ["x"], "a"), node("Neg", ["a"], "y")], [info("x")], ["y"])
    parts = [Part("b", 1, (1,)), Part("a", 0, (0,))]
    with pytest.raises(RuntimeError, match="comes before its inputs"):
        hybrid_model(model, GraphView(model.graph), parts, {}, {})


BINARY = ("Add", "Sub", "Mul", "Max")
UNARY = ("Relu", "Neg", "Tanh", "Identity")


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Random graphs of small operators: two inputs, two constants, one to three outputs."""
    values = ["x", "z", "w", "v"]
    nodes = []
    for index in range(draw(st.integers(1, 10))):
        name = f"v{index}"
        if draw(st.booleans()):
            read = [draw(st.sampled_from(values)), draw(st.sampled_from(values))]
            nodes.append(node(draw(st.sampled_from(BINARY)), read, name))
        else:
            nodes.append(node(draw(st.sampled_from(UNARY)), [draw(st.sampled_from(values))], name))
        values.append(name)
    outputs = draw(st.lists(st.sampled_from(values[4:]), min_size=1, max_size=3, unique=True))
    if draw(st.booleans()):
        outputs.append("z")
    return typed_model(
        nodes,
        [info("x"), info("z")],
        outputs,
        [constant("w", x_of(1)), constant("v", x_of(2))],
    )


@settings(max_examples=25)
@given(models(), st.randoms(use_true_random=False))
def test_parts_of_random_graphs_compute_what_the_model_computes(
    model: onnx.ModelProto, random: Any
) -> None:
    graph = GraphView(model.graph)
    inputs = {"x": x_of(), "z": x_of(9)}
    chosen = {index for index in range(len(graph.nodes)) if random.random() < 0.5}
    parts = divided(model, chosen.__contains__)
    expected = run(model, inputs)
    live = [part for part in parts if boundary_values(graph, part.nodes)[1]]
    assert_same(expected, run_parts(model, graph, live, inputs))
    assert_hybrid(model, graph, live)
    assert_undivided(model, graph, parts, inputs, expected)
