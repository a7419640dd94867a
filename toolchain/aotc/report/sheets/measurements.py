"""What bench, run and doctor show, and what a load cost."""

from __future__ import annotations

from typing import Final

from aotc.base.text import duration
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Sheet,
    Table,
    by_status,
    count,
    findings_table,
    fixture_in_words,
    provider,
    short,
    stated,
)
from aotc.spec.bench_reports import BenchReport, Comparison, NodesReport, NodeTime, Timing
from aotc.spec.command_reports import CallRoute, DoctorReport, RunOutput, RunReport
from aotc.spec.reports import LoadReport

# What bench shows: times of each side, of the slowest nodes, and the verdict on a baseline.


# `--json` has all.
_SLOWEST: Final = 20
_STYLES: Final = {"slower": FAILED, "within": PASSED, "inconclusive": NOTICED}


def bench_view(answer: BenchReport) -> Sheet:
    """Times of all sides, and their ratios."""
    sizes = ", ".join(f"{name}={size}" for name, size in answer.sizes.items())
    streams = f", by {count(answer.streams, 'stream')}" if answer.streams > 1 else ""
    turns = " of each side in turn" if len(answer.timings) > 1 else ""
    needed = {name: more for each in answer.timings for name, more in each.samples_needed.items()}
    ratios = (
        ("session", answer.load_ratio),
        ("to the first answer, verified", answer.first_ratio),
        ("median run", answer.latency_ratio),
    )
    return [
        Heading(answer.artifact, f"{count(answer.runs, 'run')}{turns}{streams}"),
        Facts([*load_facts(answer.load, answer.artifact), ("sizes", sizes)]),
        Table(
            "times",
            ("session", "first run", "p50", "p90", "p99", "quartiles", "mean", "runs/s"),
            [_times(timing) for timing in answer.timings],
        ),
        Table("not stated", ("",), [(k, f"needs {count(n, 'run')}") for k, n in needed.items()]),
        Table(
            "artifact / model",
            ("",),
            [(name, f"{ratio:.2f}") for name, ratio in ratios if ratio is not None],
        ),
        *(_comparison(answer.comparison) if answer.comparison is not None else ()),
        *(_nodes(answer.nodes) if answer.nodes is not None else ()),
        findings_table(answer.findings),
    ]


def _times(timing: Timing) -> tuple[str, ...]:
    latency, rate = timing.latency_seconds, timing.calls_per_second
    return (
        timing.name,
        duration(timing.load_seconds),
        duration(timing.first_run_seconds),
        duration(latency.get("p50", timing.median_seconds)),
        *(stated(latency.get(name), duration) for name in ("p90", "p99")),
        f"{duration(timing.lower_seconds)} to {duration(timing.upper_seconds)}",
        stated(timing.mean_seconds, duration),
        "-" if rate is None else f"{rate:.3g}" if rate < 100 else f"{rate:.0f}",
    )


def _comparison(found: Comparison) -> Sheet:
    verdict = found.verdict.upper() if found.verdict == "slower" else found.verdict
    code = f" ({found.code})" if found.code else ""
    when = f", measured {found.measured_at}" if found.measured_at else ", measured in turn"
    if found.measurements > 1:
        when += f" and {count(found.measurements - 1, 'time')} before"
    return [
        Heading(f"against {found.baseline}", f"{verdict}{code}", _STYLES[found.verdict]),
        Facts(
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


def _nodes(found: NodesReport) -> Sheet:
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
    rows = [
        (
            "profiled",
            f"{count(found.profiled_runs, 'run')} in a session of its own; of the faster "
            f"{found.runs}:",
        ),
        ("run", f"{duration(found.run_seconds)}, of which nodes {duration(found.node_seconds)}"),
    ]
    names = ", ".join(map(provider, found.asynchronous))
    early = f"of {names}: a node may end before its device has computed it" if names else ""
    return [
        Facts([*rows, ("launches", early)]),
        Table("providers", ("nodes", "time", "share"), by_provider),
        Table(f"nodes of {found.variant}", ("operator", "provider", "time", "share", ""), slowest),
    ]


def _provider(node: NodeTime) -> str:
    name = provider(node.provider)
    if not node.promised:
        return f"{name}, made at load"
    return name if node.promised == node.provider else f"{name}, promised {provider(node.promised)}"


# What run and doctor show, and what a load cost.


def run_view(answer: RunReport) -> Sheet:
    """Outputs of every run."""
    runs = [
        Table(
            f"run: {fixture_in_words(case.name)} ({duration(case.seconds)}{_route(case.route)})",
            ("output", "minimum", "mean", "maximum", "file"),
            [_output(output) for output in case.outputs],
        )
        for case in answer.runs
    ]
    return [
        Heading(answer.artifact, f"loaded, {answer.load.verdict}"),
        Facts(load_facts(answer.load, answer.artifact)),
        _variants(answer.load),
        *runs,
        findings_table(answer.findings),
    ]


def _route(route: CallRoute | None) -> str:
    if route is None:
        return ""
    sizes = ", ".join(
        f"{name}={size}" for name, size in route.padded_to.items() if size != route.sizes.get(name)
    )
    return f", on {route.variant}" + (f", padded to {sizes}" if sizes else "")


def _output(output: RunOutput) -> tuple[str, ...]:
    numbers = (output.minimum, output.mean, output.maximum)
    figures = (stated(number, "{:.6g}".format) for number in numbers)
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


def _variants(report: LoadReport) -> Table:
    """What each variant cost, where there are several."""
    rows = [
        (
            variant.name,
            duration(variant.session_seconds),
            duration(variant.warmup_seconds),
            stated(variant.first_run_seconds, duration),
            f"{count(variant.fixtures, 'fixture')} matched"
            if variant.fixtures
            else "nothing compared",
        )
        for variant in report.variants
        if len(report.variants) > 1
    ]
    return Table("variants", ("session", "warm-up", "first run", ""), rows)


def doctor_view(answer: DoctorReport) -> Sheet:
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
        Heading("aotc doctor", status, PASSED if answer.healthy else FAILED),
        Table("checks", ("", ""), rows),
    ]
