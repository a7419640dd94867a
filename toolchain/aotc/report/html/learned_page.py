"""The page that `aotc profile learn --html` writes: the sheet of the answer, and nothing else."""

from __future__ import annotations

from aotc.report.html.page import elements, page, section
from aotc.report.sheet import Note
from aotc.report.sheets.learned import distributions, plans_sheet
from aotc.spec.command_reports import LearnReport


def learn_page(answer: LearnReport) -> str:
    """One HTML page, in ASCII, that needs nothing else: no script, no other file, no network."""
    parts = (
        section("plans", "Plans", *elements(plans_sheet(answer))),
        section("requests", "Requests", *elements(distributions(answer))),
    )
    return page(answer.path, elements([Note(answer.verdict)]), parts, script=False)
