"""The tables of a memory plan: figures beside what was observed, dims in words, the curve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aotc.report.markdown import as_markdown
from aotc.report.sheet import Bars, Table
from aotc.report.sheets.memory import live_in_words, planned_sheet
from aotc.spec.memory import (
    AliveBuffer,
    CurvePoint,
    MemoryTerm,
    PlannedCapture,
    PlannedCopies,
    PlannedDevice,
    PlannedMemory,
    PlannedRun,
)

RUN = PlannedRun(
    sizes={"batch": 2, "seq": 64},
    fixture="max",
    live_bytes=4000,
    node="n7",
    op="com.microsoft::BiasGelu",
    workspace_bytes=1000,
    alive=(
        AliveBuffer(value="scores", bytes=2000),
        AliveBuffer(value="keys", bytes=600),
        AliveBuffer(value="mask", bytes=400),
    ),
    alive_count=5,
    asked_bytes=9000,
    buffer_bytes=6000,
    first_bytes=4096,
    later_bytes=5120,
    arena_bytes=1 << 20,
)


def sheet(
    plan: PlannedMemory, observed: int | None = None, there: int | None = None
) -> dict[str, Any]:
    """By title, the rows of the tables of one variant with this plan; `there`: on the GPU."""
    at = SimpleNamespace(fixture="max", activation_bytes=observed, device_activation_bytes=there)
    seen = SimpleNamespace(at=[at]) if observed is not None else None
    variant: Any = SimpleNamespace(name="portable", planned=plan, observed=seen)
    return {
        part.title or part.name: part
        for part in planned_sheet([variant])
        if isinstance(part, Table | Bars) and part.rows
    }


def cells(table: Table) -> list[str]:
    return [cell if isinstance(cell, str) else str(cell.text) for cell in table.rows[0]]


def test_a_plan_stands_beside_what_was_observed() -> None:
    found = sheet(PlannedMemory(at=(RUN,), values=9), observed=5000)["memory planned"]
    assert cells(found) == [
        *("portable", "batch=2, seq=64", "4.0 kB", "BiasGelu", "5.1 kB", "5.0 kB (+2%)", "1.0 MB"),
        *("9.0 kB", "6.0 kB", "1.0 kB", "scores 2.0 kB, keys 600 B and 3 more"),
    ]


def test_a_plan_below_what_was_observed_stands_out() -> None:
    def observed(bytes_seen: int) -> Any:
        return sheet(PlannedMemory(at=(RUN,)), observed=bytes_seen)["memory planned"].rows[0][5]

    assert type(observed(5120)) is str
    assert type(observed(5121)) is not str
    assert sheet(PlannedMemory(at=(RUN,)))["memory planned"].rows[0][5] == "-"


def test_live_memory_is_told_by_dims() -> None:
    terms = (
        MemoryTerm(bytes=0.5, dims=("batch", "seq", "seq")),
        MemoryTerm(bytes=36_864, dims=("batch", "seq")),
        MemoryTerm(bytes=8, dims=("a", "a", "a", "a")),
        MemoryTerm(bytes=68),
    )
    plan = PlannedMemory(live=terms)
    assert live_in_words(plan) == "0.5·batch·seq² + 36,864·batch·seq + 8·a^4 + 68"
    assert live_in_words(PlannedMemory()) == "0"
    assert sheet(plan)["live memory by dims"].rows == [["portable", live_in_words(plan)]]


def test_the_curve_is_bars_by_size() -> None:
    plan = PlannedMemory(curve=(CurvePoint(sizes={"seq": 8}, bytes=2000),))
    found = sheet(plan)["planned memory of portable, by size"]
    assert found.rows == [("seq=8", 2000, "2.0 kB")]
    assert "| `seq=8` | `2000` | `2.0 kB` |" in as_markdown([found])


def test_a_curve_says_that_more_was_observed_than_planned() -> None:
    plan = PlannedMemory(at=(RUN,), curve=(CurvePoint(sizes={"seq": 8}, bytes=2000),))
    title = "planned memory of portable, by size"
    assert title in sheet(plan, observed=5120)
    assert f"{title} (up to 25% more was observed)" in sheet(plan, observed=6400)


def test_why_there_is_no_plan_is_told() -> None:
    found = sheet(PlannedMemory(why_not="no run"))
    assert list(found) == ["memory not planned"]
    assert found["memory not planned"].rows == [["portable", "no run"]]


def test_the_gpu_and_what_goes_there_have_tables_of_their_own() -> None:
    held = PlannedCapture(sizes={"seq": 8}, buffers_bytes=1000, arena_bytes=3000)
    device = PlannedDevice(
        weights_bytes=7000,
        sessions=3,
        at=(RUN,),
        exact_bytes=8000,
        doubling_bytes=9000,
        captures=(held, held),
    )
    cuda = "CUDAExecutionProvider"
    copies = (
        PlannedCopies(sizes={"seq": 8}, source="", target=cuda, values=2, bytes=512),
        PlannedCopies(sizes={"seq": 8}, source=cuda, target="", values=3, bytes=64, unknown=1),
    )
    found = sheet(PlannedMemory(device=device, copies=copies), observed=0, there=6120)
    assert cells(found["memory planned on the GPU"])[4:8] == ["5.1 kB", "6.1 kB", "1.0 kB", "0 B"]
    assert cells(found["plan of the GPU"]) == [
        *("portable", "7.0 kB", "3", "doubling", "9.0 kB", "8.0 kB", "2", "8.0 kB")
    ]
    assert cells(found["captured sizes by plan"]) == ["portable", "seq=8", "1.0 kB", "3.0 kB"]
    assert found["copies"].rows == [
        ["portable", "seq=8", "caller", "CUDA", "2", "512 B"],
        ["portable", "seq=8", "CUDA", "caller", "3", "at least 64 B"],
    ]
    assert "memory planned on the GPU" not in sheet(PlannedMemory(at=(RUN,)))
