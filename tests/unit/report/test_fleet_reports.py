"""One report over all cells of a fleet in every form, and a matrix of hosts in the same ones."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_fleets import REFUSAL, UNSERVED, WORKER, cells_of, report_of

from aotc.base.records import replace
from aotc.cli.run_reporting import Run, reported
from aotc.cli.terminal import show_sheet
from aotc.report.runs import fleet_judged, matrix_judged
from aotc.report.sheet import Sheet
from aotc.report.sheets.fleets import compatibility_sheet, fleet_sheet, plan_sheet
from aotc.spec.codec import decode
from aotc.spec.fleet import FleetPlan, FleetReport, PlannedCell
from aotc.spec.matrix_report import CompatibilityReport, HostVerdict
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.run_report import RunReport

CELLS = cells_of(("resnet", "bert"))
OPTIONAL = [replace(each, required=n != 5) for n, each in enumerate(CELLS)]
# Six outcomes: built, reused, failed, impossible, built, failed and not required, and so on.
REPORT = report_of(OPTIONAL, ("built", "reused", "failed", "impossible", "built", "failed"))
MATRIX = CompatibilityReport(
    artifacts={"a.aotc": "1" * 64, "b.aotc": "2" * 64, "c.aotc": ""},
    hosts=("here", "there"),
    cells=(
        HostVerdict(artifact="a.aotc", host="here", verdict="optimal", best="native"),
        HostVerdict(
            artifact="a.aotc",
            host="there",
            verdict="degraded",
            best="portable",
            findings=(Finding(code="AOTC-C010", what="native does not fit", where="target there"),),
        ),
        HostVerdict(artifact="b.aotc", host="here", verdict="optimal", best="portable"),
        HostVerdict(
            artifact="b.aotc",
            host="there",
            verdict="incompatible",
            refusals=(
                Refusal(code="AOTC-C009", what="no variant runs on this host"),
                Refusal(code="AOTC-C002", what="the CPU architecture differs", found="aarch64"),
            ),
        ),
        *(
            HostVerdict(
                artifact="c.aotc",
                host=host,
                verdict="unverified",
                refusals=(Refusal(code="AOTC-G001", what="not signed"),),
            )
            for host in ("here", "there")
        ),
    ),
    required="degraded",
    failed=(
        Refusal(code="AOTC-I184", what="incompatible on this host", where="b.aotc on there"),
        Refusal(code="AOTC-G001", what="not signed", where="c.aotc"),
    ),
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes a report in one form, as a command does, and reads it."""

    def written(suffix: str, answer: FleetReport | CompatibilityReport = REPORT) -> str:
        file = tmp_path / f"report{suffix}"
        is_fleet = isinstance(answer, FleetReport)
        command = "fleet build" if is_fleet else "fleet verify"
        judged = fleet_judged(answer) if isinstance(answer, FleetReport) else matrix_judged(answer)
        with reported(Run(command, [str(file)], "text", json=False)) as run:
            run.ended(1, **judged)
        return file.read_text("utf-8")

    return written


def shown(sheet: Sheet, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "110")
    file = io.StringIO()
    show_sheet(sheet, file=file)
    return file.getvalue()


def test_json_holds_the_whole_answer(write: Callable[..., str]) -> None:
    run = decode(RunReport, json.loads(write(".json")))
    assert decode(FleetReport, run.answer) == REPORT
    run = decode(RunReport, json.loads(write(".json", MATRIX)))
    assert decode(CompatibilityReport, run.answer) == MATRIX


def test_junit_has_a_test_for_each_cell(write: Callable[..., str]) -> None:
    cases = {
        case.get("classname"): case
        for case in ElementTree.fromstring(write(".xml")).iter("testcase")
    }
    assert list(cases) == [each.name for each in CELLS]
    told = {
        name: next((f"{each.tag} {each.get('type') or ''}".strip() for each in case), "")
        for name, case in cases.items()
    }
    assert list(told.values()) == [
        "system-out",
        "system-out",
        "failure AOTC-N001",
        "failure AOTC-I164",
        "system-out",
        # It need not be built.
        "skipped",
        "system-out",
        "system-out",
    ]
    first, skipped = cases[CELLS[0].name], cases[CELLS[5].name]
    assert first.get("time") == "2.5"
    assert first[0].text == "built, 2.50 s, 4.2 MB, a call 1.25 ms"
    assert skipped[0].get("message") == "failed: AOTC-N001; not required"
    assert "variant edge, output 'y'" in (cases[CELLS[2].name][0].text or "")


def test_junit_has_a_test_for_each_artifact_on_each_host(write: Callable[..., str]) -> None:
    root = ElementTree.fromstring(write(".xml", MATRIX))
    found = {
        case.get("classname"): [(each.tag, each.get("type")) for each in case]
        for case in root.iter("testcase")
    }
    assert list(found) == [each.name for each in MATRIX.cells]
    assert found["a.aotc on there"] == [("system-out", None)]
    assert found["b.aotc on there"] == [("failure", "AOTC-I184")]
    assert found["c.aotc on here"] == [("failure", "AOTC-G001")]


