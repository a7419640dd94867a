"""A screen of an artifact or a model, and what `aotc build -v` shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aotc.base.codes import REASONS
from aotc.base.text import duration
from aotc.report.sheet import (
    FAILED,
    PASSED,
    Facts,
    Heading,
    Screen,
    Sheet,
    Table,
    failed,
    findings_table,
    first,
    noticed,
    passed,
    short,
    stated,
    verdict,
    with_titles,
)
from aotc.report.sheets.artifact import (
    UNVERIFIED,
    identity,
    model_text,
    operators_text,
    random_text,
    sizes_text,
    tables,
    value_text,
)
from aotc.report.sheets.capture import captured_text
from aotc.report.sheets.variants import (
    gates_text,
    measured_elsewhere,
    placement_text,
    run_text,
    usual_fixture,
)
from aotc.spec.payload import Finding, Value
from aotc.spec.reports import BuildReport, InspectReport, VariantSummary

# Of values, sizes and codes in one line.
_MAX_LISTED: Final = 4
_MAX_VARIANTS: Final = 4
# A finding whose figures belong on the screen: what was asked for was hardly done.
_LITTLE_QUANTIZED: Final = "AOTC-N070"
_SLOWER: Final = "AOTC-N075"


def built_summary(report: BuildReport, inspected: InspectReport) -> Screen:
    """The outcome of a build, and how to see more."""
    found = (*inspected.findings, *_of_build(report, inspected))
    title = Heading(report.artifact, *outcome(report, inspected))
    took_row = ("took", took(report))
    answers_row = ("answers", f"as those of {report.against}" if report.against else "")
    last = _to_prove(inspected) or ("more", "aotc build -v, or aotc inspect")
    return _screen(title, inspected, found, signer_text(report), (answers_row, took_row), (last,))


def inspected_summary(report: InspectReport) -> Screen:
    """What an artifact or a model says of itself, the most important of it."""
    last = _to_prove(report)
    title = Heading(report.path, *UNVERIFIED)
    return _screen(title, report, report.findings, after=(last,) if last is not None else ())


def _to_prove(report: InspectReport) -> tuple[str, str] | None:
    """What proves the first variant that is not proven; None if all are."""
    if all(each.parity.status == "passed" for each in _variants_of(report)):
        return None
    artifact = shlex.quote(Path(report.path).name)
    return "to prove", f"on the device: aotc attest {artifact} --qualify"


def _screen(
    title: Heading,
    report: InspectReport,
    findings: Sequence[Finding],
    signer: str = "",
    before: Sequence[tuple[str, str]] = (),
    after: Sequence[tuple[str, str]] = (),
) -> Screen:
    """At most twenty lines, whatever it holds and its names are."""
    artifact = report.artifact
    framework = report.source.framework
    sizes = sizes_text(report.domain) if report.domain is not None else {}
    rows = [
        ("model", model_text(report.source)),
        ("captured", captured_text(framework) if framework is not None else ""),
        ("inputs", first([_named(value) for value in report.inputs], _MAX_LISTED)),
        ("outputs", first([_named(value) for value in report.outputs], _MAX_LISTED)),
        ("sizes", first([f"{name} {text}" for name, text in sizes.items()], _MAX_LISTED)),
    ]
    if artifact is None:
        rows.append(("operators", operators_text(report.source)))
    else:
        known = dict(identity(report, signer=signer))
        rows.append(("random", random_text(artifact.random)))
        rows.append(("gates", gates_text(artifact.variants)))
        rows += [(name, known[name]) for name in ("artifact", "profile", "signed by", "size")]
    little = [each.what for each in findings if each.code == _LITTLE_QUANTIZED]
    slower = [_without_costs(each.what) for each in findings if each.code == _SLOWER]
    noted = [
        ("quantized", noticed(first(little, 1))),
        ("slower", noticed(first(slower, 1))),
        ("findings", noticed(_codes([each.code for each in findings]))),
        ("problems", failed(_codes([each.code for each in report.problems]))),
    ]
    variants = Table("variants", ("", "nodes", "load", "run"), _variants(_variants_of(report)))
    return Screen([title, Facts([*rows, *before, *noted, *after]), variants])


def _without_costs(text: str) -> str:
    """How much slower a variant is, and what to try; the operators are in the finding."""
    said, _, tries = text.rpartition("; try ")
    return f"{said.partition(' (')[0]}; try {tries}" if said else text


def _codes(codes: Sequence[str]) -> str:
    """Codes with their titles; those that ask for something come first, as lines are cut."""
    known = [REASONS[code] for code in dict.fromkeys(codes) if code in REASONS]
    known.sort(key=lambda reason: reason.fix.startswith("Nothing to do"))
    said = [with_titles(reason.code) for reason in known]
    said += [code for code in dict.fromkeys(codes) if code not in REASONS]
    return f"{len(codes)}: {first(said, _MAX_LISTED)}" if codes else ""


def _variants(variants: Sequence[VariantSummary]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (
            variant.name,
            verdict(variant.parity.status == "passed", "NOT PROVEN"),
            placement_text(variant),
            stated(variant.load_seconds, duration),
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
    return rows


def _run(variant: VariantSummary) -> str:
    """The time of the fixture that stands for a variant, and whether it is that of its target."""
    name = usual_fixture(variant)
    return run_text(variant, name) + measured_elsewhere(variant) if name else "-"


def _named(value: Value) -> str:
    return f"{value.name} {value_text(value)}"


def build_view(report: BuildReport, inspected: InspectReport) -> Sheet:
    """What was built, from its report and from the artifact itself, as `aotc build -v` shows it."""
    rows = [*identity(inspected, signer=signer_text(report)), ("took", took(report))]
    if report.against:
        rows.append(("answers", f"as those of {report.against}"))
    return [
        Heading(report.artifact, *outcome(report, inspected)),
        Facts(rows),
        *tables(inspected),
        findings_table(_of_build(report, inspected)),
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
