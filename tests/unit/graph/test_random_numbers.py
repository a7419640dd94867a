"""Nodes that draw random numbers are found wherever they are, with what depends on them."""

from __future__ import annotations

import pytest
from model_parts import info, model_of, node
from onnx import TensorProto, helper

from aotc.graph.model import dependent_outputs, draws

BOOL = TensorProto.BOOL


@pytest.mark.parametrize("order", [1, -1])
def test_outputs_behind_a_draw(order: int) -> None:
    """In any order of nodes, as ONNX Runtime accepts them."""
    nodes = [
        node("RandomNormalLike", "x", "r", "one", seed=7.0),
        node("RandomUniformLike", "x", "s", "two"),
        node("RandomUniformLike", "x", "t", "idle"),
        node("Add", "r x", "a"),
        node("Add", "a s", "b"),
        node("Neg", "b", "c"),
        node("Neg", "x", "d"),
    ][::order]
    dims = {name: ["n"] for name in "acdr"}
    model = model_of(nodes, {"x": ["n"]}, dims)
    found = draws(model)
    behind = dependent_outputs(model, found)
    assert {draw.node.name: names for draw, names in zip(found, behind, strict=True)} == {
        "one": ("a", "c", "r"),
        "two": ("c",),
        "idle": (),
    }
    assert {draw.node.name: draw.seed for draw in found} == {"one": 7, "two": None, "idle": None}


def test_a_graph_in_a_circle_comes_to_an_end() -> None:
    nodes = [node("Add", "r b", "a"), node("Neg", "a", "b"), node("RandomNormalLike", "x", "r")]
    model = model_of(nodes, {"x": ["n"]}, {"a": ["n"]})
    assert dependent_outputs(model, draws(model)) == [("a",)]


def test_what_is_in_control_flow_belongs_to_the_node_that_holds_it() -> None:
    inner = helper.make_graph(
        [node("RandomNormalLike", "x", "r", "deep")], "inner", [], [info("r", None)]
    )
    other = helper.make_graph([node("Neg", "x", "n")], "other", [], [info("n", None)])
    loop = helper.make_graph(
        [node("If", "go", "v", then_branch=inner, else_branch=other), node("Identity", "go", "on")],
        "loop",
        [info("at", [], TensorProto.INT64), info("go", [], BOOL)],
        [info("on", [], BOOL), info("v", None)],
    )
    model = model_of(
        [node("Loop", "- flag", "w", body=loop), node("Neg", "w", "y")],
        [info("x", ["n"]), info("flag", [], BOOL)],
        [info("y", None)],
    )
    (found,) = draws(model)
    assert (found.owner, found.holders) == (0, ("Loop", "If"))
    assert dependent_outputs(model, [found]) == [("y",)]


@pytest.mark.parametrize(
    ("switch", "draws_numbers"), [("", False), ("off", False), ("on", True), ("given", True)]
)
def test_dropout_draws_unless_it_never_trains(switch: str, draws_numbers: bool) -> None:
    inputs = ["x", "ratio", switch] if switch else ["x", "ratio"]
    model = model_of(
        [node("Dropout", inputs, "y", "drop", seed=3)],
        [info("x", ["n"]), info("given", [], BOOL)],
        [info("y", ["n"])],
        {"ratio": 0.5, "off": False, "on": True},
    )
    assert [draw.seed for draw in draws(model)] == ([3] if draws_numbers else [])


@pytest.mark.parametrize(
    ("seed", "taken"),
    [(0.0, 0), (1.9, 1), (-1.0, None), (2.0**32, None), (float("inf"), None), (float("nan"), None)],
)
def test_a_seed_is_one_that_every_machine_takes_alike(seed: float, taken: int | None) -> None:
    model = model_of([node("RandomNormalLike", "x", "y", seed=seed)], {"x": ["n"]}, {"y": ["n"]})
    assert [draw.seed for draw in draws(model)] == [taken]
