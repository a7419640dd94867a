"""What is told of fleets: plans, what became of cells, and which artifacts run on which hosts.

Cells by models and by profiles with targets, or by artifacts and hosts, are a matrix: a table whose
cells are results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from aotc.base.errors import expected_and_found
from aotc.base.records import replace
from aotc.base.text import duration, size
from aotc.report.sheet import (
    FAILED,
    NOTICED,
    PASSED,
    Cell,
    Facts,
    Heading,
    Result,
    Sheet,
    Table,
    count,
    failed,
    findings_table,
    first,
    noticed,
    refusals_table,
    short,
    stated,
    table,
    with_titles,
)
from aotc.spec.codec import decode
from aotc.spec.fleet import Cell as FleetCell
from aotc.spec.fleet import CellResult, FleetPlan, FleetReport, PlannedCell, WorkerDescription
from aotc.spec.matrix_report import CompatibilityReport, EmitReport, HostVerdict
from aotc.spec.reports import Refusal
from aotc.spec.run_report import LATENCY, SIZE, RunReport

T = TypeVar("T")
Link = Callable[[T], str]

_OUTCOMES: Final[Mapping[str, str]] = {
    "built": PASSED,
    "reused": PASSED,
    "failed": FAILED,
    "impossible": NOTICED,
    "not-run": NOTICED,
}
_STATES: Final[Mapping[str, str]] = {
    "new": "",
    "unchanged": PASSED,
    "impossible": NOTICED,
    "excluded": "",
}
_VERDICTS: Final[Mapping[str, str]] = {
    "optimal": PASSED,
    "degraded": NOTICED,
    "incompatible": FAILED,
    "unverified": FAILED,
}
_WANTED: Final[Mapping[str, str]] = {
    "none": "each artifact is authentic",
    "some": "each artifact runs on one host at least",
    "degraded": "each artifact runs on each host",
    "optimal": "each artifact is optimal on each host",
}
# Of a list that stands in one line; `--json` has all.
_MAX_LISTED: Final = 12
_MAX_SLOWEST: Final = 5
# Up to so many models are all listed in a terminal.
_ALL: Final = 40


def answer_of(report: RunReport) -> FleetReport | CompatibilityReport | None:
    """What a run of a fleet answered; None of another command, and where nothing was answered."""
    if report.answer is None:
        return None
    if report.answer["schema"] == "aotc.fleet-verify/1":
        return decode(CompatibilityReport, report.answer)
    return decode(FleetReport, report.answer)


def seconds_by_cell(report: RunReport) -> dict[str, float]:
    """How long each cell of a fleet took to build, by its name; of another command nothing."""
    found = answer_of(report)
    cells = found.cells if isinstance(found, FleetReport) else ()
    return {each.cell.name: each.seconds for each in cells}


def answer_sheet(report: RunReport) -> Sheet:
    """The matrix of a run of a fleet, which people come for, and what it is of; else nothing."""
    found = answer_of(report)
    if isinstance(found, FleetReport):
        return [fleet_facts(found), outcomes_matrix(found.cells), *merged_parts(found)]
    if isinstance(found, CompatibilityReport):
        return [matrix_facts(found), hosts_matrix(found)]
    return []


def _matrix(
    title: str, name: str, columns: Sequence[str], rows: Mapping[str, Mapping[str, Cell]]
) -> Table:
    """Cells by row and column; where there is none, nothing is said."""
    found = [(row, *(cells.get(column, "") for column in columns)) for row, cells in rows.items()]
    return Table(title, columns, found, name=name, leading=True, matrix=True)


def _columns(cells: Iterable[FleetCell]) -> dict[tuple[str, str], str]:
    """The head of each column by profile and target, of which one alone is not repeated."""
    pairs = dict.fromkeys((cell.profile, cell.target) for cell in cells)
    several = [len({pair[side] for pair in pairs}) > 1 for side in (0, 1)]
    if not any(several):
        several = [False, True]
    return {
        pair: ", ".join(word for word, is_told in zip(pair, several, strict=True) if is_told)
        for pair in pairs
    }


def _by_model(
    title: str, items: Iterable[T], cell_of: Callable[[T], FleetCell], text: Callable[[T], Cell]
) -> Table:
    listed = list(items)
    heads = _columns(map(cell_of, listed))
    rows: dict[str, dict[str, Cell]] = {}
    for item in listed:
        cell = cell_of(item)
        rows.setdefault(cell.model, {})[heads[cell.profile, cell.target]] = text(item)
    return _matrix(title, "model", tuple(dict.fromkeys(heads.values())), rows)


# Of a plan.


def plan_sheet(plan: FleetPlan) -> Sheet:
    """Which cells are new, unchanged, impossible or excluded, why, and what each took last time."""
    known = [each.last_seconds for each in plan.cells if each.state == "new"]
    seconds = sum(filter(None, known))
    unknown = sum(each is None for each in known)
    last = f"{duration(seconds)} of work last time" if seconds else ""
    if last and unknown:
        last += f", and {count(unknown, 'cell')} that were never built"
    return [
        Heading(
            plan.fleet,
            f"{count(len(plan.cells), 'cell')}: "
            f"{_counted(each.state for each in plan.cells) or 'nothing'}",
            NOTICED if any(each.state == "impossible" for each in plan.cells) else "",
        ),
        Facts(
            [
                ("shard", plan.shard),
                ("on", f"{plan.executor}, {count(len(plan.workers), 'worker')}"),
                ("to build", last),
            ]
        ),
        _by_model("plan", plan.cells, lambda each: each.cell, _planned),
        Table(
            "not built, or built again",
            ("",),
            [
                (each.cell.name, _reason(each))
                for each in plan.cells
                if each.reason or each.refusals
            ],
        ),
    ]


def _planned(each: PlannedCell) -> Cell:
    mood = _STATES[each.state]
    said = Result(each.state, mood) if mood else each.state
    if each.state in ("excluded", "impossible") or each.last_seconds is None:
        return said
    memory = each.last_memory_bytes
    took = f"last {duration(each.last_seconds)}"
    return (said, took if memory is None else f"{took}, {size(memory)}")


def _reason(each: PlannedCell) -> Cell:
    reasons = [f"{refusal.code} {refusal.what}" for refusal in each.refusals]
    return tuple(dict.fromkeys(filter(None, (each.reason, *reasons))))


# Of a fleet that was built.


def fleet_sheet(report: FleetReport) -> Sheet:
    """What became of every cell: in numbers, as a matrix, and why some failed."""
    return [
        Heading(report.fleet, *fleet_outcome(report)),
        fleet_facts(report),
        outcomes_matrix(_shown(report.cells)),
        *merged_parts(report),
        refusals_table("failed", [*_refusals(report.cells, "failed")]),
        refusals_table("impossible here", [*_refusals(report.cells, "impossible")]),
        findings_table(report.findings),
    ]


def _shown(cells: Sequence[CellResult]) -> Sequence[CellResult]:
    """All cells; where there are many models, those of models of which some cell is not there."""
    wanting = {each.cell.model for each in cells if _OUTCOMES[each.outcome] != PASSED}
    is_long = len({each.cell.model for each in cells}) > _ALL
    return [each for each in cells if each.cell.model in wanting] if is_long else cells


def fleet_outcome(report: FleetReport) -> tuple[str, str]:
    """How many cells there are, and what became of them."""
    outcomes = [each.outcome for each in report.cells]
    told = f"{count(len(outcomes), 'cell')}: {_counted(outcomes) or 'nothing'}"
    if not report.succeeded:
        return told, FAILED
    return told, NOTICED if set(outcomes) - {"built", "reused"} else PASSED


def fleet_facts(report: FleetReport) -> Facts:
    """What it was built by, and what took longest."""
    slowest = sorted(report.cells, key=lambda each: -each.seconds)[:_MAX_SLOWEST]
    retried = [each.cell.name for each in report.cells if each.attempts > 1]
    return Facts(
        [
            ("shard", report.shard),
            ("on", f"{report.executor}, {count(len(report.workers), 'worker')}"),
            ("took", _took(report)),
            (
                "slowest",
                [f"{each.cell.name} {duration(each.seconds)}" for each in slowest if each.seconds],
            ),
            ("worker lost", first(retried, _MAX_LISTED)),
        ]
    )


def _took(report: FleetReport) -> str:
    work = sum(each.seconds for each in report.cells)
    return f"{duration(report.seconds)}; all cells together {duration(work)}"


def outcomes_matrix(cells: Sequence[CellResult]) -> Table:
    """Models by profiles and targets, with what became of each cell."""
    return _by_model("cells", cells, lambda each: each.cell, outcome_text)


def linked_matrix(
    cells: Sequence[CellResult], artifact: Link[CellResult], reasons: Link[CellResult]
) -> Table:
    """The same for a page: each cell with what it took and gave, and where it leads.

    That is to its artifact and to what is told of it; empty: nowhere.
    """

    def text(each: CellResult) -> Cell:
        figures = cell_figures(each)
        lines = [", ".join(figures[:2]), ", ".join(figures[2:])]
        noticed_ = count(len(each.findings), "finding") if each.findings else ""
        return (
            outcome_text(each, artifact(each) or reasons(each)),
            *filter(None, lines),
            *((Result(noticed_, "", reasons(each)),) if noticed_ else ()),
        )

    return _by_model("", cells, lambda each: each.cell, text)


def outcome_text(each: CellResult, link: str = "") -> Result:
    """What became of a cell, with the first code where it was not built."""
    mood = _OUTCOMES[each.outcome]
    if not each.cell.required and mood != PASSED:
        mood = NOTICED
    code = each.refusals[0].code if each.refusals else ""
    optional = "" if each.cell.required or mood == PASSED else ", not required"
    return Result(f"{each.outcome} {code}".rstrip() + optional, mood, link)


def cell_figures(each: CellResult) -> tuple[str, ...]:
    """Time of the build, size of the artifact, and latency of a call, as far as they are known."""
    built = duration(each.seconds) if each.seconds else ""
    return tuple(filter(None, (built, stated_size(each), latency_text(each))))


def stated_size(each: CellResult) -> str:
    """The bytes of the artifact; empty if they are not known."""
    found = measured(each, SIZE)
    return "" if found is None else size(round(found))


def latency_text(each: CellResult) -> str:
    """The time of a warm call of the artifact's first variant; empty if it was not measured."""
    found = measured(each, LATENCY)
    return "" if found is None else f"a call {duration(found)}"


