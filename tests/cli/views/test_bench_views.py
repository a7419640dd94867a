"""The terminal's text of a measurement, exactly."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from aotc.base.records import replace
from aotc.cli import terminal
from aotc.report.sheets.measurements import bench_view
from aotc.spec.bench_reports import (
    BenchReport,
    Comparison,
    NodesReport,
    NodeTime,
    ProviderTime,
    Timing,
)
from aotc.spec.payload import Finding
from aotc.spec.reports import LoadReport

SNAPSHOTS = Path(__file__).parent / "bench_snapshots"


def load_report() -> LoadReport:
    return LoadReport(
        artifact_id="12ab" * 16,
        variant="native",
        verdict="optimal",
        from_store=True,
        verify_seconds=0.0041,
        session_seconds=0.00116,
        warmup_seconds=0.0003,
        fixtures=2,
    )


def bench_answer() -> BenchReport:
    def timing(name: str, factor: float) -> Timing:
        return Timing(
            name=name,
            load_seconds=0.00116 * factor,
            first_run_seconds=0.000094 * factor,
            median_seconds=0.0000271 * factor,
            lower_seconds=0.0000266 * factor,
            upper_seconds=0.0000289 * factor,
            samples=50,
            mean_seconds=0.0000275 * factor,
            latency_seconds={"p50": 0.0000271 * factor, "p90": 0.0000302 * factor},
            samples_needed={"p99": 299},
            calls_per_second=36300 / factor,
        )

    return BenchReport(
        artifact="digits.aotc",
        variant="native",
        sizes={"batch": 1},
        runs=50,
        load=load_report(),
        timings=(timing("artifact", 1), timing("model", 1.5)),
        load_ratio=0.7234,
        first_ratio=4.05,
        latency_ratio=0.9,
    )


def bench_against_answer() -> BenchReport:
    """By four streams, slower than the baseline, with nodes of two providers and a partition."""
    node = NodeTime(
        name="conv", op="Conv", provider="CPUExecutionProvider", calls=1, seconds=3e-6, share=0.25
    )
    nodes = NodesReport(
        variant="native",
        profiled_runs=20,
        runs=10,
        run_seconds=15e-6,
        node_seconds=12e-6,
        providers=(
            ProviderTime(provider="CUDAExecutionProvider", nodes=2, seconds=9e-6, share=0.75),
            ProviderTime(provider="CPUExecutionProvider", nodes=23, seconds=3e-6, share=0.25),
        ),
        nodes=(
            replace(node, name="cuda0", partition="cuda0", partition_nodes=7,
                    provider="CUDAExecutionProvider", promised="CUDAExecutionProvider"),
            replace(node, promised="CUDAExecutionProvider", calls=3),
            replace(node, name="ReorderOutput", op="ReorderOutput"),
            *(replace(node, name=f"relu{index}", op="Relu", promised=node.provider)
              for index in range(22)),
        ),
        asynchronous=("CUDAExecutionProvider",),
    )  # fmt: skip
    comparison = Comparison(
        baseline="earlier.aotc",
        kind="artifact",
        artifact_id="ab" * 32,
        ratio=1.21,
        lower=1.18,
        upper=1.2345,
        confidence=0.95,
        max_ratio=1.05,
        rounds=30,
        verdict="slower",
        code="AOTC-I067",
        reason="the whole interval is above 1.05",
    )
    return replace(bench_answer(), streams=4, nodes=nodes, comparison=comparison)


VIEWS = {
    "alone": lambda: replace(
        bench_answer(), timings=bench_answer().timings[:1], load_ratio=None, first_ratio=None,
        latency_ratio=None,
    ),
    "model": bench_answer,
    "baseline": bench_against_answer,
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    shown = io.StringIO()
    terminal.show_sheet(bench_view(VIEWS[name]()), file=shown)
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("AOTC_UPDATE_SNAPSHOTS") == "1":
        path.write_text(shown.getvalue(), encoding="utf-8")
    assert shown.getvalue() == path.read_text(encoding="utf-8")


def test_what_a_node_is_called_cannot_steer_the_terminal() -> None:
    hostile = "x\x1b[31m\n\u202e"
    answer = bench_against_answer()
    assert answer.nodes is not None
    node = replace(answer.nodes.nodes[0], name=hostile, op=hostile)
    answer = replace(
        answer,
        artifact=hostile,
        nodes=replace(answer.nodes, variant=hostile, nodes=(node,)),
        findings=(Finding(code="AOTC-R009", what=hostile),),
    )
    shown = io.StringIO()
    terminal.show_sheet(bench_view(answer), file=shown)
    assert not set("\x1b\u202e") & set(shown.getvalue())
