"""What decides an output: its kind, where the graph is cut, and what is no decision at all."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from model_parts import constant, info, model_of, node
from onnx import TensorProto, helper

from aotc.graph.decisions import Decision, Decisions

X = {"x": ["n", 4, 6]}
SCORES = node("Relu", "x", "scores")
SOME = constant("t", 0.5, np.float32)


def decided(
    nodes: list[onnx.NodeProto],
    kind: int = TensorProto.INT64,
    *constants: onnx.TensorProto,
    rank: int = 3,
) -> Decision | None:
    model = model_of([SCORES, *nodes], X, [info("y", [None] * rank, kind)], [SOME, *constants])
    return Decisions(model).by_output.get("y")


ARGMAX = node("ArgMax", "scores", "a", axis=1)
GREATER = node("Greater", "scores t", "g")


@pytest.mark.parametrize(
    ("nodes", "kind", "expected"),
    [
        ([node("ArgMax", "scores", axis=1)], TensorProto.INT64, "choice"),
        ([node("ArgMin", "scores", select_last_index=1)], TensorProto.INT64, "choice"),
        ([ARGMAX, node("Cast", "a", to=TensorProto.INT32)], TensorProto.INT32, "choice"),
        ([ARGMAX, node("Cast", "a", to=TensorProto.FLOAT)], TensorProto.FLOAT, "choice"),
        ([ARGMAX, node("Transpose", "a", perm=[2, 1, 0])], TensorProto.INT64, "choice"),
        ([GREATER, node("Not", "g")], TensorProto.BOOL, "threshold"),
        ([GREATER, node("Cast", "g", to=TensorProto.UINT8)], TensorProto.UINT8, "threshold"),
        ([GREATER, node("NonZero", "g")], TensorProto.INT64, "places"),
        ([node("Floor", "scores", "f"), node("Cast", "f", to=6)], TensorProto.INT32, "rounded"),
        ([node("Cast", "scores", to=TensorProto.INT8)], TensorProto.INT8, "rounded"),
        ([node("Round", "scores")], TensorProto.FLOAT, "rounded"),
        ([node("QuantizeLinear", "scores t")], TensorProto.UINT8, "rounded"),
        (
            [GREATER, node("Cast", "g", "i", to=TensorProto.INT64), node("ReduceSum", "i")],
            TensorProto.INT64,
            "count",
        ),
        ([node("Relu", "scores")], TensorProto.FLOAT, None),
        ([node("Shape", "scores")], TensorProto.INT64, None),
        ([node("Mul", "scores t")], TensorProto.FLOAT, None),
    ],
)
def test_the_kind_of_an_output_follows_from_the_graph(
    nodes: list[onnx.NodeProto], kind: int, expected: str | None
) -> None:
    found = decided(nodes, kind)
    assert (found.stated.kind if found else None) == expected


def test_scores_are_read_where_the_choice_reads_them() -> None:
    found = decided([ARGMAX, node("Cast", "a", to=TensorProto.INT32)], TensorProto.INT32)
    assert found is not None
    assert found.plain
    (choice,) = found.choices
    assert (choice.indices, choice.scores, choice.axis, choice.keeps_axis) == (
        "a", "scores", 1, True,
    )  # fmt: skip


def test_a_rounding_is_looked_through_to_what_it_rounds() -> None:
    """After it values are whole already: what they were decided by is before."""
    nodes = [
        node("Round", "scores", "r"),
        node("Clip", "r", "c"),
        node("Cast", "c", to=TensorProto.UINT8),
    ]
    found = decided(nodes, TensorProto.UINT8)
    assert found is not None
    assert found.floats == ("scores",)
    assert len(found.nodes) == 3


def test_places_are_listed_along_the_axis_that_the_graph_leaves_them() -> None:
    raw = decided([GREATER, node("NonZero", "g")], rank=2)
    turned = decided([GREATER, node("NonZero", "g", "z"), node("Transpose", "z")], rank=2)
    assert raw is not None
    assert turned is not None
    assert (raw.stated.axis, turned.stated.axis) == (1, 0)
    assert raw.target == turned.target == "g"


def test_indices_of_a_topk_are_ranks_and_its_values_are_floats() -> None:
    model = model_of(
        [SCORES, node("TopK", "scores k", "v y")],
        X,
        [info("v", [None] * 3), info("y", [None] * 3, TensorProto.INT64)],
        {"k": np.array([2])},
    )
    assert {name: each.kind for name, each in Decisions(model).stated.items()} == {"y": "ranking"}


def test_inside_of_control_flow_nothing_can_be_read() -> None:
    branch = helper.make_graph(
        [node("ArgMax", "scores", "b", axis=1)], "b", [], [info("b", None, TensorProto.INT64)]
    )
    nodes = [
        node("ReduceMax", "scores", "m", keepdims=0),
        node("Greater", "m t", "c"),
        node("If", "c", then_branch=branch, else_branch=branch),
    ]
    found = decided(nodes)
    assert found is not None
    assert found.stated.kind == "other"
    assert not found.read


def test_text_and_maps_are_not_decided_by_a_rule_of_numbers() -> None:
    model = model_of(
        [
            node(
                "LabelEncoder",
                "x",
                "t",
                domain="ai.onnx.ml",
                keys_floats=[1.0],
                values_strings=["a"],
            ),
            node(
                "LabelEncoder", "x", "i", domain="ai.onnx.ml", keys_floats=[1.0], values_int64s=[1]
            ),
        ],
        X,
        [info("t", None, TensorProto.STRING), info("i", None, TensorProto.INT64)],
    )
    assert {name: each.kind for name, each in Decisions(model).stated.items()} == {"i": "other"}


def test_whole_numbers_of_whole_numbers_are_decided_by_no_float() -> None:
    model = model_of(
        [node("Add", "x x")],
        [info("x", ["n"], TensorProto.INT64)],
        [info("y", ["n"], TensorProto.INT64)],
    )
    assert not Decisions(model).stated