def measured(each: CellResult, name: str) -> float | None:
    """The first measurement of a name; None: there is none."""
    return next((item.value for item in each.measurements if item.name == name), None)


def cells_table(cells: Sequence[CellResult]) -> Table:
    """Each cell with all that was measured of it."""
    return table(
        "",
        cells,
        ("cell", lambda each: each.cell.name),
        ("outcome", outcome_text),
        ("#build", lambda each: duration(each.seconds) if each.seconds else ""),
        ("#memory", lambda each: stated(each.peak_memory_bytes, size)),
        ("#size", stated_size),
        ("#a call", lambda each: latency_text(each).removeprefix("a call ")),
        ("#attempts", lambda each: str(each.attempts) if each.attempts > 1 else ""),
        ("worker", lambda each: each.worker.name if each.worker is not None else ""),
    )


def workers_table(workers: Sequence[WorkerDescription]) -> Table:
    """The machines, each with what outcomes depend on."""
    return table(
        "",
        workers,
        ("worker", lambda each: each.name),
        ("CPU", lambda each: each.cpu),
        ("GPUs", lambda each: ", ".join(each.gpus)),
        ("packages", lambda each: ", ".join(f"{k} {v}" for k, v in sorted(each.versions.items()))),
    )


def merged_parts(report: FleetReport) -> Sheet:
    """The artifacts that were made of several cells."""
    rows: list[Sequence[Cell]] = []
    for each in report.merged:
        made = short(each.artifact_id)
        said = failed(f"refused {each.refusals[0].code}") if each.refusals else made
        why = [f"{refusal.code} {refusal.what}" for refusal in each.refusals]
        of = f"of {count(len(each.cells), 'cell')}"
        rows.append((f"{each.model}, {each.profile}", said, [each.output, of, *why]))
    return [Table("one artifact of several hosts", ("", ""), rows)]


