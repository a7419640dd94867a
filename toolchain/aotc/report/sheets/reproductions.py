"""What `aotc reproduce` shows: the outcome, what was used, and what differs."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps
from typing import Final

from aotc.base.text import duration
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Heading,
    Result,
    Sheet,
    Table,
    count,
    failed,
    noticed,
    passed,
    short,
)
from aotc.report.sheets.differences import answers_facts, nodes_text, weights_sheet
from aotc.spec.codec import Json
from aotc.spec.reproduction import (
    IN_WORDS,
    BuildEnvironment,
    NotReproduced,
    Outcome,
    ReproduceReport,
    VariantRebuilt,
)

_STYLES: Final[dict[Outcome, str]] = {
    "identical": PASSED,
    "in-part": NOTICED,
    "same-answers": FAILED,
    "different": FAILED,
}
_TITLES: Final[dict[Outcome, str]] = {
    "identical": "identical",
    "in-part": "identical, in part",
    "same-answers": "NOT IDENTICAL, the same answers",
    "different": "DIFFERENT",
}
# Characters of a value.
_WIDEST: Final = 44
_MOST: Final = 20


def foreseen_view(rows: Sequence[NotReproduced], environment: BuildEnvironment) -> Sheet:
    """What cannot be the same here, before anything is built."""
    return [Facts(_environment(environment)), _not_reproduced(rows)]


def reproduced_view(report: ReproduceReport) -> Sheet:
    """What building an artifact again came to."""
    same = report.artifact_id == report.rebuilt_id
    attested = report.attested
    rows = [
        ("artifact", report.artifact_id),
        ("rebuilt", "the same id" if same else report.rebuilt_id),
        ("outcome", IN_WORDS[report.outcome]),
        *_environment(report.environment),
        ("kept", report.kept),
        ("attested", f"{attested.path}, by {short(attested.key_id)}" if attested else ""),
        ("took", duration(report.seconds)),
    ]
    sheet: Sheet = [
        Heading(report.artifact, _TITLES[report.outcome], _STYLES[report.outcome]),
        Facts(rows),
        _not_reproduced(report.not_reproduced),
        Table("variants", ("",), [(each.name, _variant(each)) for each in report.variants]),
        Table(
            "files that differ",
            ("", "recorded", "rebuilt"),
            [
                (
                    each.path,
                    noticed("as told before") if each.stated else failed("differs"),
                    short(each.recorded) or "none",
                    short(each.rebuilt) or "none",
                )
                for each in report.files
            ],
            limit=_MOST,
        ),
    ]
    if report.diff is not None:
        sheet.append(
            Table(
                "fields of aotc.json that differ",
                ("recorded", "rebuilt"),
                [(each.what, _value(each.a), _value(each.b)) for each in report.fields],
                limit=_MOST,
            )
        )
        nodes = [(each.variant, text) for each in report.diff.nodes for text in nodes_text(each)]
        sheet += [Table("nodes that differ", ("",), nodes), *weights_sheet(report.diff.weights)]
    if report.answers is not None:
        sheet.append(answers_facts(report.answers))
        sheet.append(
            Table(
                "answers",
                ("max abs", "fixture", ""),
                [
                    (
                        error.output,
                        f"{error.max_abs:.3g}",
                        fixture,
                        passed("same") if error.passed else failed(error.reason),
                    )
                    for fixture, error in report.answers.worst()
                ],
            )
        )
    return sheet


def _environment(about: BuildEnvironment) -> list[tuple[str, str]]:
    others = sum(each.used != each.recorded or each.same is not True for each in about.packages)
    packages = count(len(about.packages), "package")
    same = "files as recorded" if not others else f"{others} not as recorded, or not recorded"
    where = "this environment"
    if about.how == "made":
        where = f"{'kept' if about.reused else 'made'} by {about.installer}"
    form = ", a checkout, which is no release" if about.aotc_form == "checkout" else ""
    return [
        ("built in", f"{where}: Python {about.python}, {packages}, {same}"),
        ("lock", f"sha256 {short(about.lock_sha256)}" if about.lock_sha256 else ""),
        ("aotc", f"{about.aotc}{form}: {about.aotc_from} (sha256 {short(about.aotc_sha256)})"),
    ]


def _not_reproduced(rows: Sequence[NotReproduced]) -> Table:
    return Table("not compared, or not to be the same", ("",), [(e.what, e.why) for e in rows])


def _value(value: Json) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else dumps(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _variant(each: VariantRebuilt) -> Result:
    if each.outcome == "identical":
        return passed("identical")
    if each.outcome == "equal":
        return passed("the same nodes and tensors, in other files")
    return noticed("not built") if each.outcome == "not-built" else failed("different")
