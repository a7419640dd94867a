"""What bench, run and doctor show, and what a load cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aotc.base.text import duration
from aotc.cli.terminal import (
    FAILED,
    NOTICED,
    PASSED,
    by_status,
    count,
    facts,
    findings_view,
    fixture_in_words,
    heading,
    provider,
    section,
    sections,
    short,
)
from aotc.spec.bench_reports import BenchReport, Comparison, NodesReport, NodeTime, Timing
from aotc.spec.command_reports import CallRoute, DoctorReport, RunOutput, RunReport
from aotc.spec.reports import LoadReport

if TYPE_CHECKING:
    from rich.console import RenderableType


# What bench shows: times of each side, of the slowest nodes, and the verdict on a baseline.


# `--json` has all.
_SLOWEST: Final = 20
_STYLES: Final = {"slower": FAILED, "within": PASSED, "inconclusive": NOTICED}


def bench_view(answer: BenchReport) -> list[RenderableType]:
    """Times of all sides, and their ratios."""
    sizes = ", ".join(f"{name}={size}" for name, size in answer.sizes.items())
    streams = f", by {count(answer.streams, 'stream')}" if answer.streams > 1 else ""
    turns = " of each side in turn" if len(answer.timings) > 1 else ""
    parts = [
        heading(answer.artifact, f"{count(answer.runs, 'run')}{turns}{streams}"),
        facts([*load_facts(answer.load, answer.artifact), ("sizes", sizes)]),
        section(
            "times",
            ("session", "first run", "p50", "p90", "p99", "quartiles", "mean", "runs/s"),
            [_times(timing) for timing in answer.timings],
        ),
    ]
    needed = {
        name: more for timing in answer.timings for name, more in timing.samples_needed.items()
    }
    rows = [(name, f"needs {count(more, 'run')}") for name, more in needed.items()]
    parts += sections("not stated", ("",), rows)
    ratios = (
        ("session", answer.load_ratio),
        ("to the first answer, verified", answer.first_ratio),
        ("median run", answer.latency_ratio),
    )
    stated = [(name, f"{ratio:.2f}") for name, ratio in ratios if ratio is not None]
    parts += sections("artifact / model", ("",), stated)
    if answer.comparison is not None:
        parts += _comparison(answer.comparison)
    if answer.nodes is not None:
        parts += _nodes(answer.nodes)
    return [*parts, *findings_view(answer.findings)]


def _times(timing: Timing) -> tuple[str, ...]:
    stated = timing.latency_seconds
    p50 = stated.get("p50", timing.median_seconds)
    mean, rate = timing.mean_seconds, timing.calls_per_second
    return (
        timing.name,
        duration(timing.load_seconds),
        duration(timing.first_run_seconds),
        duration(p50),
        *(duration(stated[name]) if name in stated else "-" for name in ("p90", "p99")),
        f"{duration(timing.lower_seconds)} to {duration(timing.upper_seconds)}",
        "-" if mean is None else duration(mean),
        "-" if rate is None else f"{rate:.3g}" if rate < 100 else f"{rate:.0f}",
    )


def _comparison(found: Comparison) -> list[RenderableType]:
    verdict = found.verdict.upper() if found.verdict == "slower" else found.verdict
    code = f" ({found.code})" if found.code else ""
    when = f", measured {found.measured_at}" if found.measured_at else ", measured in turn"
    if found.measurements > 1:
        when += f" and {count(found.measurements - 1, 'time')} before"
    return [
        heading(f"against {found.baseline}", f"{verdict}{code}", _STYLES[found.verdict]),
        facts(
            [
                ("baseline", f"{short(found.artifact_id)}{when}"),
                ("ratio", f"{found.ratio:.3f} of the median run, artifact / baseline"),
                (
                    "interval",
                    f"{found.lower:.3f} to {found.upper:.3f}, {found.confidence:.0%}, "
                    f"from {count(found.rounds, 'round')}; {found.max_ratio:g} is allowed",
                ),
                ("verdict", f"{found.verdict}: {found.reason}"),
            ]
        ),
    ]


def _nodes(found: NodesReport) -> list[RenderableType]:
    by_provider = [
        (provider(each.provider), str(each.nodes), duration(each.seconds), f"{each.share:.1%}")
        for each in found.providers
    ]
    slowest = [
        (
            node.name,
            node.op if not node.partition_nodes else f"{count(node.partition_nodes, 'node')}",
            _provider(node),
            duration(node.seconds),
            f"{node.share:.1%}",
            "" if node.calls == 1 else f"{node.calls:g} times",
        )
        for node in found.nodes[:_SLOWEST]
    ]
    left = len(found.nodes) - _SLOWEST
    if left > 0:
        rest = found.nodes[_SLOWEST:]
        share, seconds = sum(node.share for node in rest), sum(node.seconds for node in rest)
        slowest.append((f"and {left} more", "", "", duration(seconds), f"{share:.1%}", ""))
    title = f"nodes of {found.variant}"
    rows = [
        (
            "profiled",
            f"{count(found.profiled_runs, 'run')} in a session of its own; of the faster "
            f"{found.runs}:",
        ),
        ("run", f"{duration(found.run_seconds)}, of which nodes {duration(found.node_seconds)}"),
    ]
    if found.asynchronous:
        names = ", ".join(map(provider, found.asynchronous))
        rows.append(("launches", f"of {names}: a node may end before its device has computed it"))
    return [
        facts(rows),
        section("providers", ("nodes", "time", "share"), by_provider),
        section(title, ("operator", "provider", "time", "share", ""), slowest),
    ]


def _provider(node: NodeTime) -> str:
    name = provider(node.provider)
    if not node.promised:
        return f"{name}, made at load"
    return name if node.promised == node.provider else f"{name}, promised {provider(node.promised)}"


# What run and doctor show, and what a load cost.


def run_view(answer: RunReport) -> list[RenderableType]:
    """Outputs of every run."""
    parts = [
        heading(answer.artifact, f"loaded, {answer.load.verdict}"),
        facts(load_facts(answer.load, answer.artifact)),
    ]
    parts += _variants(answer.load)
    for case in answer.runs:
        rows = [_output(output) for output in case.outputs]
        title = f"run: {fixture_in_words(case.name)} ({duration(case.seconds)}{_route(case.route)})"
        parts.append(section(title, ("output", "minimum", "mean", "maximum", "file"), rows))
    return [*parts, *findings_view(answer.findings)]


def _route(route: CallRoute | None) -> str:
    if route is None:
        return ""
    sizes = ", ".join(
        f"{name}={size}" for name, size in route.padded_to.items() if size != route.sizes.get(name)
    )
    return f", on {route.variant}" + (f", padded to {sizes}" if sizes else "")


def _output(output: RunOutput) -> tuple[str, ...]:
    figures = (
        "-" if number is None else f"{number:.6g}"
        for number in (output.minimum, output.mean, output.maximum)
    )
    return (output.name, output.value, *figures, output.file or "-")


def load_facts(report: LoadReport, artifact: str) -> list[tuple[str, str]]:
    """What a load did, and what each step of it took."""
    held = (
        "in the store"
        if report.from_store and report.hashed and artifact == f"sha256-{report.artifact_id}"
        else "in the store, which held it; the files at the path were not read"
        if report.from_store and report.hashed
        else "in the system-wide store, by signature; hashed at install"
        if report.from_store
        else "while copied into the store"
    )
    ran = count(report.fixtures - report.fixtures_before, "fixture")
    warmed = (
        f"{duration(report.warmup_seconds)}, {ran} ran and matched"
        if report.fixtures
        else "none: no fixture ran"
    )
    if report.fixtures_before:
        warmed += f", {report.fixtures_before} did at an earlier load"
    return [
        ("artifact", short(report.artifact_id)),
        ("variant", report.variant),
        ("verified", f"{duration(report.verify_seconds)}, {held}"),
        ("session", duration(report.session_seconds)),
        ("warm-up", warmed),
    ]


def _variants(report: LoadReport) -> list[RenderableType]:
    """What each variant cost, where there are several."""
    if len(report.variants) < 2:
        return []
    rows = [
        (
            variant.name,
            duration(variant.session_seconds),
            duration(variant.warmup_seconds),
            duration(variant.first_run_seconds) if variant.first_run_seconds is not None else "-",
            f"{count(variant.fixtures, 'fixture')} matched"
            if variant.fixtures
            else "nothing compared",
        )
        for variant in report.variants
    ]
    return [section("variants", ("session", "warm-up", "first run", ""), rows)]


def doctor_view(answer: DoctorReport) -> list[RenderableType]:
    """Every check, what is bad first to be seen in the heading."""
    bad = sum(check.status == "failed" for check in answer.checks)
    status = "healthy" if answer.healthy else f"{count(bad, 'problem')} to fix"
    rows = [
        (
            check.name,
            by_status(check.status),
            (check.found, check.fix) if check.fix else check.found,
        )
        for check in answer.checks
    ]
    return [
        heading("aotc doctor", status, PASSED if answer.healthy else FAILED),
        section("checks", ("", ""), rows),
    ]
