"""The memory plan of graphs as ONNX Runtime loads them, beside what it then uses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from planned_memory import BothWays, both_ways

from aotc.host.probe import probe
from aotc.pipeline import memory_plan
from aotc.pipeline.memory_plan import planned
from aotc.session import sessions
from aotc.spec.shapes import Domain

FLOAT = TensorProto.FLOAT


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    made = helper.make_model(graph, ir_version=10, opset_imports=opsets)
    return onnx.shape_inference.infer_shapes(made)


def attention(width: int = 32) -> onnx.ModelProto:
    """Scores of each row with each other, whose memory grows with the square of the rows."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["shares"]),
        node("MatMul", ["shares", "q"], ["mixed"]),
        node("Add", ["mixed", "x"], ["y"]),
    ]
    weights = {"w": np.random.default_rng(1).random((width, width), np.float32)}
    return model(nodes, {"x": ["batch", "seq", width]}, ["y"], weights)


def require_equal(found: BothWays) -> None:
    assert not found.plan.why_not
    assert not found.observed.why_not
    for run, peak, first in found.pairs():
        assert run.peak_bytes == peak, run.sizes
        assert run.first_bytes == first, run.sizes


def test_a_plan_is_what_onnx_runtime_then_uses(tmp_path: Path) -> None:
    found = both_ways(attention(), {"batch": (1, 2, 4), "seq": (8, 64, 300)}, tmp_path)
    require_equal(found)
    plan = found.plan
    assert plan.mapped_bytes == plan.packed_bytes == 32 * 32 * 4
    assert plan.in_place == 1
    largest = next(run for run in plan.at if run.sizes == {"batch": 4, "seq": 300})
    # The transposition is fused into the product.
    assert largest.asked_bytes == 4 * 4 * (3 * 300 * 32 + 2 * 300 * 300)
    assert largest.arena_bytes >= largest.peak_bytes > largest.live_bytes


def test_calls_that_were_observed_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counting(session: Any, inputs: Mapping[str, Any], outputs: list[str]) -> Any:
        made.append(inputs["x"].shape[1])
        return sessions.run(session, inputs, outputs)

    monkeypatch.setattr(memory_plan, "run", counting)
    plans = []
    for shares in (True, False):
        folder = tmp_path / str(shares)
        folder.mkdir()
        plans.append(both_ways(attention(), {"seq": (8, 64, 300)}, folder, shares=shares).plan)
        assert made == ([] if shares else [8, 64, 300])
    assert plans[0] == plans[1]


def test_a_size_that_was_not_run_has_the_figure_that_it_would_have(tmp_path: Path) -> None:
    plan = both_ways(attention(), {"batch": (1, 2, 4), "seq": (8, 64, 300)}, tmp_path).plan
    tried = {tuple(run.sizes.values()) for run in plan.at}
    assert [tuple(point.sizes.values()) for point in plan.curve][::4] == [
        (1, 8),
        (3, 154),
        (4, 300),
    ]
    other = next(p for p in plan.curve if tuple(p.sizes.values()) not in tried)
    sizes = other.sizes
    again = tmp_path / "again"
    again.mkdir()
    at = {name: (size, size, size) for name, size in sizes.items()}
    ((run, peak, _), *_) = both_ways(attention(), at, again).pairs()
    assert other.bytes == run.peak_bytes == peak


def test_live_memory_is_a_sum_of_products_of_dims(tmp_path: Path) -> None:
    plan = both_ways(attention(), {"batch": (1, 2, 4), "seq": (8, 64, 300)}, tmp_path).plan
    terms = {term.dims: term.bytes for term in plan.live}
    # The queries, what they are multiplied with, and the scores of each row with each.
    assert terms == {("batch", "seq", "seq"): 4, ("batch", "seq"): 2 * 4 * 32}
    largest = next(run for run in plan.at if run.sizes == {"batch": 4, "seq": 300})
    assert largest.live_bytes == 4 * (4 * 300 * 300 + 2 * 4 * 32 * 300)
    assert (largest.op, plan.unknown) == ("MatMul", 0)


