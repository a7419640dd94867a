"""The figures of a benchmark, and its baseline as a gate, as a report tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.contract.results.bench_reports import BenchReport, Verdict
from aotc.contract.results.reports import Refusal
from aotc.contract.results.run_report import Figure, Gate, GateStatus
from aotc.reasons import REASONS

_STATUS: Final[Mapping[Verdict, GateStatus]] = {
    "slower": "failed",
    "within": "passed",
    "not shown": "not-judged",
}


def benchmark_figures(report: BenchReport) -> tuple[Figure, ...]:
    """Times of each side, and how the artifact compares with the model if one was given."""
    sides = [
        Figure(name=name, subject=side.name, value=value, unit="s")
        for side in report.timings
        for name, value in (
            ("load", side.load_seconds),
            ("first run", side.first_seconds),
            ("median", side.median_seconds),
            ("lower quartile", side.lower_seconds),
            ("upper quartile", side.upper_seconds),
            *side.latency_seconds.items(),
        )
    ]
    sides += [
        Figure(name="throughput", subject=side.name, value=side.calls_per_second, unit="runs/s")
        for side in report.timings
        if side.calls_per_second is not None
    ]
    ratios = (
        ("load", report.load_ratio),
        ("first answer", report.first_ratio),
        ("latency", report.latency_ratio),
    )
    sides += [
        Figure(name=name, subject="artifact / model", value=value, unit="times")
        for name, value in ratios
        if value is not None
    ]
    return tuple(sides)


def comparison_gate(report: BenchReport) -> tuple[Gate, ...]:
    """The baseline as a gate; none without one.  What is not shown is not judged."""
    compared = report.comparison
    if compared is None:
        return ()
    return (
        Gate(
            name="baseline",
            subject=report.artifact,
            status=_STATUS[compared.verdict],
            limit=f"median latency at most {compared.allow:g} times that of {compared.baseline}",
            measured=_interval(report),
        ),
    )


def slower_breach(report: BenchReport) -> tuple[Refusal, ...]:
    """AOTC-I067 where the artifact is slower than its baseline."""
    compared = report.comparison
    if compared is None or not compared.code:
        return ()
    return (
        Refusal(
            code=compared.code,
            what=f"the artifact is slower than its baseline: {compared.reason}",
            where=report.artifact,
            expected=f"<= {compared.allow:g} times {compared.baseline}",
            found=_interval(report),
            fix=REASONS[compared.code].fix,
        ),
    )


def _interval(report: BenchReport) -> str:
    compared = report.comparison
    assert compared is not None
    return (
        f"{compared.ratio:.3f}, {compared.confidence:.0%} interval "
        f"{compared.lower:.3f} to {compared.upper:.3f}, {compared.verdict}"
    )
