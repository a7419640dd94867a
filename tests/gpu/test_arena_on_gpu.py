"""The arena of a session on the GPU: planned and observed, its limit, and what it gives back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from on_gpu import CUDA, NETWORK_DIMS, built, network_path, note
from onnx import TensorProto, helper

import aotc
from aotc.base.errors import AotcError
from aotc.host.nvidia import free_memory, memory_taken
from aotc.spec.codec import encode
from aotc.spec.memory import PlannedDevice
from aotc.spec.reports import BuildReport

pytestmark = pytest.mark.gpu

COLUMNS = 1024
SMALL, LARGE = 16, 1 << 16
# Bytes of a value with the most rows.
VALUE = LARGE * COLUMNS * 4
# The ends of a slice of one column, and its axis.
_COLUMN = {"start": 0, "end": 1, "axis": 1}


def turning(folder: Path) -> Path:
    """A column of x that was transposed twice: two values of its size are alive at once.

    None of these kernels needs memory of its own, and each row has the same bits at any size.
    """
    ends = [helper.make_tensor(name, TensorProto.INT64, [1], [at]) for name, at in _COLUMN.items()]
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["a"], name="there"),
            helper.make_node("Transpose", ["a"], ["b"], name="back"),
            helper.make_node("Slice", ["b", *_COLUMN], ["y"], name="first"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 1])],
        ends,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def artifact(folder: Path, **memory: Any) -> Path:
    return built(
        turning(folder),
        folder,
        {"rows": f"{SMALL}..{LARGE}"},
        capture="none",
        cuda={"fusion": "none", "memory": memory},
    ).path


def planned(report: BuildReport) -> PlannedDevice:
    """The plan of the GPU in a build's report."""
    plan = report.variants[0].planned
    assert plan is not None
    assert plan.why_not == ""
    assert plan.device is not None
    return plan.device


def pairs(report: BuildReport) -> dict[str, tuple[int, int]]:
    """By fixture, the bytes of the GPU's arena in use at the peak, planned and observed."""
    memory = report.variants[0].memory
    assert memory is not None
    assert memory.why_not == ""
    seen = {at.fixture: at.device_activation_bytes or 0 for at in memory.at}
    plans = planned(report).at
    return {
        run.fixture: (run.peak_bytes, seen[run.fixture]) for run in plans if run.fixture in seen
    }


def rows(count: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.ones((count, COLUMNS), np.float32)}


def test_the_arena_of_the_gpu_is_observed(tmp_path: Path) -> None:
    report = built(turning(tmp_path), tmp_path, {"rows": SMALL}, capture="none").report
    memory = report.variants[0].memory
    assert memory is not None
    assert memory.why_not == ""
    (at,) = memory.at
    note(
        "arena of the GPU", {"device": encode(at.device), "activations": at.device_activation_bytes}
    )
    assert at.device is not None and at.device_activation_bytes is not None
    # The input is copied there, and both values are.
    assert at.device_activation_bytes >= 2 * SMALL * COLUMNS * 4


def test_the_plan_of_values_on_the_gpu_is_what_is_observed(tmp_path: Path) -> None:
    dims = {"rows": f"{SMALL}..{LARGE}"}
    report = built(turning(tmp_path), tmp_path, dims, capture="none").report
    plan, found = planned(report), pairs(report)
    memory = report.variants[0].memory
    assert memory is not None and memory.mixed is not None
    note(
        "plan of two transpositions",
        {
            "pairs": found,
            "exact": plan.exact_bytes,
            "doubling": plan.doubling_bytes,
            "arena of mixed calls": memory.mixed.last_device_allocated,
        },
    )
    # The input and two values of its size.
    assert len(found) > 1
    for peak, seen in found.values():
        assert abs(peak - seen) <= max(0.15 * seen, 1 << 20)
    whole = report.variants[0].planned
    assert whole is not None
    copied = {each.bytes for each in whole.copies if each.target == CUDA}
    assert copied >= {SMALL * COLUMNS * 4, VALUE}


@pytest.mark.parametrize("precision", ["keep", "float16"])
@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_plan_of_a_network_is_below_what_its_kernels_need_in_all(
    tmp_path: Path, name: str, precision: str
) -> None:
    report = built(
        network_path(name), tmp_path, NETWORK_DIMS[name], precision=precision, capture="none"
    ).report
    plan, found = planned(report), pairs(report)
    memory = report.variants[0].memory
    assert memory is not None
    (at, *_) = memory.at
    assert at.device is not None
    note(
        f"plan of {name} in {precision}",
        {
            "pairs": found,
            "weights": [plan.weights_bytes, at.device.in_use],
            "copies": encode(report.variants[0].planned)["copies"],
        },
    )
    assert abs(plan.weights_bytes - at.device.in_use) <= max(0.15 * at.device.in_use, 1 << 20)
    for peak, seen in found.values():
        # Workspace is not in the plan, and small networks have chunks of a first region of 1 MiB.
        assert peak <= seen + max(0.15 * seen, 1 << 20)


