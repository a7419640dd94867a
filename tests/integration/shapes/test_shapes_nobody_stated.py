"""Small models whose dims are not stated: bytes, relations, steps, size 0, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.spec.profile import ProbeLimits, Profile, WorkerLimits
from aotc.spec.shapes import DimRange

Shape = Sequence[str | int]
Value = tuple[int, Shape]
FLOAT, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Value],
    outputs: Mapping[str, Value],
    constants: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A graph of `nodes` between inputs and outputs of a type and a shape each."""
    graph = helper.make_graph(
        list(nodes),
        "shapes",
        [helper.make_tensor_value_info(name, *value) for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, *value) for name, value in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def bounded(**dims: str | int) -> Profile:
    ranges = {name: DimRange.from_json(spec) for name, spec in dims.items()}
    return Profile(schema="aotc.profile/1", name="bounded", dims=ranges)


def assert_answers(bench: Workbench, built: Built, *calls: Mapping[str, Any]) -> None:
    """The artifact answers as the plain session does."""
    plain = plain_session(built.source)
    with bench.load(built) as loaded:
        for inputs in calls:
            where = str({name: np.shape(value) for name, value in inputs.items()})
            expected = plain_answer(plain, inputs)
            assert_agree(expected, loaded.run(inputs), tolerance_of(built), where)


def floats(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


# Bytes


def test_an_input_of_many_free_dims_is_not_made_larger_than_inputs_may_be(
    bench: Workbench,
) -> None:
    """Five dims of 64 are 4 GB: the size of an input is computed before it is allocated."""
    shape = ("a", "b", "c", "d", "e")
    graph = model(
        [helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}
    )
    limits = WorkerLimits(memory_bytes=1 << 30)
    profile = Profile(schema="aotc.profile/1", name="bounded", limits=limits)
    built = bench.build(graph, "wide", profile=profile)
    sizes = built.manifest.domain.corner("max")
    assert 4 * np.prod([sizes[name] for name in shape]) <= ProbeLimits().max_input_bytes
    assert all(size > 1 for name, size in sizes.items() if name != "a")
    assert_answers(bench, built, {"x": floats(1, 1, 1, 1, 1)}, {"x": floats(2, 3, 4, 5, 6)})


def test_bytes_of_inputs_hold_for_all_of_a_models_runs(bench: Workbench) -> None:
    """A limit below every usual base size: the base and all tried sizes are smaller."""
    shape = ("batch", "rows", "columns")
    graph = model(
        [helper.make_node("Neg", ["x"], ["y"])], {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}
    )
    profile = Profile(
        schema="aotc.profile/1", name="narrow", probe=ProbeLimits(max_input_bytes=2048)
    )
    built = bench.build(graph, "narrow", profile=profile)
    dims = built.manifest.domain.dims
    sizes = built.manifest.domain.corner("max")
    assert 4 * np.prod([sizes[name] for name in shape]) <= 2048
    assert all(dim.stopped_by == "bytes" for dim in dims.values())
    assert all(size * 4 <= 2048 for dim in dims.values() for size in dim.tested)


# Relations


def summed(spare: bool) -> onnx.ModelProto:
    """Attention's sums of lengths: `past` and `x` side by side, and a mask over both.

    With `spare` the mask may be longer than both; the rest of it is not read.
    """
    nodes = [helper.make_node("Concat", ["past", "x"], ["both"], axis=1)]
    used = "mask"
    if spare:
        nodes += [
            helper.make_node("Shape", ["both"], ["length"], start=1, end=2),
            helper.make_node("Squeeze", ["length"], ["count"]),
            helper.make_node("Range", ["zero", "count", "one"], ["places"]),
            helper.make_node("Gather", ["mask", "places"], ["used"], axis=1),
        ]
        used = "used"
    # A mask that is added would be broadcast from a length of 1.
    join = helper.make_node("Add", ["both", used], ["y"])
    nodes.append(join if spare else helper.make_node("Concat", ["both", used], ["y"], axis=0))
    inputs = {
        "past": (FLOAT, ("batch", "before")),
        "x": (FLOAT, ("batch", "after")),
        "mask": (FLOAT, ("rows", "total")),
    }
    constants = {"zero": np.int64(0), "one": np.int64(1)} if spare else {}
    return model(nodes, inputs, {"y": (FLOAT, ("every", "all"))}, constants)


def summed_call(batch: int, before: int, after: int, total: int) -> dict[str, Any]:
    return {
        "past": floats(batch, before),
        "x": floats(batch, after),
        "mask": floats(batch, total),
    }


def test_a_sum_off_which_the_model_fails_is_enforced(bench: Workbench) -> None:
    built = bench.build(summed(spare=False), "summed")
    calls = [summed_call(2, 3, 4, 7), summed_call(1, 31, 1, 32), summed_call(5, 17, 13, 30)]
    assert_answers(bench, built, *calls)
    with bench.load(built) as loaded:
        for total in (6, 8):
            with pytest.raises(AotcError) as raised:
                loaded.run(summed_call(2, 3, 4, total))
            assert raised.value.code == "AOTC-R004"


def test_a_sum_that_is_broadcast_from_a_length_of_1_is_not_enforced(bench: Workbench) -> None:
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["both"], axis=1),
        helper.make_node("Add", ["both", "mask"], ["y"]),
    ]
    inputs = {
        "past": (FLOAT, ("batch", "before")),
        "x": (FLOAT, ("batch", "after")),
        "mask": (FLOAT, ("rows", "total")),
    }
    built = bench.build(model(nodes, inputs, {"y": (FLOAT, ("batch", "all"))}), "broadcast")
    assert_answers(bench, built, summed_call(2, 3, 4, 7), summed_call(2, 3, 4, 1))