def test_the_curve_has_the_first_size_above_a_limit(tmp_path: Path) -> None:
    made = model([helper.make_node("Exp", ["x"], ["y"])], {"x": ["rows", 64]}, ["y"])
    # A row takes 256 bytes; chunks of less than half a region are as large as what they hold.
    plan = both_ways(made, {"rows": (1, 2, 2000)}, tmp_path, limit=256 * 777).plan
    above = [point for point in plan.curve if point.bytes > 256 * 777]
    assert above[0].sizes == {"rows": 778}
    assert [point.sizes["rows"] for point in plan.curve] == sorted(
        point.sizes["rows"] for point in plan.curve
    )


def test_a_plan_that_is_below_what_was_seen_meets_a_limit_earlier(tmp_path: Path) -> None:
    made = model([helper.make_node("Exp", ["x"], ["y"])], {"x": ["rows", 64]}, ["y"])
    seen = {"max": 2 * 256 * 2000, "min": 256}
    plan = both_ways(made, {"rows": (1, 2, 2000)}, tmp_path, limit=256 * 777, seen=seen).plan
    above = [point for point in plan.curve if 2 * point.bytes > 256 * 777]
    assert above[0].sizes == {"rows": 389}


def random_model(seed: int) -> onnx.ModelProto:
    """Up to eleven nodes that repeat, join and cut, so that buffers have many sizes."""
    draw = random.Random(seed)
    lengths, nodes, weights = {"x": 64}, [], {"zero": np.array([0])}
    for at in range(draw.randint(6, 11)):
        one, other = draw.choice(list(lengths)[-4:]), draw.choice(list(lengths)[-4:])
        made, number = f"v{at}", f"k{at}"
        match draw.choice(("Tile", "Concat", "Slice")):
            case "Tile":
                weights[number] = np.array([draw.choice((1, 2, 3))])
                node = helper.make_node("Tile", [one, number], [made])
                lengths[made] = lengths[one] * int(weights[number][0])
            case "Concat":
                node = helper.make_node("Concat", [one, other], [made], axis=0)
                lengths[made] = lengths[one] + lengths[other]
            case _:
                lengths[made] = max(1, int(lengths[one] * draw.choice((0.3, 0.5, 0.8))))
                weights[number] = np.array([lengths[made]])
                node = helper.make_node("Slice", [one, "zero", number], [made])
        nodes.append(node)
    read = {name for each in nodes for name in each.input}
    ends = [name for name in lengths if name not in read and name != "x"]
    nodes.append(helper.make_node("Concat", ends, ["y"], axis=0))
    return model(nodes, {"x": ["rows"]}, ["y"], weights)


def test_patterns_of_random_graphs_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        require_equal(
            both_ways(random_model(seed), {"rows": (64, 64, 64)}, folder, level="disable")
        )