def test_calls_of_all_sizes_have_room_in_the_limit_of_a_plan(tmp_path: Path) -> None:
    made = built(
        turning(tmp_path),
        tmp_path,
        {"rows": f"{SMALL}..{LARGE}"},
        capture="none",
        cuda={"fusion": "none", "memory": {"limit_bytes": "plan"}},
        budgets={"concurrency": 2},
    )
    plan = planned(made.report)
    assert plan.growth == "exact"
    memory = made.report.variants[0].memory
    assert memory is not None and memory.mixed is not None
    with aotc.load(made.path) as model:
        options = model.variant.session.provider_options[CUDA]
        limit = int(options["gpu_mem_limit"])
        sizes = [SMALL, LARGE, LARGE // 3, LARGE, SMALL, LARGE // 2] * 3
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda size: model.run(rows(size)), sizes))
        assert model.telemetry.snapshot().memory_failures == {}
    note(
        "limit of a plan",
        {
            "limit": limit,
            "exact": plan.exact_bytes,
            "arena of mixed calls": memory.mixed.last_device_allocated,
        },
    )
    assert len(answers) == len(sizes)
    # Two calls of the largest size at once have two values and an input each, and not many more.
    assert 6 * VALUE <= limit <= 12 * VALUE


@pytest.mark.alone
def test_captured_sizes_take_what_is_planned(tmp_path: Path) -> None:
    buckets = {"rows": {"buckets": [SMALL, LARGE // 4], "outside": "pad"}}
    (tmp_path / "captured").mkdir()
    made = built(turning(tmp_path), tmp_path / "captured", buckets)
    plan = planned(made.report)
    assert [each.sizes["rows"] for each in plan.captures] == [LARGE // 4, SMALL]
    small = built(turning(tmp_path), tmp_path, {"rows": SMALL}, capture="none")
    # The first session of a process makes the context and loads kernels.
    with aotc.load(small.path) as other:
        other.run(rows(SMALL))
        before = free_memory()
        with aotc.load(made.path) as model:
            model.run(rows(SMALL))
            taken = memory_taken(before)
    note("captured sizes", {"planned": plan.captured_bytes, "taken": taken, "plan": encode(plan)})
    assert taken is not None
    assert plan.captured_bytes <= taken + (32 << 20)


def test_a_limit_without_room_for_the_largest_call_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(AotcError) as caught:
        artifact(tmp_path, limit_bytes=VALUE)
    error = caught.value
    note("limit below a call", error.line())
    assert error.code == "AOTC-R058"
    assert "the artifact's limit of the GPU's arena" in error.what
    assert "fixture max" in error.where
    assert f"requested bytes of {VALUE}" in error.found


def test_calls_at_once_above_a_limit_are_refused_and_others_are_served(tmp_path: Path) -> None:
    """One call has its input and two values of that size in the arena."""
    refused: list[AotcError] = []
    given = rows(LARGE)

    def call(_: int) -> None:
        try:
            model.run(given)
        except AotcError as error:
            refused.append(error)

    rounds = 0
    with aotc.load(artifact(tmp_path, limit_bytes=5 * VALUE)) as model:
        model.run(given)
        # Whether they meet is chance; eight inputs alone are above the limit.
        with ThreadPoolExecutor(8) as pool:
            while not refused and rounds < 20:
                rounds += 1
                list(pool.map(call, range(8)))
        assert model.telemetry.snapshot().memory_failures == {"AOTC-R058": len(refused)}
        model.run(given)
    note("limit of calls at once", {"rounds": rounds, "refused": [e.line() for e in refused]})
    assert {error.code for error in refused} == {"AOTC-R058"}


@pytest.mark.alone
@pytest.mark.parametrize("shrink", [False, True])
def test_a_session_that_shrinks_gives_memory_back(tmp_path: Path, *, shrink: bool) -> None:
    with aotc.load(artifact(tmp_path, shrink=shrink)) as model:
        model.run(rows(SMALL))
        before = free_memory()
        model.run(rows(LARGE))
        after = free_memory()
        assert before is not None and after is not None
        note(f"shrink {shrink}", {"taken": before - after, "value": VALUE})
        assert (before - after < VALUE) is shrink
        moved = next(iter(model.telemetry.snapshot().variants.values())).transfers
        assert moved.to_device_bytes == (SMALL + LARGE) * COLUMNS * 4