def _refusals(cells: Iterable[CellResult], outcome: str) -> Iterable[Refusal]:
    return (
        of_cell(refusal, each.cell.name)
        for each in cells
        if each.outcome == outcome
        for refusal in each.refusals
    )


def of_cell(refusal: Refusal, cell: str) -> Refusal:
    """A refusal of a cell, by whose name it is found; where it was is in its text."""
    what = f"{refusal.where}: {refusal.what}" if refusal.where else refusal.what
    return replace(refusal, where=cell, what=what)


def _counted(words: Iterable[str]) -> str:
    return ", ".join(f"{number} {word}" for word, number in Counter(words).items())


# Of artifacts on hosts.


def compatibility_sheet(report: CompatibilityReport) -> Sheet:
    """Every artifact on every host, what is not as required, and why some do not run."""
    return [
        Heading("compatibility", *matrix_outcome(report)),
        matrix_facts(report),
        hosts_matrix(report),
        refusals_table("not as required", report.failed),
        reasons_table(report.cells),
        findings_table(report.findings),
    ]


def matrix_outcome(report: CompatibilityReport) -> tuple[str, str]:
    """Whether all is as required, and how many cells have which verdict."""
    told = _counted(each.verdict for each in report.cells)
    return (f"NOT AS REQUIRED: {told}", FAILED) if report.failed else (told, PASSED)


