"""Reports of shards of one fleet, read and joined into one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aotc.base.errors import AotcError, with_others
from aotc.base.files.failures import cannot_read
from aotc.base.files.reading import read_at_most
from aotc.base.records import record, replace
from aotc.fleet.shards import MOST_SHARDS, plan_digest
from aotc.spec.codec import ParseError, decode
from aotc.spec.fleet import CellResult, FleetReport
from aotc.spec.json import MAX_JSON_BYTES, strict_json
from aotc.spec.run_report import RunReport

_SHARD: Final = re.compile(r"([1-9]\d{0,8}(?:,[1-9]\d{0,8})*)/([1-9]\d{0,8})")
_THERE: Final = frozenset({"built", "reused"})
# Of a list in an error.
_MAX_NAMED: Final = 20


@record(kw_only=False)
class _Part:
    """A report with its file, the numbers of its shards, and how many there are in all."""

    file: str
    report: FleetReport
    shards: frozenset[int]
    count: int


def joined_reports(files: Sequence[Path], *, partial: bool = False) -> FleetReport:
    """One report of all cells of the reports of shards in `files`, in any order.

    A file is what `aotc fleet build --report FILE.json` or `--json` wrote, or an earlier join.
    Cells that are in several reports with the same outcome are there once.  `shard` of the result
    is empty if no shard is missing.

    Raises AOTC-I001 and I027 (a file is no such report), I186 (they are of different fleets), I187
    (they contradict each other) and, unless `partial`, I188 (shards are missing).
    """
    parts = [_part(str(file), _read(file)) for file in files]
    _require_one_fleet(parts)
    cells = _joined_cells(parts)
    first = parts[0].report
    there = frozenset[int]().union(*(part.shards for part in parts))
    count = parts[0].count
    missing = sorted(frozenset(range(1, count + 1)) - there)
    if missing and not partial:
        named = ", ".join(f"{number}/{count}" for number in missing[:_MAX_NAMED])
        more = len(missing) - _MAX_NAMED
        raise AotcError(
            "AOTC-I188",
            "reports of shards are missing",
            where=f"fleet {first.fleet}",
            expected=f"{count} shards",
            found=f"not {named}" + (f" and {more} more" if more > 0 else ""),
        )
    if not missing and first.plan and plan_digest(each.cell for each in cells) != first.plan:
        raise AotcError(
            "AOTC-I186",
            "the reports do not have the cells of their fleet",
            where=f"fleet {first.fleet}",
            found=f"{len(cells)} cells",
        )
    reports = [part.report for part in parts]
    return replace(
        first,
        executor=", ".join(dict.fromkeys(each.executor for each in reports)),
        cells=cells,
        shard=f"{','.join(map(str, sorted(there)))}/{count}" if missing else "",
        merged=tuple(dict.fromkeys(merged for each in reports for merged in each.merged)),
        workers=tuple({w.name: w for each in reports for w in each.workers}.values()),
        findings=tuple(dict.fromkeys(found for each in reports for found in each.findings)),
        # Shards run beside each other.
        seconds=max(each.seconds for each in reports),
    )


def _read(file: Path) -> FleetReport:
    try:
        data = read_at_most(file, MAX_JSON_BYTES)
    except OSError as error:
        raise cannot_read(error, "the report cannot be read", str(file)) from None
    try:
        document = strict_json(data)
        if isinstance(document, dict) and document.get("schema") == "aotc.report/1":
            run = decode(RunReport, document)
            if run.answer is None:
                raise _no_answer(file, run)
            document = run.answer
        return decode(FleetReport, document)
    except ParseError as error:
        first = error.problems[0]
        raise AotcError(
            first.code or "AOTC-I027",
            "this is not a report of 'aotc fleet build'",
            where=str(file),
            expected="aotc.fleet-report/1, or aotc.report/1 of a fleet",
            found=str(first),
            fix=""
            if first.code
            else "Give files that 'aotc fleet build --report FILE.json' wrote.",
        ) from None


def _no_answer(file: Path, run: RunReport) -> AotcError:
    """Of a run that was refused before any cell was built, why that was so."""
    why = "; ".join(f"{each.code} {each.what}" for each in run.refusals[:3])
    return AotcError(
        "AOTC-I027",
        "the report has no cells: its run ended before it had any",
        where=str(file),
        found=why or f"a report of 'aotc {run.command}'",
        fix="Mend what it says, and run the shard again.",
    )


def _part(file: str, report: FleetReport) -> _Part:
    if not report.shard:
        return _Part(file, report, frozenset({1}), 1)
    found = _SHARD.fullmatch(report.shard)
    numbers = frozenset(map(int, found[1].split(","))) if found is not None else frozenset({0})
    if found is None or not max(numbers) <= int(found[2]) <= MOST_SHARDS:
        raise AotcError(
            "AOTC-I027",
            "the report is of no such shard",
            where=file,
            expected="I/N",
            found=report.shard,
        )
    return _Part(file, report, numbers, int(found[2]))


def _require_one_fleet(parts: Sequence[_Part]) -> None:
    first = parts[0]

    def identity(part: _Part) -> Mapping[str, str]:
        return {
            "fleet": part.report.fleet,
            "plan": part.report.plan[:12],
            "shards": str(part.count),
        }

    errors = []
    for part in parts[1:]:
        wanted, found = identity(first), identity(part)
        differ = [name for name in wanted if wanted[name] != found[name]]
        if differ:
            errors.append(
                AotcError(
                    "AOTC-I186",
                    f"the report is of another fleet than {first.file}",
                    where=part.file,
                    expected=", ".join(f"{name} {wanted[name]}" for name in differ),
                    found=", ".join(f"{name} {found[name]}" for name in differ),
                )
            )
    if errors:
        raise with_others(errors)


def _joined_cells(parts: Sequence[_Part]) -> tuple[CellResult, ...]:
    """Each cell once, by name; raises AOTC-I187 for those that contradict each other."""
    cells: dict[str, CellResult] = {}
    files: dict[str, str] = {}
    errors = []
    for part in parts:
        for each in part.report.cells:
            name = each.cell.name
            known = cells.setdefault(name, each)
            file = files.setdefault(name, part.file)
            if _agree(known, each):
                # Who built it knows more of it.
                cells[name] = each if known.outcome == "reused" else known
            else:
                errors.append(
                    AotcError(
                        "AOTC-I187",
                        f"the report contradicts {file}",
                        where=f"{part.file}: {name}",
                        expected=_in_words(known),
                        found=_in_words(each),
                    )
                )
    if errors:
        raise with_others(errors)
    return tuple(cells[name] for name in sorted(cells))


def _agree(one: CellResult, other: CellResult) -> bool:
    same = one.outcome == other.outcome or {one.outcome, other.outcome} <= _THERE
    return same and one.artifact_id == other.artifact_id


def _in_words(each: CellResult) -> str:
    return f"{each.outcome} {each.artifact_id[:12]}".rstrip()
