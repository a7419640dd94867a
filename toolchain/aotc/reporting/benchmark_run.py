"""The figures of a benchmark, as a report tells them."""

from __future__ import annotations

from aotc.contract.results.command_reports import BenchReport
from aotc.contract.results.run_report import Figure


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
        )
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