def matrix_facts(report: CompatibilityReport) -> Facts:
    """What was required of how many artifacts and hosts."""
    artifacts, hosts = count(len(report.artifacts), "artifact"), count(len(report.hosts), "host")
    return Facts(
        [
            ("required", _WANTED[report.required]),
            ("judged", f"{artifacts}, {hosts}, in {duration(report.seconds)}"),
        ]
    )


def hosts_matrix(report: CompatibilityReport, *, link: Link[HostVerdict] | None = None) -> Table:
    """Artifacts by hosts; `link` is where a page leads from a cell."""
    rows: dict[str, dict[str, Cell]] = {}
    for each in report.cells:
        text = verdict_text(each, link(each) if link is not None else "")
        rows.setdefault(each.artifact, {})[each.host] = (
            (text, each.best) if link is not None and each.best else text
        )
    return _matrix("" if link is not None else "verdicts", "artifact", report.hosts, rows)


def verdict_text(each: HostVerdict, link: str = "") -> Result:
    """The verdict with the codes of its reasons."""
    shown = first(each.codes, 3) if each.verdict != "optimal" else ""
    return Result(f"{each.verdict} {shown}".rstrip(), _VERDICTS[each.verdict], link)


def reasons_table(cells: Iterable[HostVerdict]) -> Table:
    """Why artifacts are not optimal on hosts, each reason once for all cells that it is of."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in cells:
        if each.verdict in ("optimal", "unverified"):
            continue
        reasons = [
            (item.code, item.what + expected_and_found(item.expected, item.found))
            for item in each.refusals
            if item.code in each.codes
        ]
        reasons += [(item.code, item.what) for item in each.findings if item.code in each.codes]
        for reason in dict.fromkeys(reasons):
            found.setdefault(reason, []).append(each.name)
    rows = [
        (noticed(code), (with_titles(code).removeprefix(f"{code} "), what), first(names, 3))
        for (code, what), names in found.items()
    ]
    return Table("reasons", ("", "of"), rows)


# Of emitted files.


def emitted_sheet(report: EmitReport) -> Sheet:
    """The files, and how many shards there are for which machines."""
    return [
        Heading(report.fleet, f"{count(report.shards, 'shard')} for {report.form}", PASSED),
        Facts([("files", report.files)]),
        Table("machines", ("#shards",), [(k, str(n)) for k, n in report.machines.items()]),
    ]
