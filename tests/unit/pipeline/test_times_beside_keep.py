"""A lower precision beside `keep`: what is slower by more than noise, why, and what is said."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as some
from onnx import TensorProto, helper, numpy_helper

from aotc.graph import values
from aotc.pipeline.build import measured_findings
from aotc.pipeline.timing import (
    _costs,
    measure_job,
    node_times_job,
    one_call_job,
    paired_ratio,
)
from aotc.spec.codec import Json, encode
from aotc.spec.evidence import AgainstKeep, Evidence, OperatorCost, VariantEvidence
from aotc.spec.payload import Finding
from aotc.spec.precision import Goal
from aotc.spec.profile_files import load_profile
from aotc.spec.variant import SessionSpec

WIDTH = 256


@pytest.mark.parametrize(("count", "beyond"), [(5, 0), (7, 0), (8, 1), (15, 3), (31, 10), (45, 16)])
def test_ends_of_the_interval_are_those_of_the_sign_test(count: int, beyond: int) -> None:
    """As tables of the binomial distribution have them, for 5 % beyond each end."""
    ratio, low, high = paired_ratio([float(each) for each in range(1, count + 1)], [1.0] * count)
    assert ratio == (count + 1) / 2
    assert (low, high) == (beyond + 1, count - beyond)


@given(some.lists(some.tuples(*[some.floats(1e-6, 1e3)] * 2), min_size=5, max_size=50))
def test_a_ratio_lies_within_its_interval(rounds: list[tuple[float, float]]) -> None:
    ours, theirs = zip(*rounds, strict=True)
    ratio, low, high = paired_ratio(ours, theirs)
    assert low <= ratio <= high


def beside(ratio: float, low: float | None, goal: Goal = "speed", **fields: Any) -> AgainstKeep:
    made: dict[str, Any] = {
        "precision": "int8",
        "form": "static",
        "goal": goal,
        "fixture": "opt",
        "rounds": 45,
        "processes": 3,
        "seconds": ratio * 1e-3,
        "keep_seconds": 1e-3,
        "ratio": ratio,
        "ratio_low": low,
        "ratio_high": None if low is None else 2 * ratio,
        "weights_bytes": 100_000,
        "keep_weights_bytes": 400_000,
    }
    return AgainstKeep(**{**made, **fields})


def findings_of(record: AgainstKeep) -> tuple[Finding, ...]:
    variant = VariantEvidence(name="portable", against_keep=record)
    evidence = Evidence(built_at="", stages={}, variants=(variant,), host={})
    return measured_findings(evidence, load_profile("edge"))


@pytest.mark.parametrize(
    ("ratio", "low", "slower"),
    [
        (2.0, 1.9, True),
        (1.04, 1.001, True),
        (1.02, 1.01, False),
        (1.5, 0.9, False),
        (0.4, 0.3, False),
        (1.2, None, True),
        (1.0, None, False),
    ],
)
def test_slower_is_what_is_so_by_more_than_the_noise(
    ratio: float, low: float | None, slower: bool
) -> None:
    record = beside(ratio, low)
    assert record.is_slower is slower
    assert record.meets("speed") is not slower
    assert [each.code for each in findings_of(record)] == ["AOTC-N075"] * slower


def test_both_medians_the_nodes_and_what_would_help_are_told() -> None:
    costs = (
        OperatorCost(op="DequantizeLinear", seconds=6e-4, keep_seconds=0.0, nodes=("w1_dq",)),
        OperatorCost(op="FusedGemm", seconds=9e-4, keep_seconds=5e-4, nodes=("g1", "g0")),
    )
    (found,) = findings_of(beside(2.15, 2.1, costs=costs))
    assert found == Finding(
        code="AOTC-N075",
        what="int8 static is slower than keep: 2.15 times its time (2.15 ms and 1.00 ms a call, "
        "processor time of one thread, fixture opt, 90 % interval 2.10 to 4.30); it goes into "
        "DequantizeLinear 600 us (w1_dq), FusedGemm 900 us after 500 us (g1, g0); try 'precision: "
        "auto', 'quantization: {form: dynamic}', 'goal: size' if size is what it is for",
        where="variant portable",
    )


def test_a_goal_other_than_speed_makes_it_an_information() -> None:
    (found,) = findings_of(beside(2.0, 1.9, "size"))
    assert found.code == "AOTC-N077"
    assert found.what.endswith("; goal: size accepts it")


@pytest.mark.parametrize(
    ("goal", "fields", "said"),
    [
        ("size", {"weights_bytes": 400_000}, "goal: size is not met: int8 static takes 400.0 kB"),
        (
            "memory",
            {"peak_memory_bytes": 90_000_000, "keep_peak_memory_bytes": 80_000_000},
            "goal: memory is not met: int8 static takes 90.0 MB, keep 80.0 MB",
        ),
    ],
)
def test_a_goal_that_is_not_met_is_told(goal: Goal, fields: dict[str, Any], said: str) -> None:
    (found,) = findings_of(beside(0.5, 0.4, goal, **fields))
    assert (found.code, found.where) == ("AOTC-N076", "variant portable")
    assert found.what.startswith(said)


def test_what_was_not_timed_is_not_told() -> None:
    record = AgainstKeep(precision="int8", goal="memory", why_not="a call takes 9 s")
    assert (record.speedup, record.is_slower, record.meets("memory")) == (None, False, None)
    assert findings_of(record) == ()


# What a worker measures, of two models of which one computes eight times as much.


def products(path: Path, count: int) -> Path:
    weights = np.eye(WIDTH, dtype=np.float32)
    names = ["x", *(f"v{index}" for index in range(count - 1)), "y"]
    nodes = [
        helper.make_node("MatMul", [one, "w"], [other], name=f"product {other}")
        for one, other in itertools.pairwise(names)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, WIDTH]) for name in "xy"]
    constants = [numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    imports = [helper.make_opsetid("", 17)]
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def candidate(model: Path) -> Json:
    return {
        "model": str(model),
        "contexts": False,
        "weights": str(model.parent),
        "libraries": {},
        "twin": None,
        "session": encode(SessionSpec(optimization="all")),
        "providers": ["CPUExecutionProvider"],
        "captures": False,
        "free": False,
        "on_refusal": "fail",
    }


@pytest.fixture
def request_of_both(tmp_path: Path) -> Json:
    given = values.save(np.ones((64, WIDTH), np.float32), tmp_path / "x.npy")
    sides = [products(tmp_path / str(count) / "model.onnx", count) for count in (8, 1)]
    return {
        "inputs": {"x": str(given)},
        "threads": 1,
        "candidates": [candidate(model) for model in sides],
    }


def measured(folder: Path, request: Json, **fields: Any) -> Json:
    asked = {"rounds": (5, 9), "one_thread": True, "most_seconds": None, **request, **fields}
    # As a worker does: the job tells its steps in a file there.
    with chdir(folder):
        return measure_job(asked)


def test_eight_products_take_longer_than_one(tmp_path: Path, request_of_both: Json) -> None:
    more, one = measured(tmp_path, request_of_both)["seconds"]
    assert 5 <= len(more) == len(one) <= 9
    assert paired_ratio(more, one)[1] > 2
    assert paired_ratio(one, more)[2] < 0.5


def test_a_round_that_takes_too_long_is_not_repeated(tmp_path: Path, request_of_both: Json) -> None:
    found = measured(tmp_path, request_of_both, most_seconds=0.0)
    assert found["seconds"] == [[], []]
    assert found["of_round"] > 0


def test_the_nodes_that_take_longer_are_named(tmp_path: Path, request_of_both: Json) -> None:
    with chdir(tmp_path):
        own, kept = node_times_job(request_of_both)
    (cost,) = _costs(own, kept)
    assert (cost.op, len(cost.nodes)) == ("MatMul", 3)
    assert all(name.startswith("product") for name in cost.nodes)
    assert cost.seconds > 2 * cost.keep_seconds > 0
    assert _costs(kept, own) == ()


def test_what_keep_takes_as_well_is_no_cost() -> None:
    own: Sequence[Json] = [["Conv", "c", 1.0], ["Quantize", "a", 0.2], ["Quantize", "b", 0.3]]
    (cost,) = _costs(own, [["Conv", "c", 1.0], ["Relu", "r", 0.1]])
    assert cost == OperatorCost(op="Quantize", seconds=0.5, keep_seconds=0, nodes=("b", "a"))


def test_one_call_is_made_to_see_its_memory(tmp_path: Path, request_of_both: Json) -> None:
    first, _ = request_of_both["candidates"]
    with chdir(tmp_path):
        one_call_job({**request_of_both, "candidate": first})
