"""Half precision in bodies of control flow: casts around and in them, weights, and ranges."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import model_parts
import numpy as np
import onnx
import onnxruntime as ort
from model_parts import constant, info
from onnx import TensorProto, helper, numpy_helper
from openvino_models import model_of, weight

from aotc.graph.passes.base import run_passes
from aotc.graph.view import every_graph, every_node
from aotc.precision.half_conversion import HalfName, HalfPrecision, count_casts
from aotc.precision.half_ranges import LARGEST, observing_graph
from aotc.precision.half_twins import float_twin

node = partial(model_parts.node, name="n_{output}")

CUDA = "CUDAExecutionProvider"
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT
X = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)


def loop() -> onnx.ModelProto:
    """Three times: the state through a weight from around, plus one of the body's own and `a`."""
    body = helper.make_graph(
        [
            node("Identity", ["go"], "on"),
            node("MatMul", ["state", "w"], "product"),
            node("Add", ["product", "own"], "sum"),
            node("Add", ["sum", "a"], "next"),
        ],
        "body",
        [
            info("i", [], TensorProto.INT64),
            info("go", [], TensorProto.BOOL),
            info("state", ["n", 8]),
        ],
        [info("on", [], TensorProto.BOOL), info("next", ["n", 8])],
        [weight("own", 8)],
    )
    return model_of(
        [
            node("MatMul", ["x", "w"], "a"),
            node("Loop", ["times", "", "x"], "l", body=body),
            node("MatMul", ["l", "w"], "y"),
        ],
        [info("x", ["n", 8])],
        [info("y", ["n", 8])],
        [weight("w", 8, 8), constant("times", np.array(3))],
    )


def in_half(
    model: onnx.ModelProto, *kept: str, to: HalfName = "float16", cast: bool = False
) -> onnx.ModelProto:
    made = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    run_passes(
        made,
        (
            HalfPrecision(
                to=to,
                ep=CUDA,
                kept=frozenset(kept),
                read=numpy_helper.to_array,
                cast_constants=cast,
            ),
        ),
    )
    onnx.checker.check_model(made, full_check=True)
    return made


