"""What run and doctor show, and what a load cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.cli.fixture_words import fixture_in_words
from aotc.cli.render import count, duration, facts, findings_view, heading, section, short
from aotc.cli.result_styles import FAILED, PASSED, by_status
from aotc.contract.results.command_reports import (
    CallRoute,
    DoctorReport,
    RunOutput,
    RunReport,
)
from aotc.contract.results.reports import LoadReport

if TYPE_CHECKING:
    from rich.console import RenderableType


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
            f"{count(variant.accepted, 'fixture')} matched"
            if variant.accepted
            else "nothing compared",
        )
        for variant in report.variants
    ]
    return [section("variants", ("session", "warm-up", "first run", ""), rows)]


def doctor_view(answer: DoctorReport) -> list[RenderableType]:
    """Every check, what is bad first to be seen in the heading."""
    bad = sum(check.status == "bad" for check in answer.checks)
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