def test_markdown_begins_with_the_matrix(write: Callable[..., str]) -> None:
    text = write(".md")
    assert text.startswith("### ❌ `aotc fleet build` failed\n")
    assert (
        "| model | edge, linux-x86-64 | edge, linux-arm64 | server-cuda, linux-x86-64 "
        "| server-cuda, linux-arm64 |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| `resnet` | ✅ `built` | ✅ `reused` | ❌ `failed AOTC-N001` "
        "| ⚠️ `impossible AOTC-I164` |\n"
        "| `bert` | ✅ `built` | ⚠️ `failed AOTC-N001, not required` | ✅ `built` | ✅ `reused` |\n"
    ) in text
    text = write(".md", MATRIX)
    assert "| `b.aotc` | ✅ `optimal` | ❌ `incompatible AOTC-C002` |" in text
    assert "| `a.aotc` | ✅ `optimal` | ⚠️ `degraded AOTC-C010` |" in text


def test_sarif_has_a_result_for_each_reason(write: Callable[..., str]) -> None:
    (run,) = json.loads(write(".sarif"))["runs"]
    found = [
        (each["ruleId"], each["level"], each["locations"][0]["logicalLocations"][0])
        for each in run["results"]
        if each["ruleId"] != "AOTC-S027"
    ]
    assert found == [
        (code, level, {"fullyQualifiedName": CELLS[n].name})
        for code, level, n in (
            ("AOTC-N001", "error", 2),
            ("AOTC-I164", "error", 3),
            ("AOTC-N001", "warning", 5),
        )
    ]
    assert run["automationDetails"] == {"id": "aotc-fleet-build/"}


def test_a_page_leads_to_artifacts_and_reasons(write: Callable[..., str]) -> None:
    text = write(".html")
    body = text[text.index("<body>") :]
    ids = set(re.findall(r' id="([^"]+)"', body))
    links = re.findall(r'href="([^"]+)"', body)
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    outside = {link for link in links if not link.startswith("#")}
    made = [each.cell.output for each in REPORT.cells if each.artifact_id]
    # Relative, and no scheme, whatever a file is called.
    assert all(link.startswith("./") for link in outside)
    assert len(outside) == len(made)
    for words in (REFUSAL.what, UNSERVED.what, WORKER.name, "5 of 8"):
        assert words in re.sub(r"<wbr>|</?span[^>]*>", "", body)


def test_names_do_nothing_in_a_page(write: Callable[..., str]) -> None:
    name = 'javascript:alert(1)"><script>x</script>'
    changed = replace(
        REPORT.cells[0],
        cell=replace(REPORT.cells[0].cell, model=name, output=name, source=name),
    )
    text = write(".html", replace(REPORT, fleet=name, cells=(changed,)))
    body = text[text.index("<body>") :]
    assert "<script" not in body
    assert not re.search(r'href="(?![#.])', body)
    # In Markdown, names stand in code spans alone.
    text = write(".md", replace(REPORT, fleet=name, cells=(changed,)))
    assert "alert" not in re.sub(r"`[^`]*`", "", text)


def test_sheets_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(fleet_sheet(REPORT), monkeypatch)
    assert text.startswith("zoo  8 cells: 3 built, 2 reused, 2 failed, 1 impossible\n")
    assert "AOTC-N001  resnet/server-cuda/linux-x86-64: variant edge, output 'y'" in text
    text = shown(compatibility_sheet(MATRIX), monkeypatch)
    assert text.startswith(
        "compatibility  NOT AS REQUIRED: 2 optimal, 1 degraded, 1 incompatible, 2 unverified\n"
    )
    assert "verdicts  here                  there\n" in text
    assert "  a.aotc  optimal               degraded AOTC-C010\n" in text
    assert "the CPU architecture differs (found aarch64)" in text


def test_of_many_models_a_terminal_shows_those_that_need_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = cells_of([f"m{n}" for n in range(50)], ("edge",), ("host",))
    results = list(report_of(cells).cells)
    results[7] = report_of(cells[7:8], ("failed",)).cells[0]
    text = shown(fleet_sheet(replace(REPORT, cells=tuple(results), merged=())), monkeypatch)
    table = text[text.index("\ncells ") : text.index("\nfailed\n")]
    assert re.findall(r"m\d+", table) == ["m7"]


def test_a_plan_tells_why_and_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ("new", "unchanged", "impossible", "excluded")
    plan = FleetPlan(
        fleet="zoo",
        executor="local",
        cells=tuple(
            PlannedCell(
                cell=cell,
                state=state,  # type: ignore[arg-type]
                reason="too old" if state == "excluded" else "",
                refusals=(UNSERVED,) if state == "impossible" else (),
                last_seconds=2.5 if state in ("new", "unchanged") else None,
                last_memory_bytes=180_000_000 if state == "new" else None,
            )
            for cell, state in zip(cells_of(("resnet",)), states, strict=True)
        ),
        workers=(WORKER,),
    )
    text = shown(plan_sheet(plan), monkeypatch)
    assert text.startswith("zoo  4 cells: 1 new, 1 unchanged, 1 impossible, 1 excluded\n")
    assert "last 2.50 s, 180.0 MB" in text
    assert "to build  2.50 s of work last time" in text
    assert "resnet/server-cuda/linux-x86-64  AOTC-I164 no worker has a GPU" in text
    assert "resnet/server-cuda/linux-arm64   too old" in text