def run(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def test_a_body_computes_in_half_with_casts_at_its_state_alone() -> None:
    made = in_half(loop())
    main, body = every_graph(made)
    assert {tensor.name: tensor.data_type for tensor in main.initializer} == {
        "times": TensorProto.INT64, "w_float16": HALF, "own_float16": HALF,
    }  # fmt: skip
    assert not body.initializer
    # The state enters and leaves in float32; `a` is read as it is made around the body.
    casts = [one for one in body.node if one.op_type == "Cast"]
    assert [(one.input[0], one.attribute[0].i) for one in casts] == [
        ("state", HALF), ("next_float16", FLOAT),
    ]  # fmt: skip
    assert any("a" in one.input for one in body.node)
    assert count_casts(made, loop()) == len(casts) + sum(one.op_type == "Cast" for one in main.node)
    (found,), (expected,) = run(made, {"x": X}), run(loop(), {"x": X})
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert not np.array_equal(found, expected)


def test_what_is_kept_in_a_body_reads_float32() -> None:
    made = in_half(loop(), "n_sum")
    _, body = every_graph(made)
    assert [tensor.name for tensor in body.initializer] == ["own"]
    (kept,) = (one for one in body.node if one.name == "n_sum")
    assert list(kept.input) == ["product_float32", "own"]
    run(made, {"x": X})


def test_kept_control_flow_keeps_all_that_is_in_it() -> None:
    made = in_half(loop(), "n_l")
    _, body = every_graph(made)
    assert all(one.op_type != "Cast" for one in body.node)
    assert "w" in {tensor.name for tensor in made.graph.initializer}
    run(made, {"x": X})


def test_a_branch_in_a_branch() -> None:
    inner = [
        helper.make_graph(
            [node("MatMul", ["x", name], f"{name}_i")], name, [], [info(f"{name}_i", ["n", 8])]
        )
        for name in ("v", "w")
    ]
    then = helper.make_graph(
        [node("If", ["c"], "t", then_branch=inner[0], else_branch=inner[1])],
        "then", [], [info("t", ["n", 8])],
    )  # fmt: skip
    other = helper.make_graph([node("Tanh", ["x"], "e")], "else", [], [info("e", ["n", 8])])
    model = model_of(
        [node("If", ["c"], "y", then_branch=then, else_branch=other)],
        [info("x", ["n", 8]), info("c", [], TensorProto.BOOL)],
        [info("y", ["n", 8])],
        [weight("v", 8, 8), weight("w", 8, 8, seed=1)],
    )
    made = in_half(model)
    assert {tensor.name: tensor.data_type for tensor in made.graph.initializer} == {
        "v_float16": HALF, "w_float16": HALF,
    }  # fmt: skip
    for graph in (made, float_twin(made, CUDA, "float16")):
        for truth in (True, False):
            feeds = {"x": X, "c": np.array(truth)}
            (found,), (expected,) = run(graph, feeds), run(model, feeds)
            np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_twin_of_a_body_rounds_and_overflows() -> None:
    twin = float_twin(in_half(loop(), cast=True), CUDA, "float16")
    (found,), (expected,) = run(twin, {"x": X}), run(in_half(loop()), {"x": X})
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert not any(
        tensor.data_type == HALF for graph in every_graph(twin) for tensor in graph.initializer
    )
    (large,) = run(twin, {"x": X * np.float32(3e4)})
    assert not np.isfinite(large).all()
    # ONNX Runtime's CPU computes the graph itself in float32, where nothing overflows inside.
    bfloat = float_twin(in_half(loop(), to="bfloat16"), CUDA, "bfloat16")
    (found,) = run(bfloat, {"x": X * np.float32(3e4)})
    assert np.isfinite(found).all()


def test_the_largest_numbers_of_values_are_found_in_bodies_too() -> None:
    model = onnx.shape_inference.infer_shapes(loop(), strict_mode=True)
    observing, names = observing_graph(model)
    (found,) = run(observing, {"x": X})
    largest = dict(zip(names, found, strict=True))
    assert set(largest) == {"x", "a", "state", "product", "sum", "next", "l", "y"}
    state = X
    weights = {
        tensor.name: numpy_helper.to_array(tensor)
        for graph in every_graph(model)
        for tensor in graph.initializer
    }
    sizes = []
    for _ in range(3):
        state = state @ weights["w"] + weights["own"] + X @ weights["w"]
        sizes.append(np.abs(state).max())
    np.testing.assert_allclose(largest["next"], max(sizes), rtol=1e-5)
    np.testing.assert_allclose(largest["x"], np.abs(X).max())


def test_a_loop_without_iterations_and_infinities_and_nothing() -> None:
    model = loop()
    model.graph.initializer[1].CopyFrom(constant("times", np.array(0)))
    model.graph.node.append(node("Log", ["z"], "b"))
    model.graph.node.append(node("Relu", ["e"], "f"))
    model.graph.input.extend([info("z", [2]), info("e", [0])])
    typed = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    observing, names = observing_graph(typed)
    feeds = {"x": X, "z": np.array([0, 1], np.float32), "e": np.zeros(0, np.float32)}
    (found,) = run(observing, feeds)
    largest = dict(zip(names, found, strict=True))
    assert (largest["next"], largest["b"], largest["f"]) == (0, 0, 0)
    assert [value.name for value in observing.graph.output] == [LARGEST]


def test_branches_tell_their_own_values() -> None:
    branches = [
        helper.make_graph(
            [node("Mul", ["x", name], f"{name}_r")], name, [], [info(f"{name}_r", ["n", 8])]
        )
        for name in ("big", "small")
    ]
    model = model_of(
        [node("If", ["c"], "y", then_branch=branches[0], else_branch=branches[1])],
        [info("x", ["n", 8]), info("c", [], TensorProto.BOOL)],
        [info("y", ["n", 8])],
        [constant("big", np.float32(1e6)), constant("small", np.float32(1e-6))],
    )
    observing, names = observing_graph(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    for truth in (True, False):
        (found,) = run(observing, {"x": X, "c": np.array(truth)})
        largest = dict(zip(names, found, strict=True))
        assert bool(largest["big_r"] > 1e5) == truth
        assert bool(largest["small_r"] > 0) != truth
    assert all(one.name for one in every_node(observing))


def test_values_are_copied_only_where_an_end_of_theirs_is_no_finite_number(tmp_path: Path) -> None:
    model = model_of(
        [
            node("Neg", ["x"], "down"),
            node("Reshape", ["down", "flat"], "arranged"),
            node("Mul", ["arranged", "many"], "large"),
        ],
        [info("x", ["n"])],
        [info("large", ["n"])],
        [constant("flat", np.array([-1])), constant("many", np.float32(4))],
    )
    observing, names = observing_graph(onnx.shape_inference.infer_shapes(model, strict_mode=True))
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "run")
    session = ort.InferenceSession(observing.SerializeToString(), options)

    def largest(*values: float) -> dict[str, float]:
        (found,) = session.run([LARGEST], {"x": np.array(values, np.float32)})
        return dict(zip(names, found.tolist(), strict=True))

    most = float(np.finfo(np.float32).max)
    assert largest(1, -3, 2) == {"x": 3, "down": 3, "arranged": 3, "large": 12}
    assert "Where" not in kinds_run(session)
    session = ort.InferenceSession(observing.SerializeToString(), options)
    assert largest(1, math.inf, -2) == {"x": 2, "down": 2, "arranged": 2, "large": 8}
    assert largest(-math.inf) == {"x": 0, "down": 0, "arranged": 0, "large": 0}
    assert largest(most, 1) == {"x": most, "down": most, "arranged": most, "large": 4}
    assert largest() == {"x": 0, "down": 0, "arranged": 0, "large": 0}
    assert "Where" in kinds_run(session)


def kinds_run(session: ort.InferenceSession) -> set[str]:
    """The operators that a profiled session ran; its profile ends."""
    events = json.loads(Path(session.end_profiling()).read_text())
    return {each["args"]["op_name"] for each in events if each.get("cat") == "Node"}
