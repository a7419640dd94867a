"""What `aotc fleet upgrade` shows: counts by outcome, then each model with figures of both."""

from __future__ import annotations

from collections import Counter
from typing import Final

from aotc.base.text import duration, size
from aotc.fleet.upgrade_outcomes import latency_in_words, why
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Sheet,
    Table,
    count,
    failed,
    findings_table,
    noticed,
    passed,
)
from aotc.report.sheets.model_checks import versions_text
from aotc.spec.upgrade import WORSE, RuntimeEnvironment, UpgradedModel, UpgradeReport

# Up to so many models are all listed; of more, only those that are not the same.
_ALL: Final = 40
_WIDEST: Final = 200


def upgrade_view(answer: UpgradeReport) -> Sheet:
    """What becomes of every model, those that are worse first."""
    worse = answer.worse()
    before, after = answer.before.versions.onnxruntime, answer.after.versions.onnxruntime
    status, style = ("none is worse", PASSED) if not worse else (f"{len(worse)} WORSE", FAILED)
    if all(each.outcome == "fails-in-both" for each in answer.models):
        status, style = "none is built by either", NOTICED
    if answer.unchecked:
        status, style = f"INTERRUPTED, {count(len(answer.unchecked), 'model')} left", NOTICED
    counted = Counter(_in_words(each) for each in answer.models)
    shown = [each for each in answer.models if len(answer.models) <= _ALL or each.outcome != "same"]
    shown.sort(key=lambda each: (each.outcome not in WORSE, each.outcome == "same"))
    identical = sum(each.answers.identical for each in answer.models)
    compared = sum(bool(each.answers.calls) for each in answer.models)
    return [
        Heading(
            answer.fleet,
            f"ONNX Runtime {before} to {after}: {count(len(answer.models), 'model')}, {status}",
            style,
        ),
        Facts(
            [
                ("before", _environment(answer.before)),
                ("after", _environment(answer.after)),
                (
                    "answers",
                    f"of {count(compared, 'model')} compared, equal bit by bit in {identical}",
                ),
                ("finished before", str(answer.resumed) if answer.resumed else ""),
                ("took", duration(answer.seconds)),
            ]
        ),
        Table("outcome", ("models",), [(name, str(n)) for name, n in counted.most_common()]),
        Table(
            "models",
            ("outcome", "latency", "size", "build", ""),
            [_row(each, before) for each in shown],
        ),
        Table(
            "the artifact built before does not run",
            ("",),
            [(e.model, e.answers.earlier_artifact) for e in shown if e.answers.earlier_artifact],
        ),
        Table(
            "not compared",
            ("",),
            [(e.model, reason) for e in answer.models for reason in e.answers.not_compared],
            limit=_ALL,
        ),
        Table("skipped", ("",), [(e.path, e.reason) for e in answer.skipped], limit=_ALL),
        findings_table(answer.findings),
    ]


def _environment(about: RuntimeEnvironment) -> str:
    where = f"{about.stated}: " if about.stated else ""
    made = ", ".join(
        f"{each.name} {each.version} (sha256 {each.sha256[:12]})" for each in about.installed
    )
    text = f"{where}{versions_text(about.versions)}"
    return f"{text}; installed {made}" if made else text


def _in_words(each: UpgradedModel) -> str:
    return each.outcome.replace("-", " ")


def _row(each: UpgradedModel, before: str) -> tuple[str, ...]:
    tell = failed if each.outcome in WORSE else passed if each.outcome == "same" else noticed
    text = why(each, before)
    return (
        each.model,
        tell(_in_words(each)),
        latency_in_words(each.latency),
        _change(each.before.payload_bytes, each.after.payload_bytes),
        f"{each.before.seconds:.1f} s to {each.after.seconds:.1f} s"
        if each.before.seconds and each.after.seconds
        else "",
        text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}...",
    )


def _change(before: int | None, after: int | None) -> str:
    """Bytes before and after."""
    if before is None or after is None:
        return ""
    return size(after) if before == after else f"{size(before)} to {size(after)}"
