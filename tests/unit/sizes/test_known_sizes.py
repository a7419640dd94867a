"""Sizes of free dims that weights determine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_values import value
from model_parts import node
from onnx import TensorProto, helper, numpy_helper

from aotc.sizes.dim_hints import hints_on, known_sizes

Shape = tuple[int | str, ...]


def graph(
    folder: Path, nodes: Sequence[onnx.NodeProto], weights: Mapping[str, tuple[int, ...]]
) -> Path:
    """A file with `nodes` and zero `weights`; tests state its inputs separately."""
    made = helper.make_graph(
        list(nodes),
        "held",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros(s, np.float32), name) for name, s in weights.items()],
    )
    path = folder / "held.onnx"
    path.write_bytes(helper.make_model(made).SerializeToString())
    return path


@pytest.mark.parametrize(
    ("shape", "nodes", "weights", "known"),
    [
        (("n", "c", "h", "w"), [node("Conv", "x k")], {"k": (8, 3, 4, 4)}, {"c": 3}),
        (("n", "c", "t"), [node("Conv", "x k", group=4)], {"k": (8, 2, 5)}, {"c": 8}),
        (("n", "t", "f"), [node("MatMul", "x m")], {"m": (6, 2)}, {"f": 6}),
        (("n", "f"), [node("Gemm", "x m", transB=1)], {"m": (2, 6)}, {"f": 6}),
        (("t", "n", "f"), [node("LSTM", "x g r")], {"g": (1, 8, 5), "r": (1, 8, 2)}, {"f": 5}),
        (("n", "f"), [node("MatMul", "x x")], {}, {}),
        (("n", 3, "h", "w"), [node("Conv", "x k")], {"k": (8, 3, 4, 4)}, {}),
    ],
)
def test_weights_hold_the_axis_beside_them(
    tmp_path: Path,
    shape: Shape,
    nodes: Sequence[onnx.NodeProto],
    weights: Mapping[str, tuple[int, ...]],
    known: Mapping[str, int],
) -> None:
    read = onnx.load(graph(tmp_path, nodes, weights)).graph
    assert known_sizes([value("x", *shape)], read) == known


def test_channels_are_known_through_what_keeps_or_turns_a_shape(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["a", "scale"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["c", "k"], ["y"]),
    ]
    path = graph(tmp_path, nodes, {"scale": (1,), "k": (8, 3, 4, 4)})
    hints = hints_on([value("x", "n", "h", "w", "c")], [], path)
    assert hints.known == {"c": 3}
    assert hints.images == (("h", "w"),)
