"""A screen of an artifact or a model, and what `aotc build -v` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aotc.base.text import duration, size
from aotc.cli.terminal import (
    FAILED,
    PASSED,
    count,
    facts,
    failed,
    findings_view,
    heading,
    noticed,
    one_line_facts,
    one_line_section,
    passed,
    short,
)
from aotc.cli.views.artifact import (
    UNVERIFIED,
    identity,
    model_text,
    operators_text,
    signers,
    sizes_text,
    tables,
)
from aotc.cli.views.variants import gates_text, placement_text
from aotc.spec.payload import Finding, Value
from aotc.spec.reports import BuildReport, InspectReport, Refusal, VariantSummary

if TYPE_CHECKING:
    from rich.console import RenderableType


# A screen of an artifact or a model: at most twenty lines, whatever it holds and its names are.


_MAX_LISTED: Final = 4
_MAX_VARIANTS: Final = 4


def built_summary(report: BuildReport, inspected: InspectReport) -> list[RenderableType]:
    """The outcome of a build, and how to see more."""
    status, style = outcome(report, inspected)
    rows = [
        *_facts(inspected, signer=signer_text(report)),
        ("took", took(report)),
        *_noticed((*inspected.findings, *_of_build(report, inspected)), inspected.problems),
        ("more", "aotc build -v, or aotc inspect"),
    ]
    return [
        heading(report.artifact, status, style, one_line=True),
        one_line_facts(rows),
        *_variants(inspected),
    ]


def inspected_summary(report: InspectReport) -> list[RenderableType]:
    """What an artifact or a model says of itself, the most important of it."""
    rows = [*_facts(report), *_noticed(report.findings, report.problems)]
    return [
        heading(report.path, *UNVERIFIED, one_line=True),
        one_line_facts(rows),
        *_variants(report),
    ]


def _facts(report: InspectReport, signer: str = "") -> list[tuple[str, str]]:
    rows = [
        ("model", model_text(report.source)),
        ("inputs", _values(report.inputs)),
        ("outputs", _values(report.outputs)),
    ]
    if report.domain is not None:
        rows.append(("sizes", _first([f"{k} {v}" for k, v in sizes_text(report.domain).items()])))
    artifact = report.artifact
    if artifact is None:
        return [*rows, ("operators", operators_text(report.source))]
    gates = gates_text(artifact.variants)
    return [
        *rows,
        *([("gates", gates)] if gates else []),
        ("artifact", artifact.artifact_id),
        ("profile", f"{artifact.profile}, for target {artifact.target}"),
        ("signed by", signer or signers(artifact)),
        ("size", f"{size(artifact.payload_bytes)} in {count(artifact.files, 'file')}"),
    ]


def _noticed(findings: Sequence[Finding], problems: Sequence[Refusal]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if findings:
        rows.append(("findings", noticed(_codes([finding.code for finding in findings]))))
    if problems:
        rows.append(("problems", failed(_codes([problem.code for problem in problems]))))
    return rows


def _codes(codes: Sequence[str]) -> str:
    return f"{len(codes)}: {_first(list(dict.fromkeys(codes)))}"


def _variants(report: InspectReport) -> list[RenderableType]:
    variants = _variants_of(report)
    if not variants:
        return []
    rows = [
        (
            variant.name,
            passed("passed") if variant.parity.status == "passed" else failed("NOT PROVEN"),
            placement_text(variant),
            duration(variant.load_seconds) if variant.load_seconds is not None else "-",
            _run(variant),
        )
        for variant in variants[:_MAX_VARIANTS]
    ]
    if len(variants) > _MAX_VARIANTS:
        # The row takes the place of the last, so that there are never more.
        rest = variants[_MAX_VARIANTS - 1 :]
        wrong = sum(variant.parity.status != "passed" for variant in rest)
        proof = failed(f"{wrong} NOT PROVEN") if wrong else passed("passed")
        rows[-1] = (f"and {len(rest)} more", proof, "", "", "")
    return [one_line_section("variants", ("", "nodes", "load", "run"), rows)]


def _run(variant: VariantSummary) -> str:
    runs = variant.run_seconds
    named = (runs[name] for name in ("opt", "opt-sampled") if name in runs)
    seconds = next(named, next(iter(runs.values()), None))
    return duration(seconds) if seconds is not None else "-"


def _values(values: Sequence[Value]) -> str:
    shown = []
    for value in values:
        sizes = "" if value.shape is None else f" [{', '.join(map(str, value.shape))}]"
        shown.append(f"{value.name} {value.dtype}{sizes}")
    return _first(shown)


def _first(items: Sequence[str]) -> str:
    rest = len(items) - _MAX_LISTED
    return ", ".join(items[:_MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


# What `aotc build -v` shows: the outcome, and what the artifact says of itself.


def build_view(report: BuildReport, inspected: InspectReport) -> list[RenderableType]:
    """What was built, from its report and from the artifact itself."""
    status, style = outcome(report, inspected)
    rows = [*identity(inspected, signer=signer_text(report)), ("took", took(report))]
    return [
        heading(report.artifact, status, style),
        facts(rows),
        *tables(inspected),
        *findings_view(_of_build(report, inspected)),
    ]


def _of_build(report: BuildReport, inspected: InspectReport) -> list[Finding]:
    """The findings of a build that the artifact does not state."""
    known = {(finding.code, finding.what) for finding in inspected.findings}
    return [each for each in report.findings if (each.code, each.what) not in known]


def outcome(report: BuildReport, inspected: InspectReport) -> tuple[str, str]:
    """How the build ended, in words, with its colour."""
    unproven = [each.name for each in _variants_of(inspected) if each.parity.status != "passed"]
    status, style = "built, proven and signed", PASSED
    if unproven:
        status, style = f"built and signed; NOT PROVEN: {', '.join(unproven)}", FAILED
    return (f"from the build cache; {status}" if report.cached else status), style


def signer_text(report: BuildReport) -> str:
    """Whose key signed it."""
    only = " (development key, which only this user trusts)" if report.development_key else ""
    return report.identity or f"{short(report.key_id)}{only}"


def took(report: BuildReport) -> str:
    """How long it took, with the three longest stages."""
    slowest = sorted(report.stages.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in slowest)
    return f"{duration(report.seconds)}: {parts}"


def _variants_of(report: InspectReport) -> tuple[VariantSummary, ...]:
    return report.artifact.variants if report.artifact is not None else ()
