"""The plan of a GPU: of a graph that the CPU ran, as if CUDA had run most of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from planned_memory import name_nodes

from aotc.base.records import replace
from aotc.graph.arena import rounded
from aotc.graph.values import ort_type_to_value
from aotc.pipeline import memory_plan
from aotc.pipeline.observe import partition_copies
from aotc.session.sessions import create_session
from aotc.spec.codec import encode
from aotc.spec.memory import PlannedDevice, PlannedMemory
from aotc.spec.providers import CAPTURING, CPU
from aotc.spec.shapes import Dim, Domain
from aotc.spec.variant import PartitionReport, SessionSpec, Transfer

CUDA = CAPTURING.ort_name
COLUMNS = 64
ROW = COLUMNS * 4
# By the value that a node makes: what stands there for what ONNX Runtime would have put between.
COPIES = {"h": "MemcpyToHost", "d": "MemcpyFromHost"}
ON_CPU = "c"


def crossing(folder: Path, *, gives_weight: bool = False, tables: tuple[int, ...] = ()) -> Path:
    """Three values on the GPU, one on the host between two copies, then three on the GPU again.

    With `gives_weight` a weight is an output as well, as what ONNX Runtime folds may be.  A row is
    gathered from each of `tables`, by their bytes.
    """
    node = helper.make_node
    weights = [numpy_helper.from_array(np.ones((COLUMNS, 8), np.float32), "w")]
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Sin", ["a"], ["b"]),
        node("Identity", ["b"], ["h"]),
        node("Cos", ["h"], ["c"]),
        node("Identity", ["c"], ["d"]),
        node("Add", ["d", "a"], ["e"]),
        node("Relu", ["e"], ["f"]),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    if tables:
        rows = [f"row{at}" for at in range(len(tables))]
        nodes[-2:] = [
            *(node("Gather", [f"table{at}", "at"], [name]) for at, name in enumerate(rows)),
            node("Max", ["e", *rows], ["f"]),
            nodes[-1],
        ]
        for at, count in enumerate(tables):
            table = np.ones((count // ROW, COLUMNS), np.float32)
            weights.append(numpy_helper.from_array(table, f"table{at}"))
        weights.append(numpy_helper.from_array(np.array([0]), "at"))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", COLUMNS])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8]),
            *(
                [helper.make_tensor_value_info("w", TensorProto.FLOAT, None)]
                if gives_weight
                else []
            ),
        ],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    name_nodes(model.graph)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def planned(folder: Path, rows: tuple[int, ...], monkeypatch: Any, **request: Any) -> PlannedMemory:
    """The plan of `crossing` as if all nodes but one, and its copies, were on CUDA."""
    path = crossing(
        folder,
        gives_weight=request.pop("gives_weight", False),
        tables=request.pop("tables", ()),
    )
    stated = {
        "providers": [CPU],
        "contexts": False,
        "session": encode(SessionSpec(optimization="disable", **request.pop("session", {}))),
        "weights": str(folder),
        "model": str(path),
        **request,
    }
    domain = Domain(dims={"rows": Dim(min=rows[0], opt=rows[0], max=rows[-1], origin="stated")})
    given = create_session(
        path.read_bytes(), SessionSpec(optimization="all"), providers=[CPU]
    ).get_inputs()
    inputs = [ort_type_to_value(each) for each in given]
    calls = [(f"{n}", {"rows": n}, {"x": np.ones((n, COLUMNS), np.float32)}) for n in rows]
    monkeypatch.chdir(folder)
    model, weights, runs, made = memory_plan._profiled(stated, inputs, domain, calls)
    ops = {
        node.name: COPIES[node.output[0]] for node in model.graph.node if node.output[0] in COPIES
    }
    host = next(node.name for node in model.graph.node if ON_CPU in node.output)
    for node in model.graph.node:
        node.op_type = ops.get(node.name, node.op_type)
    moved = [
        [
            replace(
                event,
                op=ops.get(event.name, event.op),
                provider=CPU if event.name == host else CUDA,
            )
            for event in events
        ]
        for events in runs
    ]
    return memory_plan.plan_of(
        {**stated, "providers": [CUDA, CPU]}, model, weights, domain, made, moved
    )


def device(plan: PlannedMemory) -> PlannedDevice:
    assert plan.why_not == ""
    assert plan.device is not None
    return plan.device


def test_the_gpu_has_a_plan_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tmp_path, (100, 1000), monkeypatch)
    found = device(plan)
    assert (found.weights_bytes, found.sessions, found.growth) == (COLUMNS * 8 * 4, 1, "doubling")
    small = found.at[0]
    # The input, the first value, that which was copied back, and the sum.
    assert [each.value for each in small.alive] == ["x", "a", "b", "e"]
    assert small.live_bytes == 4 * 100 * ROW
    assert (small.op, small.input_bytes, small.output_bytes) == ("Add", 100 * ROW, 100 * 32)
    # What is copied to the GPU takes the buffer of what was copied from it; Relu is in place.
    assert small.buffer_bytes == 3 * 100 * ROW + 100 * 32
    assert small.pattern_bytes == 3 * 100 * ROW
    # Later calls hold the input, that block, and the output beside it, in chunks of 256 bytes.
    assert small.later_bytes == 4 * 100 * ROW + 3328
    # On the host there are the node of the CPU with what it reads, and a copy of the output.
    host = plan.at[0]
    assert host.live_bytes == 2 * 100 * ROW
    assert host.later_bytes == 2 * 100 * ROW + 3328


def test_a_weight_that_is_an_output_is_copied_by_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node makes it, so that no call has its size."""
    captures = {"sizes": [{"rows": 100}], "sessions": "one"}
    plan = planned(tmp_path, (100, 1000), monkeypatch, captures=captures, gives_weight=True)
    assert {each.values for each in plan.copies} == {1}
    assert device(plan).captures[0].buffers_bytes == 100 * ROW