def test_a_sum_that_may_be_exceeded_is_not_enforced(bench: Workbench) -> None:
    built = bench.build(summed(spare=True), "spare")
    calls = [summed_call(2, 3, 4, 7), summed_call(2, 3, 4, 8), summed_call(2, 3, 4, 40)]
    calls += [summed_call(1, 31, 1, 32), summed_call(1, 16, 1, 17), summed_call(3, 64, 64, 128)]
    assert_answers(bench, built, *calls)


def test_dims_of_which_one_is_at_least_the_other_are_not_equal(bench: Workbench) -> None:
    """A table is read at its first places: as long, or longer."""
    nodes = [
        helper.make_node("Shape", ["x"], ["length"]),
        helper.make_node("Slice", ["table", "zero", "length"], ["first"]),
        helper.make_node("Add", ["x", "first"], ["y"]),
    ]
    graph = model(
        nodes,
        {"x": (FLOAT, ("n",)), "table": (FLOAT, ("rows",))},
        {"y": (FLOAT, ("n",))},
        {"zero": np.array([0], np.int64)},
    )
    built = bench.build(graph, "table")
    calls = [(5, 5), (5, 6), (5, 13), (32, 64), (64, 65), (7, 100)]
    assert_answers(bench, built, *({"x": floats(n), "table": floats(rows)} for n, rows in calls))
    with bench.load(built) as loaded, pytest.raises(AotcError):
        loaded.run({"x": floats(9), "table": floats(8)})


# Steps


@pytest.mark.parametrize("step", [6, 64])
def test_multiples_are_found_before_a_failure_is_believed(bench: Workbench, step: int) -> None:
    graph = model(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        {"x": (FLOAT, (1, "length"))},
        {"y": (FLOAT, ("rows", step))},
        {"shape": np.array([-1, step], np.int64)},
    )
    built = bench.build(graph, f"step{step}")
    length = built.manifest.domain.dims["length"]
    assert length.multiple_of == step
    assert all(length.accepts(size) for size in range(step, 1024 // step * step + 1, step))
    assert_answers(bench, built, {"x": floats(1, step)}, {"x": floats(1, 15 * step)})


# Size 0


def test_size_0_is_not_claimed_where_answers_are_not_written(bench: Workbench) -> None:
    """ONNX Runtime does not write the output of an integer product over size 0."""
    graph = model(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])],
        {"a": (UINT8, ("n", "k")), "b": (UINT8, ("k", "m"))},
        {"y": (TensorProto.INT32, ("n", "m"))},
    )
    built = bench.build(graph, "product")
    domain = built.manifest.domain
    assert {name: dim.min for name, dim in domain.dims.items()} == {"n": 0, "k": 1, "m": 0}
    assert domain.not_empty == (("k",),)
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 255, (3, 70), np.uint8), rng.integers(0, 255, (70, 5), np.uint8)
    assert_answers(bench, built, {"a": a, "b": b})


def test_size_0_that_a_profile_states_is_tried(bench: Workbench) -> None:
    graph = summed(spare=False)
    built = bench.build(graph, "empty-past", profile=bounded(before="0..64", after="1..64"))
    assert built.manifest.domain.dims["before"].min == 0
    assert_answers(bench, built, summed_call(2, 0, 4, 4), summed_call(2, 9, 4, 13))


# Declared outputs


def negated(declared: Shape) -> onnx.ModelProto:
    """Float32 [batch, length] to the same shape, declared otherwise."""
    return model(
        [helper.make_node("Neg", ["x"], ["y"])],
        {"x": (FLOAT, ("batch", "length"))},
        {"y": (FLOAT, declared)},
    )


def first_four(declared: Shape) -> onnx.ModelProto:
    """Float32 [batch, length] to its first four columns, or fewer where it has fewer."""
    return model(
        [helper.make_node("Slice", ["x", "start", "end", "axis"], ["y"])],
        {"x": (FLOAT, ("batch", "length"))},
        {"y": (FLOAT, declared)},
        {
            "start": np.array([0], np.int64),
            "end": np.array([4], np.int64),
            "axis": np.array([1], np.int64),
        },
    )


@pytest.mark.parametrize(
    ("graph", "dims"),
    [
        # The optimum comes first, and there the declared size is the produced one.
        (negated(("batch", 4)), DimRange(min=2, opt=4, max=8)),
        (first_four(("batch", "length")), DimRange(min=2, opt=3, max=8)),
    ],
    ids=["fixed", "by-name"],
)
def test_a_declared_shape_that_is_wrong_at_one_size_is_found(
    bench: Workbench, graph: onnx.ModelProto, dims: DimRange, request: pytest.FixtureRequest
) -> None:
    profile = Profile(
        schema="aotc.profile/1",
        name="declared",
        dims={"batch": DimRange.from_json(2), "length": dims},
    )
    built = bench.build(graph, f"declared-{request.node.callspec.id}", profile=profile)
    assert built.codes().count("AOTC-S009") == 1
    assert built.finding("AOTC-S009").startswith("y")


def test_a_declared_shape_is_compared_at_every_fixture_that_is_given(
    bench: Workbench, tmp_path: Path
) -> None:
    for index, length in enumerate((4, 4, 7)):
        folder = tmp_path / f"test_data_set_{index}"
        folder.mkdir()
        tensor = numpy_helper.from_array(floats(2, length), "x")
        (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    built = bench.build(negated(("batch", 4)), "declared-fixtures", fixtures=tmp_path)
    assert built.codes().count("AOTC-S009") == 1
