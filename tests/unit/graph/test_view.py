"""The view of a graph: its subgraphs, what they capture, who makes and reads values.

Where it must agree with ONNX Runtime on whose a name is, ONNX Runtime is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import model_parts
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from model_parts import constant, info, model_of
from onnx import AttributeProto, TensorProto, helper

from aotc.graph.model import tensors
from aotc.graph.partition.assignment import Assignment
from aotc.graph.partition.division import transferred_values
from aotc.graph.passes.base import all_names, drop_unread, rename_captured, set_nodes
from aotc.graph.passes.on_import import StripMetadata
from aotc.graph.passes.same_sign_weights import saturating_operands
from aotc.graph.view import (
    GraphView,
    Links,
    NodeLinks,
    attribute_of,
    captured_by,
    covered_nodes,
    every_graph,
    every_node,
    has_subgraphs,
    inner_graphs,
    named_subgraphs,
    standing_for,
    subgraphs,
)
from aotc.precision.half_conversion import interface_elements
from aotc.precision.kernel_rates import rates_of
from aotc.precision.quantize import scopes_of
from aotc.precision.quantized_nodes import Observed, ProductTimes, Weighing, Weighs
from aotc.session.inference import with_types
from aotc.session.sessions import create_session
from aotc.sizes.inputs.flow import Flow
from aotc.spec.providers import CPU
from aotc.spec.variant import SessionSpec

node = partial(model_parts.node, name="{output}")
X = np.array([1, 2], np.float32)


def body(
    nodes: Sequence[onnx.NodeProto], output: str, constants: Sequence[onnx.TensorProto] = ()
) -> onnx.GraphProto:
    return helper.make_graph(nodes, "body", [], [info(output, [2])], constants)


def choice(
    then: onnx.GraphProto,
    before: Sequence[onnx.NodeProto] = (),
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """An `If` named `y`, of the input `x` and the condition `c`, which makes the output `y`."""
    other = body([node("Neg", "x", "e")], "e")
    return model_of(
        [*before, node("If", "c", "y", then_branch=then, else_branch=other)],
        [info("x", [2]), info("c", [], TensorProto.BOOL)],
        [info("y", [2])],
        constants,
        opset=18,
    )


def answer(model: onnx.ModelProto) -> list[float]:
    session = create_session(
        model.SerializeToString(),
        SessionSpec(optimization="disable"),
        providers=[CPU],
        weights_folder=Path(),
    )
    (found,) = session.run(None, {"x": X, "c": np.array(True)})
    return [float(number) for number in found]


def why_ort_refuses(model: onnx.ModelProto) -> str:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(Exception, match="INVALID_GRAPH") as refused:
        ort.InferenceSession(model.SerializeToString(), options, providers=[CPU])
    return str(refused.value)


def nested() -> onnx.ModelProto:
    """An `If` in a branch of an `If`, which reads values of both graphs around it."""
    deep = body([node("Add", "b first", "d")], "d")
    flat = body([node("Neg", "b", "f")], "f")
    middle = [node("Tanh", "first", "b"), node("If", "c", "i", then_branch=deep, else_branch=flat)]
    return choice(body(middle, "i"), [node("Relu", "x", "first")])


def sparse(name: str) -> onnx.SparseTensorProto:
    """The vector 0, 5."""
    return helper.make_sparse_tensor(
        constant(name, [5], np.float32), constant(f"{name}_at", [1], np.int64), [2]
    )


# The order of what is walked.


def test_outer_graphs_come_before_inner_ones() -> None:
    model = nested()
    assert [path for path, _ in inner_graphs(model)] == [
        "/y.else_branch",
        "/y.then_branch",
        "/y.then_branch/i.else_branch",
        "/y.then_branch/i.then_branch",
    ]
    names = ["first", "y", "e", "b", "i", "f", "d"]
    assert [each.name for each in every_node(model)] == names
    assert [each.name for each in every_node(model.graph)] == names
    assert [each.name for each in every_node(model.graph.node[1])] == names[1:]
    assert GraphView(model.graph).inside == {"y": names[2:]}


def test_functions_come_after_the_main_graph_and_before_all_subgraphs() -> None:
    model = choice(body([node("Abs", "x", "t")], "t"))
    inside = node("If", "c", "r", then_branch=body([node("Abs", "q", "own")], "own"))
    model.functions.append(helper.make_function("own", "F", ["q", "c"], ["r"], [inside], []))
    assert [each.name for each in every_node(model)] == ["y", "r", "e", "t", "own"]
    assert [path for path, _ in inner_graphs(model)][-1] == "own::F/r.then_branch"
    assert len(list(every_graph(model))) == 4


def test_nodes_may_be_replaced_until_the_next_graph_is_asked_for() -> None:
    model = nested()
    for graph in every_graph(model):
        set_nodes(graph, [*graph.node, helper.make_node("Abs", ["x"], [], "more")])
    assert [each.name for each in every_node(model)].count("more") == 5


def test_many_nodes_and_deep_subgraphs_are_walked_without_recursion() -> None:
    count = 30_000
    chain = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(count)]
    links = NodeLinks(chain)
    assert links.behind([f"v{count}"]) == (list(range(count)), ())
    assert links.behind([f"v{count}"], {"v7"}) == (list(range(7, count)), ("v7",))
    deepest = body([node("Abs", "x", "t0")], "t0")
    for depth in range(1, 30):
        holder = node("If", "c", f"t{depth}", then_branch=deepest)
        deepest = body([holder], f"t{depth}")
    model = choice(deepest)
    assert len(list(inner_graphs(model))) == 31
    assert NodeLinks(model.graph.node).reads == [("c", "x")]


# Attributes that hold graphs.


def add_list(model: onnx.ModelProto, kind: int) -> None:
    (attribute,) = (a for a in model.graph.node[-1].attribute if a.name == "then_branch")
    attribute.graphs.append(body([node("Abs", "x", "listed")], "listed"))
    attribute.type = kind  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [AttributeProto.GRAPH, AttributeProto.GRAPHS])
def test_an_attribute_with_a_graph_and_a_list_holds_all_of_them(kind: int) -> None:
    """ONNX Runtime refuses it, so that it makes no difference to what is run."""
    model = choice(body([node("Abs", "x", "t")], "t"))
    add_list(model, kind)
    holder = model.graph.node[-1]
    names = [name for name, _ in named_subgraphs(holder)]
    assert names == ["else_branch", "then_branch", "then_branch[0]"]
    assert GraphView(model.graph).inside == {"y": ["e", "t", "listed"]}
    assert "then_branch" in why_ort_refuses(model)


def test_a_list_of_graphs_alone_makes_control_flow() -> None:
    holder = helper.make_node("Any", ["x"], ["y"], "any", domain="own")
    bodies = [body([node("Add", "x z", f"t{i}")], f"t{i}") for i in range(2)]
    holder.attribute.append(helper.make_attribute("bodies", bodies))
    model = model_of([node("Relu", "x", "z"), holder], [info("x", [2])], [info("y", [2])])
    assert has_subgraphs(holder)
    assert [name for name, _ in named_subgraphs(holder)] == ["bodies[0]", "bodies[1]"]
    assert NodeLinks(model.graph.node).reads == [("x",), ("x", "z")]
    # Each of the list has a scope of its own.
    assert {"1.bodies[0]/t0", "1.bodies[1]/t1"} <= {
        value for site, _ in Flow(model).consumers["z"] for value in site.outputs
    }


# Whose a name is.


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_constant_of_a_body_hides_a_value_around_it(kind: str) -> None:
    then = body([node("Add", "x v", "t")], "t")
    if kind == "dense":
        then.initializer.append(constant("v", [0, 5], np.float32))
    else:
        then.sparse_initializer.append(sparse("v"))
    model = choice(then, [node("Neg", "x", "v")])
    assert answer(model) == [1, 7]
    holder = model.graph.node[-1]
    assert captured_by(holder) == ["x", "x"]
    view = GraphView(model.graph)
    assert view.readers["x"] == [0, 1]
    assert "v" not in view.readers
    assert ["v" in each.initializers for each in view.bodies] == [False, True]
    providers = {"v": "gpu", "y": "gpu", "e": "gpu", "t": "cpu"}
    placed = Assignment((), providers, {})
    moved = transferred_values(view, placed, {"gpu": "gpu", "cpu": "cpu"})
    assert "v" not in {value for value, _, _ in moved}
    # It keeps its name where the one around it gets another.
    rename_captured(holder, {"v": "w", "x": "z"})
    assert [list(each.node[0].input) for each in subgraphs(holder)] == [["z"], ["z", "v"]]


def test_a_sparse_constant_of_a_body_is_not_the_dense_one_around_it() -> None:
    """Neither where weights are quantized nor where they get another sign."""
    product = node("MatMulInteger", "q w", "i")
    then = body([product, node("Cast", "i", "t", to=TensorProto.FLOAT)], "t")
    before = [node("Cast", "x", "q", to=TensorProto.UINT8)]
    model = choice(then, before, [constant("w", [127, -128], np.int8)])
    (outer,) = saturating_operands(model)
    assert outer.weights is not None
    assert [scope.constant("w") is None for scope in scopes_of(model.graph)] == [False] * 3
    values = constant("w", [1], np.int8)
    where = constant("w_at", [1], np.int64)
    held = subgraphs(model.graph.node[-1])[1]
    held.sparse_initializer.append(helper.make_sparse_tensor(values, where, [2]))
    (inner,) = saturating_operands(model)
    assert inner.weights is None
    assert [scope.constant("w") is None for scope in scopes_of(model.graph)] == [False, False, True]


@pytest.mark.parametrize(
    ("then", "before", "constants", "why"),
    [
        ([node("Abs", "x", "v"), node("Neg", "v", "t")], [node("Neg", "x", "v")], [], "SSA"),
        ([node("Abs", "x", "v"), node("Neg", "v", "t")], [], ["v"], "SSA"),
        ([node("Neg", "v", "t"), node("Abs", "x", "v")], [], [], "topologically sorted"),
    ],
    ids=["what a node makes", "an initializer", "what comes later"],
)
def test_what_a_node_of_a_body_makes_is_the_bodys_own(
    then: Sequence[onnx.NodeProto],
    before: Sequence[onnx.NodeProto],
    constants: Sequence[str],
    why: str,
) -> None:
    """ONNX Runtime refuses a name twice, and one before it is made: so none is captured."""
    tensors = [constant(name, X) for name in constants]
    model = choice(body(then, "t"), before, tensors)
    assert why in why_ort_refuses(model)
    assert captured_by(model.graph.node[-1]) == ["x", "x"]


def test_what_a_body_passes_on_is_captured() -> None:
    model = choice(body([], "v"), [node("Neg", "x", "v")])
    assert captured_by(model.graph.node[-1]) == ["x", "v"]


def test_inputs_and_outputs_of_nodes_in_subgraphs() -> None:
    graph = GraphView(with_types(nested(), Path()).graph)
    assert {each.name: list(each.input) for part in graph.bodies for each in part.nodes} == {
        "b": ["first"],
        "i": ["c"],
        "d": ["b", "first"],
        "f": ["b"],
        "e": ["x"],
    }
    assert graph.reads == [("x",), ("c", "x", "first")]
    assert graph.captured == {1: frozenset({"c", "first", "x"})}
    assert {(each.label, each.holder, each.owner) for each in graph.bodies} == {
        ("y.then_branch", "y", "y"),
        ("y.else_branch", "y", "y"),
        ("i.then_branch", "i", "y"),
        ("i.else_branch", "i", "y"),
    }
    assert [each.around is graph for each in graph.bodies] == [True, True, False, False]
    assert graph.element_types["d"] == graph.element_types["i"] == "float"


# Who makes and reads values.


def test_links_of_names_alone() -> None:
    links = Links([["x", "w", "x"], ["a", ""], ["a", "b"]], [["a", ""], ["b"], ["y"]])
    assert links.reads == [("x", "w"), ("a",), ("a", "b")]
    assert links.makes == [("a",), ("b",), ("y",)]
    assert links.producers == {"a": 0, "b": 1, "y": 2}
    assert links.readers == {"x": [0], "w": [0], "a": [1, 2], "b": [2]}
    assert links.before == [[], [0], [0, 1]]
    assert links.behind(["y"], {"a"}) == ([1, 2], ("a",))
    assert links.behind(["a"], {"a", "w", "x"}) == ([0], ("x", "w"))
    assert links.behind(["", "x", "unknown"]) == ([], ())


def test_attributes_have_defaults_and_text_is_text() -> None:
    made = node("Any", "x", "y", mode="linear", axis=2)
    assert attribute_of(made, "mode", "") == "linear"
    assert (attribute_of(made, "axis", 0), attribute_of(made, "other", 7)) == (2, 7)


def test_an_input_that_a_body_reads_is_read_as_it_is() -> None:
    """Not only in the type to which a Cast makes it: the `If` reads it too."""
    half = node("Cast", "x", "h", to=TensorProto.FLOAT16)
    model = choice(body([node("Abs", "x", "t")], "t"), [half])
    assert TensorProto.FLOAT in interface_elements(model.graph)


def test_a_value_that_a_body_reads_is_dequantized_for_it() -> None:
    """Two products in integers, whose value between them a body reads in float32, if one does."""
    weights = [constant(name, np.ones((2, 2)), np.float32) for name in ("w", "v")]
    products = [node("MatMul", "x w", "a"), node("MatMul", "a v", "b")]
    observed = {name: Observed(bounds=(-1, 1), shape=(1024, 1024)) for name in ("x", "a", "b")}

    def conversions(read: str) -> int:
        model = choice(body([node("Abs", read, "t")], "t"), products, weights)
        times = ProductTimes(model, observed, Weighs(rates_of(())))
        found = Weighing(model, observed, times).worth(["a", "b"])
        assert found.nodes == {"a", "b"}
        return found.boundaries

    assert (conversions("x"), conversions("a")) == (1, 2)


def test_what_stands_for_a_node_brings_what_its_bodies_capture() -> None:
    source = choice(body([node("Abs", "v", "t")], "t"), [node("Neg", "x", "v")])
    rewritten = choice(
        body([node("Abs", "v_half", "t")], "t"),
        [node("Neg", "x", "v"), node("Cast", "v", "v_half", to=TensorProto.FLOAT16)],
    )
    assert covered_nodes(source.graph, rewritten.graph)["v_half"] == ()
    assert standing_for(source.graph, rewritten.graph, ["y"]) == {"y", "v_half"}


def test_unread_initializers_are_dropped_in_all_graphs() -> None:
    then = body([node("Add", "x w", "t")], "t", [constant("unread", X), constant("kept", X)])
    model = choice(then, constants=[constant("w", X), constant("gone", X)])
    drop_unread(model, {"unread"})
    assert {tensor.name for tensor in tensors(model)} == {"w", "gone", "kept"}
    drop_unread(model)
    assert {tensor.name for tensor in tensors(model)} == {"w"}
    assert "t" in all_names(model)


def test_metadata_of_subgraphs_in_functions_goes_too() -> None:
    inside = node("If", "c", "r", name="own", then_branch=body([node("Abs", "q", "t")], "t"))
    model = choice(body([node("Abs", "x", "t")], "t"))
    model.functions.append(helper.make_function("own", "F", ["q", "c"], ["r"], [inside], []))
    for graph in every_graph(model):
        graph.doc_string = graph.output[0].doc_string = "of the exporter"
    StripMetadata().apply(model)
    assert not any(graph.doc_string or graph.output[0].doc_string for graph in every_graph(model))