def test_copies_are_counted_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(tmp_path, (100, 1000), monkeypatch)
    assert [
        (each.sizes["rows"], each.source, each.target, each.values, each.bytes)
        for each in plan.copies
    ] == [
        (rows, *sides, 1, rows * width)
        for rows in (100, 1000)
        for *sides, width in (("", CUDA, ROW), (CPU, CUDA, ROW), (CUDA, CPU, ROW), (CUDA, "", 32))
    ]


def test_an_arena_that_doubles_takes_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = {CUDA: {"arena_extend_strategy": "kSameAsRequested"}}
    (tmp_path / "exact").mkdir()
    plans = [
        device(planned(tmp_path, (100, 3000), monkeypatch)),
        device(
            planned(
                tmp_path / "exact", (100, 3000), monkeypatch, session={"provider_options": exact}
            )
        ),
    ]
    assert [plan.growth for plan in plans] == ["doubling", "exact"]
    for plan in plans:
        assert plan.at[-1].live_bytes <= plan.exact_bytes < plan.doubling_bytes
    assert plans[1].at[-1].arena_bytes < plans[0].at[-1].arena_bytes


@pytest.mark.parametrize("tables", [(), (17 << 20, 1 << 20)])
def test_weights_leave_chunks_to_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: tuple[int, ...]
) -> None:
    """What is asked for takes a new region as a whole, if that is less than twice as large.

    The second table's region is as large as the first one's, and has room for all values.
    """
    (run,) = device(planned(tmp_path, (5000,), monkeypatch, tables=tables)).at
    assert (run.sizes, run.input_bytes) == ({"rows": 5000}, 5000 * ROW)
    asked = sum(map(rounded, (run.input_bytes, run.pattern_bytes, run.output_bytes)))
    if tables:
        assert run.later_bytes == asked
    else:
        assert run.later_bytes > asked


