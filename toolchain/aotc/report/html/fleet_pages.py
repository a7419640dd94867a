"""The pages of fleets: models by targets with what became of each cell, and artifacts by hosts."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote
from xml.etree.ElementTree import Element

from aotc.base.errors import expected_and_found
from aotc.base.text import size
from aotc.report.html.figures import Figure, figures
from aotc.report.html.page import elements, flowing, page, section, tag, time_text
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Facts,
    Result,
    Sheet,
    count,
    findings_table,
    refusals_table,
    with_titles,
)
from aotc.report.sheets.fleets import (
    answer_of,
    cells_table,
    fleet_facts,
    hosts_matrix,
    linked_matrix,
    matrix_facts,
    measured,
    merged_parts,
    outcome_text,
    verdict_text,
    workers_table,
)
from aotc.spec.fleet import CellResult, FleetReport
from aotc.spec.matrix_report import CompatibilityReport, HostVerdict
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.run_report import SIZE, RunReport

# Cells that the page tells of one by one; the report in JSON has all.
_MAX_TOLD = 500


def answer_page(run: RunReport, folder: Path) -> str:
    """The page of a run of a fleet, in ASCII; `folder` is where it will lie.

    Links to artifacts are relative to it, as both are moved together.
    """
    found = answer_of(run)
    title = f"aotc {run.command}: {run.outcome}"
    if isinstance(found, FleetReport):
        title = f"{found.fleet}: {title}"
        sections = _fleet_sections(found, folder)
    else:
        assert isinstance(found, CompatibilityReport)
        sections = _matrix_sections(found, folder)
    return page(title, (), tuple(sections), script=False)


def _linked(path: str, folder: Path) -> str:
    """A relative URL of a path, which no scheme can begin."""
    return "./" + quote(os.fsencode(os.path.relpath(path, folder)))


def _told(items: Sequence[Element], anchor: str, title: str) -> Iterator[Element]:
    if items:
        yield section(anchor, title, *items)


# A fleet that was built.


def _fleet_sections(report: FleetReport, folder: Path) -> Iterator[Element]:
    anchors = {
        each.cell.name: f"cell-{number}"
        for number, each in enumerate(filter(_says_something, report.cells))
        if number < _MAX_TOLD
    }

    matrix = linked_matrix(
        report.cells,
        lambda each: _linked(each.cell.output, folder) if each.artifact_id else "",
        lambda each: f"#{anchors[each.cell.name]}" if each.cell.name in anchors else "",
    )
    yield section(
        "matrix",
        "Matrix",
        _fleet_figures(report),
        *elements([matrix, *merged_parts(report), fleet_facts(report)]),
    )
    told = [each for each in report.cells if each.cell.name in anchors]
    for anchor, title, cells in (
        ("failed", "Failed", [each for each in told if each.outcome == "failed"]),
        ("impossible", "Not built here", [e for e in told if e.outcome in _UNBUILT]),
        ("findings", "Findings", [e for e in told if e.outcome in ("built", "reused")]),
    ):
        parts = [_cell_part(each, anchors[each.cell.name], folder) for each in cells]
        yield from _told(parts, anchor, title)
    yield section("cells", "Cells", *elements([cells_table(report.cells)]))
    yield from _told(list(elements([workers_table(report.workers)])), "workers", "Workers")
    yield from _told(list(elements([findings_table(report.findings)])), "run", "The run")


_UNBUILT = ("impossible", "not-run")


def _says_something(each: CellResult) -> bool:
    return bool(each.refusals or each.findings) or each.outcome == "not-run"


def _fleet_figures(report: FleetReport) -> Element:
    outcomes = Counter(each.outcome for each in report.cells)
    there = outcomes["built"] + outcomes["reused"]
    lost = any(each.is_lost for each in report.cells)
    failed = sum(each.outcome == "failed" and each.is_lost for each in report.cells)
    other = outcomes["impossible"] + outcomes["not-run"]
    bytes_ = [found for each in report.cells if (found := measured(each, SIZE)) is not None]
    work = sum(each.seconds for each in report.cells)
    models = len({each.cell.model for each in report.cells})
    return figures(
        (
            Figure(
                "Artifacts",
                f"{there} of {len(report.cells)}",
                (f"of {count(models, 'model')}", f"{outcomes['reused']} were there already"),
                PASSED if there == len(report.cells) else FAILED if lost else NOTICED,
            ),
            Figure(
                "Failed",
                str(outcomes["failed"]),
                (f"{failed} of them required", f"{other} not built here"),
                FAILED if lost else PASSED,
            ),
            Figure(
                "Time",
                time_text(report.seconds),
                (
                    f"{time_text(work)} of work",
                    f"on {count(len(report.workers), 'worker')}" if report.workers else "",
                ),
            ),
            Figure("Size", size(round(sum(bytes_))), (f"of {count(len(bytes_), 'artifact')}",)),
        )
    )


def _cell_part(each: CellResult, anchor: str, folder: Path) -> Element:
    """A cell by itself: what is to be said of it, and the way to its artifact."""
    name = Result(each.cell.name, "")
    artifact = Result(each.cell.output, "", _linked(each.cell.output, folder))
    made = each.artifact_id != ""
    sheet: Sheet = [
        Facts(
            [
                ("outcome", outcome_text(each)),
                ("artifact", artifact if made else ""),
                ("model", each.cell.source),
                ("worker", each.worker.name if each.worker is not None else ""),
                *_reasons(each.refusals),
                *_noticed(each.findings),
            ]
        )
    ]
    return tag("div", tag("h3", *flowing(name)), *elements(sheet), id=anchor)


def _reasons(refusals: Sequence[Refusal]) -> list[tuple[str, Sequence[str]]]:
    return [
        (
            each.code,
            [
                with_titles(each.code).removeprefix(f"{each.code} "),
                (f"{each.where}: " if each.where else "")
                + each.what
                + expected_and_found(each.expected, each.found),
                *filter(None, (each.fix,)),
            ],
        )
        for each in refusals
    ]


def _noticed(findings: Sequence[Finding]) -> list[tuple[str, Sequence[str]]]:
    return [
        (each.code, f"{each.where}: {each.what}" if each.where else each.what) for each in findings
    ]


# Artifacts on hosts.


def _matrix_sections(report: CompatibilityReport, folder: Path) -> Iterator[Element]:
    untold = ("optimal", "unverified")
    told = [each for each in report.cells if each.verdict not in untold][:_MAX_TOLD]
    anchors = {each.name: f"#cell-{number}" for number, each in enumerate(told)}

    def link(each: HostVerdict) -> str:
        if each.verdict == "unverified":
            return "#failed"
        return anchors.get(each.name) or _linked(each.artifact, folder)

    yield section(
        "matrix",
        "Matrix",
        _verdict_figures(report),
        *elements([hosts_matrix(report, link=link), matrix_facts(report)]),
    )
    failed = refusals_table("", report.failed)
    yield from _told(list(elements([failed])), "failed", "Not as required")
    parts = [_verdict_part(each, anchors[each.name][1:], folder) for each in told]
    yield from _told(parts, "reasons", "Why not optimal")
    yield from _told(list(elements([findings_table(report.findings)])), "findings", "Findings")


def _verdict_figures(report: CompatibilityReport) -> Element:
    verdicts: Counter[str] = Counter(each.verdict for each in report.cells)
    cells = len(report.cells)
    return figures(
        Figure(verdict.capitalize(), f"{verdicts[verdict]} of {cells}", (said,), mood)
        for verdict, mood, said in (
            ("optimal", PASSED, "runs with its best variant"),
            ("degraded", NOTICED, "runs, and would be better built for the host"),
            ("incompatible", FAILED, "no variant runs there"),
            ("unverified", FAILED, "not authentic"),
        )
        if verdicts[verdict] or verdict == "optimal"
    )


def _verdict_part(each: HostVerdict, anchor: str, folder: Path) -> Element:
    lacks = [found for found in each.findings if found.code in each.codes]
    sheet: Sheet = [
        Facts(
            [
                ("verdict", verdict_text(each)),
                ("artifact", Result(each.artifact, "", _linked(each.artifact, folder))),
                ("would run", each.best),
                *_reasons(each.refusals),
                *_noticed(lacks),
            ]
        )
    ]
    return tag("div", tag("h3", *flowing(each.name)), *elements(sheet), id=anchor)