def test_convolutions_need_room_to_unfold(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    weights = {
        "w": draw.random((8, 3, 5, 5), np.float32),
        "v": draw.random((64, 8, 3, 3), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["y"], strides=[2, 2]),
    ]
    made = model(nodes, {"x": ["batch", 3, 64, 64]}, ["y"], weights)
    found = both_ways(made, {"batch": (1, 2, 4)}, tmp_path, level="basic")
    require_equal(found)
    assert all(run.workspace_bytes for run in found.plan.at)


# By filter: input channels, output channels, side, groups.
FILTERS = {
    "pointwise": (16, 64, 1, 1),
    "pointwise, not in fours": (6, 40, 1, 1),
    "of all channels": (16, 32, 3, 1),
    "few outputs": (16, 8, 3, 1),
    "of an image": (3, 32, 3, 1),
    "in groups": (16, 32, 3, 2),
    "of each channel": (48, 48, 3, 48),
    "of each channel, not in sixteens": (24, 24, 3, 24),
    "two of each channel": (16, 32, 3, 16),
}


def quantized(
    filters: tuple[int, int, int, int], data: type, weight: type, middle: int
) -> onnx.ModelProto:
    """One quantized convolution of images of 32 places a side, of weights about `middle`."""
    channels, count, side, group = filters
    draw = np.random.default_rng(3)
    kernel = draw.integers(0, 9, (count, channels // group, side, side)).astype(weight)
    zero = np.array(0 if data is np.int8 else 128, data)
    weights = {
        "xs": np.float32(0.1),
        "xz": zero,
        "w": kernel,
        "ws": np.full(count, 0.1, np.float32),
        "wz": np.full(count, middle, weight),
        "ys": np.float32(0.1),
        "yz": zero,
        "b": np.zeros(count, np.int32),
    }
    node = helper.make_node(
        "QLinearConv",
        ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"],
        ["y"],
        group=group,
        pads=[side // 2] * 4,
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(data))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, ["batch", channels, 32, 32])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    made = helper.make_model(graph, ir_version=10, opset_imports=opsets)
    return onnx.shape_inference.infer_shapes(made)


@pytest.mark.skipif(
    "avx2" not in (probe().isa or ()), reason="the rule is that of kernels for x86-64 with AVX2"
)
@pytest.mark.parametrize(
    "operands", [("u8", "u8", 0), ("u8", "s8", 0), ("s8", "s8", 0), ("u8", "s8", 3)]
)
@pytest.mark.parametrize("filters", FILTERS)
def test_quantized_convolutions_need_room_by_the_signs_of_their_operands(
    tmp_path: Path, filters: str, operands: tuple[str, str, int]
) -> None:
    kinds = {"u8": np.uint8, "s8": np.int8}
    data, weight, middle = kinds[operands[0]], kinds[operands[1]], operands[2]
    made = quantized(FILTERS[filters], data, weight, middle)
    found = both_ways(made, {"batch": (1, 2, 8)}, tmp_path)
    assert not found.observed.why_not
    for run, peak, _ in found.pairs():
        # A chunk may be split otherwise.
        assert abs(run.peak_bytes - peak) <= 1 << 10, run.sizes


def test_graphs_of_control_flow_are_planned_within_their_node(tmp_path: Path) -> None:
    def branch(name: str, *ops: str) -> onnx.GraphProto:
        names = ["a", *(f"{name}{at}" for at in range(len(ops)))]
        nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(ops)]
        out = helper.make_tensor_value_info(names[-1], FLOAT, ["batch", 512])
        return helper.make_graph(nodes, name, [], [out])

    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        helper.make_node("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        helper.make_node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch("then", "Sin", "Cos", "Exp", "Sqrt"),
            else_branch=branch("else", "Neg"),
        ),
    ]
    made = model(nodes, {"x": ["batch", 512]}, ["y"])
    found = both_ways(made, {"batch": (1, 64, 700)}, tmp_path, level="disable")
    require_equal(found)
    assert found.plan.values == 8


def test_a_graph_of_fixed_sizes_has_one_plan_and_no_curve(tmp_path: Path) -> None:
    made = model([helper.make_node("Exp", ["x"], ["y"])], {"x": [4, 4]}, ["y"])
    found = both_ways(made, {}, tmp_path)
    require_equal(found)
    assert len(found.plan.at) == 1
    assert found.plan.curve == ()


def test_nodes_of_other_providers_have_no_plan(tmp_path: Path) -> None:
    request = {"providers": ["OpenVINOExecutionProvider", "CPUExecutionProvider"]}
    plan = planned({**request, "contexts": False}, [], Domain(), [])
    assert plan.elsewhere
    assert plan.why_not == (
        "plans are made of nodes that the CPU provider or CUDA runs, and of no others"
    )