@pytest.mark.parametrize(("sessions", "holders"), [("one", 1), ("each", 3)])
def test_captured_sizes_hold_their_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: str, holders: int
) -> None:
    sizes = [{"rows": 100}, {"rows": 1000}]
    captures = {"sizes": sizes, "sessions": sessions}
    found = device(planned(tmp_path, (100, 1000), monkeypatch, captures=captures))
    assert found.sessions == holders
    assert [each.buffers_bytes for each in found.captures] == [rows * ROW for rows in (1000, 100)]
    # The largest comes first.  The other has a session's own arena, or what the largest freed.
    first, second = (each.arena_bytes for each in found.captures)
    alone = device(
        planned(tmp_path, (100, 1000), monkeypatch, captures={**captures, "sizes": sizes[:1]})
    )
    assert first >= 1000 * (3 * ROW + 32)
    # The first region has the weights too.
    assert alone.captures[0].arena_bytes == (1 << 20) - found.weights_bytes
    assert second == (alone.captures[0].arena_bytes if sessions == "each" else 0)
    assert found.captured_bytes == 1100 * ROW + first + second


def test_an_arena_of_all_calls_has_captured_sizes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(sessions: str, count: int) -> int:
        captures = {"sizes": [{"rows": 1000}] * count, "sessions": sessions}
        return device(planned(tmp_path, (100, 1000), monkeypatch, captures=captures)).exact_bytes

    assert taken("each", 40) == taken("one", 0)
    assert taken("one", 40) >= 40 * 1000 * 32 + 4 * 1000 * ROW


def test_outputs_of_captured_sizes_stay_in_the_arena(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are bound to the device, so that the session allocates them: beyond the block."""
    exact = {CUDA: {"arena_extend_strategy": "kSameAsRequested"}}

    def taken(count: int) -> int:
        # One size, as often as there are sizes: what is freed serves the next.
        captures = {"sizes": [{"rows": 1000}] * count, "sessions": "one"}
        found = device(
            planned(
                tmp_path,
                (100, 1000),
                monkeypatch,
                captures=captures,
                session={"provider_options": exact},
            )
        )
        return sum(each.arena_bytes for each in found.captures)

    # Beside what a call needs on its way.
    assert taken(40) >= 40 * 1000 * 32 + 3 * 1000 * ROW


def test_control_flow_beside_a_gpu_is_not_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = memory_plan._read
    monkeypatch.setattr(
        memory_plan,
        "_read",
        lambda *given: replace(made, inner={0: ()}) if (made := read(*given)) else None,
    )
    plan = planned(tmp_path, (10, 20), monkeypatch)
    assert plan.device is None
    assert (plan.elsewhere, "control flow" in plan.why_not) == (True, True)


def test_copies_of_other_providers_are_those_of_the_partition() -> None:
    def crossing_value(value: str, source: str, target: str, least: int | None) -> Transfer:
        most = None if least is None else 8 * least
        return Transfer(value=value, source=source, target=target, bytes=least, bytes_max=most)

    report = PartitionReport(
        origin="observed",
        providers=(),
        partitions=(),
        alternations=2,
        transfers=(
            crossing_value("a", "OpenVINO", CPU, 100),
            crossing_value("b", CPU, "OpenVINO", 40),
            crossing_value("c", CPU, "OpenVINO", None),
        ),
    )
    domain = Domain(dims={"batch": Dim(min=1, opt=1, max=8, origin="stated")})
    assert [
        (each.sizes, each.source, each.target, each.values, each.bytes, each.unknown)
        for each in partition_copies(report, domain)
    ] == [
        ({"batch": 1}, "OpenVINO", CPU, 1, 100, 0),
        ({"batch": 1}, CPU, "OpenVINO", 2, 40, 1),
        ({"batch": 8}, "OpenVINO", CPU, 1, 800, 0),
        ({"batch": 8}, CPU, "OpenVINO", 2, 320, 1),
    ]
    assert partition_copies(None, domain) == ()
