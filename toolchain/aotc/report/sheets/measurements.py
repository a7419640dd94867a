"""What bench, run and doctor show, and what a load cost."""

from __future__ import annotations

from typing import Final

from aotc.base.text import duration, size
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
    span,
    stated,
    table,
    with_titles,
)
from aotc.spec.bench_reports import BenchReport, Comparison, NodesReport, NodeTime
from aotc.spec.command_reports import CallRoute, DoctorReport, RunReport
from aotc.spec.reports import LoadReport
from aotc.spec.shapes import sizes_in_words

# What bench shows: times of each side, of the slowest nodes, and the verdict on a baseline.


# `--json` has all.
_SLOWEST: Final = 20
_STYLES: Final = {"slower": FAILED, "within": PASSED, "inconclusive": NOTICED}


def bench_view(answer: BenchReport) -> Sheet:
    """Times of all sides, and their ratios."""
    sizes = sizes_in_words(answer.sizes)
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
        table(
            "times",
            answer.timings,
            ("side", lambda each: each.name),
            ("session", lambda each: duration(each.load_seconds)),
            ("first run", lambda each: duration(each.first_run_seconds)),
            ("p50", lambda each: duration(each.latency_seconds.get("p50", each.median_seconds))),
            ("p90", lambda each: stated(each.latency_seconds.get("p90"), duration)),
            ("p99", lambda each: stated(each.latency_seconds.get("p99"), duration)),
            ("quartiles", lambda each: span(each.lower_seconds, each.upper_seconds)),
            ("mean", lambda each: stated(each.mean_seconds, duration)),
            ("runs/s", lambda each: stated(each.calls_per_second, _rate)),
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


def _rate(rate: float) -> str:
    return f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"


def _comparison(found: Comparison) -> Sheet:
    verdict = found.verdict.upper() if found.verdict == "slower" else found.verdict
    code = f": {with_titles(found.code)}" if found.code else ""
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
        table(
            "providers",
            found.providers,
            ("provider", lambda each: provider(each.provider)),
            ("nodes", lambda each: str(each.nodes)),
            ("time", lambda each: duration(each.seconds)),
            ("share", lambda each: f"{each.share:.1%}"),
        ),
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
        table(
            f"run: {fixture_in_words(case.name)} ({duration(case.seconds)}{_route(case.route)})",
            case.outputs,
            ("name", lambda output: output.name),
            ("output", lambda output: output.value),
            ("minimum", lambda output: stated(output.minimum, "{:.6g}".format)),
            ("mean", lambda output: stated(output.mean, "{:.6g}".format)),
            ("maximum", lambda output: stated(output.maximum, "{:.6g}".format)),
            ("file", lambda output: output.file or "-"),
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
        *([("device memory", size(report.device_bytes))] if report.device_bytes else []),
    ]


def _variants(report: LoadReport) -> Table:
    """What each variant cost, where there are several."""
    return table(
        "variants",
        report.variants if len(report.variants) > 1 else (),
        ("variant", lambda each: each.name),
        ("session", lambda each: duration(each.session_seconds)),
        ("warm-up", lambda each: duration(each.warmup_seconds)),
        ("first run", lambda each: stated(each.first_run_seconds, duration)),
        (
            "",
            lambda each: (
                f"{count(each.fixtures, 'fixture')} matched"
                if each.fixtures
                else "nothing compared"
            ),
        ),
    )


def doctor_view(answer: DoctorReport) -> Sheet:
    """Every check, what is bad first to be seen in the heading."""
    bad = sum(check.status == "failed" for check in answer.checks)
    status = "healthy" if answer.healthy else f"{count(bad, 'problem')} to fix"
    checks = table(
        "checks",
        answer.checks,
        ("check", lambda check: check.name),
        ("", lambda check: by_status(check.status)),
        ("", lambda check: (check.found, check.fix) if check.fix else check.found),
    )
    return [Heading("aotc doctor", status, PASSED if answer.healthy else FAILED), checks]
