"""Rolled images and their windows: one Gather for what moves rows, and the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention_graphs import check_same, ops
from model_parts import info
from onnx import helper, numpy_helper

from aotc.graph.passes.fuse_for_cuda import fuse

HEIGHT, WIDTH, CHANNELS, SIDE = 6, 4, 8, 2
NAME = "gather-rolled-rows"
make = helper.make_node
Nodes = list[onnx.NodeProto]


def roll(source: str, result: str, axis: int, first: int) -> Nodes:
    """As torch's exporter writes it."""
    return [
        make("Slice", [source, f"n{first}", "end", f"n{axis}"], [f"{result}a"]),
        make("Slice", [source, "n0", f"n{first}", f"n{axis}"], [f"{result}b"]),
        make("Concat", [f"{result}a", f"{result}b"], [result], axis=axis),
    ]


# An image of rows, rolled along both sides and cut into windows.
TO_WINDOWS: Nodes = [
    make("Reshape", ["x", "image"], ["i"]),
    make("Pad", ["i", "nothing"], ["p"]),
    *roll("p", "r1", 1, 1),
    *roll("r1", "r2", 2, 3),
    make("Reshape", ["r2", "parted"], ["w"]),
    make("Transpose", ["w"], ["t"], perm=[0, 1, 3, 2, 4, 5]),
    make("Reshape", ["t", "windows"], ["y"]),
]
# And back.
TO_ROWS: Nodes = [
    make("Reshape", ["v", "together"], ["w2"]),
    make("Transpose", ["w2"], ["t2"], perm=[0, 1, 3, 2, 4, 5]),
    make("Reshape", ["t2", "image"], ["i2"]),
    *roll("i2", "r3", 1, 5),
    *roll("r3", "r4", 2, 1),
    make("Reshape", ["r4", "rows"], ["z"]),
]


def model_of(nodes: Nodes, output: str, **constants: Any) -> onnx.ModelProto:
    """From rows "x" of an image; a Gelu is what is fused besides."""
    held: dict[str, Any] = {
        "image": np.array([0, HEIGHT, WIDTH, CHANNELS]),
        "rows": np.array([0, HEIGHT * WIDTH, CHANNELS]),
        "parted": np.array([0, HEIGHT // SIDE, SIDE, WIDTH // SIDE, SIDE, CHANNELS]),
        "together": np.array([-1, HEIGHT // SIDE, WIDTH // SIDE, SIDE, SIDE, CHANNELS]),
        "windows": np.array([-1, SIDE * SIDE, CHANNELS]),
        "nothing": np.zeros(8, np.int64),
        "end": np.array([2**63 - 1]),
        **{f"n{number}": np.array([number]) for number in range(8)},
        **constants,
    }
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "rolled",
            [info("x", ["batch", HEIGHT * WIDTH, CHANNELS])],
            [helper.make_value_info(output, helper.make_tensor_type_proto(1, None))],
            [numpy_helper.from_array(np.asarray(item), name) for name, item in held.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def matched(model: onnx.ModelProto) -> dict[str, int]:
    records = fuse(model, Path())[1]
    return next((dict(one.matched) for one in records if one.name == NAME), {})


def checked(model: onnx.ModelProto) -> list[str]:
    """The operators of the fused model, after the same answers as before."""
    fused, _ = fuse(model, Path())
    for batch in (1, 3):
        shape = (batch, HEIGHT * WIDTH, CHANNELS)
        x = np.random.default_rng(batch).standard_normal(shape).astype(np.float32)
        check_same(model, fused, x=x)
    return ops(fused)


def test_windows_of_a_rolled_image_are_gathered() -> None:
    model = model_of(TO_WINDOWS, "y")
    assert matched(model) == {"pad": 1, "rolled": 1}
    assert not {"Slice", "Concat", "Transpose", "Pad"} & set(found := checked(model))
    assert found.count("Gather") == 1


def test_windows_that_go_back_are_gathered() -> None:
    between = make("Mul", ["y", "y"], ["v"])
    model = model_of([*TO_WINDOWS, between, *TO_ROWS], "z")
    assert matched(model) == {"pad": 1, "rolled": 2}
    assert not {"Slice", "Concat", "Transpose", "Pad"} & set(found := checked(model))
    assert found.count("Gather") == 2


def test_what_others_read_stays_and_the_rest_is_gathered() -> None:
    read = make("ReduceSum", ["r1"], ["s"], keepdims=0)
    model = model_of([*TO_WINDOWS, read, make("Add", ["y", "s"], ["q"])], "q")
    assert matched(model)["rolled"] >= 1
    checked(model)


LEFT: dict[str, tuple[Nodes, str]] = {
    "channels are rolled": ([make("Reshape", ["x", "image"], ["i"]), *roll("i", "y", 3, 1)], "y"),
    "the batch is rolled": ([make("Reshape", ["x", "image"], ["i"]), *roll("i", "y", 0, 1)], "y"),
    "nothing is rolled": (
        [
            make("Reshape", ["x", "parted"], ["w"]),
            make("Transpose", ["w"], ["t"], perm=[0, 1, 3, 2, 4, 5]),
            make("Reshape", ["t", "windows"], ["y"]),
        ],
        "y",
    ),
    "halves that are left out in part": (
        [
            make("Reshape", ["x", "image"], ["i"]),
            make("Slice", ["i", "n2", "end", "n1"], ["a"]),
            make("Slice", ["i", "n0", "n1", "n1"], ["b"]),
            make("Concat", ["a", "b"], ["y"], axis=1),
        ],
        "y",
    ),
    "halves of two images": (
        [
            make("Reshape", ["x", "image"], ["i"]),
            make("Neg", ["i"], ["j"]),
            make("Slice", ["i", "n2", "end", "n1"], ["a"]),
            make("Slice", ["j", "n0", "n2", "n1"], ["b"]),
            make("Concat", ["a", "b"], ["y"], axis=1),
        ],
        "y",
    ),
    "a pad of something": (
        [make("Reshape", ["x", "image"], ["i"]), make("Pad", ["i", "something"], ["y"])],
        "y",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_roll_of_rows_is_left(name: str) -> None:
    nodes, output = LEFT[name]
    model = model_of(nodes, output, something=np.array([0, 1, 0, 0, 0, 0, 0, 0]))
    assert matched(model) == {}
    checked(model)
