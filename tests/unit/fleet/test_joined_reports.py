"""Shares of a fleet by machines, and their reports as one: what is joined, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from made_fleets import GPU, REFUSAL, cell, cells_of, in_shards, report_of, result

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.fleet.joining import joined_reports
from aotc.fleet.shards import cells_by_needs, shards
from aotc.report.runs import fleet_judged
from aotc.spec.codec import encode
from aotc.spec.fleet import FleetReport
from aotc.spec.json import document
from aotc.spec.run_report import RunReport

WHOLE = report_of(cells_of(), ("built", "reused"))


def written(folder: Path, reports: Sequence[FleetReport]) -> list[Path]:
    files = [folder / f"report-{number}.json" for number, _ in enumerate(reports)]
    for file, report in zip(files, reports, strict=True):
        file.write_text(document(encode(report)))
    return files


def refused(files: Sequence[Path], *, partial: bool = False) -> AotcError:
    with pytest.raises(AotcError) as caught:
        joined_reports(files, partial=partial)
    return caught.value


def test_a_report_of_no_such_shard_is_refused(tmp_path: Path) -> None:
    for shard in ("3/2", "0/2", "1/999999999", "x"):
        files = written(tmp_path, [replace(WHOLE, shard=shard)])
        assert refused(files, partial=True).code == "AOTC-I027", shard


# Shares.


@pytest.mark.parametrize("count", [2, 3, 5, 12, 20])
def test_each_cell_is_in_one_shard_and_each_shard_of_one_machine(count: int) -> None:
    cells = cells_of(("a", "b", "c", "d"), ("edge", "server-cuda"))
    parts = shards(cells, count)
    assert len(parts) == count
    names = [each.name for part in parts for each in part]
    assert sorted(names) == sorted(each.name for each in cells)
    assert all(len({str(each.needs) for each in part}) <= 1 for part in parts)
    # As even as machines allow: 8 cells of each kind.
    sizes = [len(part) for part in parts]
    assert max(sizes) <= -(-8 // (count // 2))


def test_one_shard_of_two_kinds_of_machines_has_all() -> None:
    cells = cells_of()
    assert shards(cells, 1) == (tuple(cells),)
    assert [needs for needs, _ in cells_by_needs(cells)] == [cell("a").needs, GPU]


def test_a_larger_kind_gets_more_shards() -> None:
    cells = [*cells_of(("a",), ("server-cuda",), ("t",)), *cells_of("bcdefghi", ("edge",), ("t",))]
    assert [len(part) for part in shards(cells, 5)] == [1, 2, 2, 2, 2]


# Reports.


def test_all_shards_are_the_whole(tmp_path: Path) -> None:
    files = written(tmp_path, in_shards(WHOLE, 3))
    found = joined_reports(files[::-1])
    assert found == replace(WHOLE, cells=tuple(sorted(WHOLE.cells, key=lambda e: e.cell.name)))


def test_a_report_of_a_run_holds_that_of_its_fleet(tmp_path: Path) -> None:
    judged = fleet_judged(WHOLE)
    run = RunReport(
        tool_version="0",
        command="fleet build",
        outcome="passed",
        exit_status=0,
        gates=judged["gates"],
        answer=judged["answer"],
    )
    (tmp_path / "run.json").write_text(document(encode(run, full=True)))
    assert {e.cell.name for e in joined_reports([tmp_path / "run.json"]).cells} == {
        e.cell.name for e in WHOLE.cells
    }
    (tmp_path / "none.json").write_text(document(encode(replace(run, answer=None), full=True)))
    error = refused([tmp_path / "none.json"])
    assert (error.code, error.found) == ("AOTC-I027", "a report of 'aotc fleet build'")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    files = written(tmp_path, in_shards(WHOLE, 4))
    error = refused([files[0], files[2]])
    assert (error.code, error.found) == ("AOTC-I188", "not 2/4, 4/4")
    part = joined_reports([files[0], files[2]], partial=True)
    assert part.shard == "1,3/4"
    assert len(part.cells) == len(in_shards(WHOLE, 4)[0].cells) + len(in_shards(WHOLE, 4)[2].cells)
    # What was joined is joined with the rest.
    (again,) = written(tmp_path, [part])
    rest = tmp_path / "rest.json"
    rest.write_text(document(encode(joined_reports(files[1::2], partial=True))))
    assert joined_reports([again, rest]).shard == ""


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"fleet": "other"}, "fleet other"),
        ({"plan": "f" * 64}, f"plan {'f' * 12}"),
        ({"shard": "2/3"}, "shards 3"),
    ],
)
def test_other_fleets_are_refused(tmp_path: Path, changes: dict[str, str], found: str) -> None:
    first, second = in_shards(WHOLE, 2)
    error = refused(written(tmp_path, [first, replace(second, **changes)]), partial=True)
    assert (error.code, error.found) == ("AOTC-I186", found)


def test_a_report_that_lost_cells_is_refused(tmp_path: Path) -> None:
    first, second = in_shards(WHOLE, 2)
    error = refused(written(tmp_path, [first, replace(second, cells=second.cells[1:])]))
    assert (error.code, error.found) == ("AOTC-I186", "11 cells")


def test_cells_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    first, second = in_shards(WHOLE, 2)
    again = replace(first, cells=(result(first.cells[0].cell, "failed"), *first.cells[1:]))
    files = written(tmp_path, [first, second, again])
    error = refused(files)
    assert error.code == "AOTC-I187"
    assert error.where == f"{files[2]}: {first.cells[0].cell.name}"
    assert (error.expected.split()[0], error.found) == ("built", "failed")
    other = replace(first, cells=(replace(first.cells[0], artifact_id="f" * 64), *first.cells[1:]))
    assert refused(written(tmp_path, [first, second, other])).code == "AOTC-I187"


def test_a_cell_in_two_reports_is_there_once(tmp_path: Path) -> None:
    first, second = in_shards(WHOLE, 2)
    # Built at first, found there later.
    later = replace(first, cells=tuple(replace(e, outcome="reused") for e in first.cells))
    found = joined_reports(written(tmp_path, [later, first, second]))
    assert len(found.cells) == len(WHOLE.cells)
    built = {e.cell.name for e in first.cells if e.outcome == "built"}
    assert built <= {e.cell.name for e in found.cells if e.outcome == "built"}


@pytest.mark.parametrize("shard", ["3/2", "x", "0/2", "1,1/1/1"])
def test_no_such_shard(tmp_path: Path, shard: str) -> None:
    error = refused(written(tmp_path, [replace(WHOLE, shard=shard)]))
    assert (error.code, error.found) == ("AOTC-I027", shard)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "aotc.build/1"}', "\0"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    assert refused([file]).code == "AOTC-I027"
    assert refused([tmp_path / "gone.json"]).code == "AOTC-I001"


def test_what_fails_a_fleet() -> None:
    cells = cells_of(("a",), ("edge",))
    assert report_of(cells, ("built", "reused")).succeeded
    for outcome in ("failed", "impossible", "not-run"):
        report = report_of(cells, ("built", outcome))  # type: ignore[arg-type]
        assert not report.succeeded
        optional = tuple(
            replace(e, cell=replace(e.cell, required=e.outcome == "built")) for e in report.cells
        )
        assert replace(report, cells=optional).succeeded
    assert REFUSAL.code == "AOTC-N001"
