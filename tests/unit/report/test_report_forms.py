"""Every form of a report, read back by a reader of its own, with ordinary and with hostile text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from junitparser import Failure, JUnitXml, Skipped
from markdown_it import MarkdownIt
from reported_runs import HOSTILE, failed_build
from repository import ROOT

from aotc.base.errors import Place
from aotc.base.records import replace
from aotc.base.text import duration, printable
from aotc.report.github_annotations import annotation_lines
from aotc.report.markdown import MAX_CHARACTERS
from aotc.report.report_forms import TEXTS, report_text
from aotc.report.sheet import findings_table, refusals_table
from aotc.report.wording import in_words
from aotc.spec.codec import decode
from aotc.spec.payload import Finding
from aotc.spec.reports import Refusal
from aotc.spec.run_report import (
    PROOF,
    Beside,
    Gate,
    GateStatus,
    Measurement,
    NoticedFinding,
    RunReport,
)

SARIF = ROOT / "tests" / "data" / "sarif" / "sarif-2.1.0.schema.json"
RAW = ("\x1b", "\x00", "\u202e", "\ud800", "\r")


@pytest.fixture(params=["y", HOSTILE], ids=["ordinary", "hostile"])
def report(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunReport:
    """A failed build in a checkout that is the working folder."""
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return failed_build(tmp_path, request.param)


@pytest.mark.parametrize("suffix", TEXTS.names())
def test_no_form_holds_a_raw_control_character(report: RunReport, suffix: str) -> None:
    text = report_text(report, f"report{suffix}")
    assert not [character for character in RAW if character in text]
    assert text.encode("utf-8")
    assert text.endswith("\n")


def test_json_is_the_record(report: RunReport) -> None:
    assert decode(RunReport, json.loads(report_text(report, "r.json"))) == report


def sarif_of(report: RunReport) -> dict[str, Any]:
    """SARIF that the format's own schema accepts."""
    document = json.loads(report_text(report, "r.sarif"))
    schema = json.loads(SARIF.read_text(encoding="utf-8"))
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(document)
    (run,) = document["runs"]
    assert isinstance(run, dict)
    return run


def test_sarif_has_a_rule_with_help_and_a_place_for_each_breach(report: RunReport) -> None:
    run = sarif_of(report)
    rules = {rule["id"]: rule for rule in run["tool"]["driver"]["rules"]}
    assert sorted(rules) == ["AOTC-N001", "AOTC-O003", "AOTC-P002"]
    for rule in rules.values():
        assert rule["help"]["text"]
        assert rule["helpUri"].endswith(rule["id"])
    levels = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert levels == [("AOTC-N001", "error"), ("AOTC-P002", "error"), ("AOTC-O003", "note")]
    for result in run["results"]:
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"][:2]]
    assert [place["artifactLocation"] for place in places] == [
        {"uri": "p.yaml", "uriBaseId": "%SRCROOT%"}
    ] * 2
    assert [place["region"]["startLine"] for place in places] == [4, 6]
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


def test_the_schema_refuses_what_is_no_sarif(report: RunReport) -> None:
    document = json.loads(report_text(report, "r.sarif"))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft4Validator(json.loads(SARIF.read_text("utf-8"))).validate(document)


def test_a_message_of_sarif_links_nowhere(tmp_path: Path) -> None:
    run = sarif_of(failed_build(tmp_path, "see [here](https://evil.example)"))
    text = run["results"][0]["message"]["text"]
    assert "\\[here\\](https" in text


def test_junit_is_read_back(report: RunReport) -> None:
    (suite,) = JUnitXml.fromstring(report_text(report, "r.xml").encode("utf-8"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (4, 2, 0, 1)
    cases = list(suite)
    assert [type(case.result[0]) if case.result else None for case in cases] == [
        Failure,
        Failure,
        None,
        Skipped,
    ]
    # A breach is told by the test of its gate.
    first = report.refusals[0]
    assert cases[0].result[0].message == printable(first.what)
    assert cases[0].result[0].type == "AOTC-N001"
    assert cases[0].result[0].text == "\n".join(
        (
            "AOTC-N001 parity breach",
            printable(first.what),
            *(
                f"{label}: {printable(getattr(first, label))}"
                for label in ("where", "expected", "found", "fix")
            ),
        )
    )
    stated = [(case._elem.get("file"), case._elem.get("line")) for case in cases]
    assert stated == [("p.yaml", "4"), ("p.yaml", "6"), (None, None), (None, None)]
    # The format wants the properties first.
    assert next(child.tag for child in suite._elem) == "properties"


def junit_cases(report: RunReport) -> dict[tuple[str, str], Any]:
    """The tests of a report by their names, of which no two are equal."""
    (suite,) = JUnitXml.fromstring(report_text(report, "r.xml").encode("utf-8"))
    cases = {(case.classname, case.name): case for case in suite}
    assert len(cases) == suite.tests
    return cases


def test_a_gate_is_one_test_whatever_its_outcome(report: RunReport) -> None:
    names = set(junit_cases(report))
    for status in ("passed", "failed", "not-judged"):
        gates = tuple(replace(gate, status=status) for gate in report.gates)
        breaches = report.refusals if status == "failed" else ()
        outcome = "failed" if status == "failed" else "passed"
        again = replace(report, gates=gates, refusals=breaches, outcome=outcome)
        cases = junit_cases(again)
        assert set(cases) == names
        kinds = {type(each) for case in cases.values() for each in case.result}
        assert kinds == {"passed": set(), "failed": {Failure}, "not-judged": {Skipped}}[status]
    # Of a gate that nothing tells of, what was measured.
    told = cases[(printable(report.gates[1].subject), printable(report.gates[1].name))]
    assert told.result[0].message == printable(report.gates[1].measured)


def parity(variant: str, output: str, place: Place, status: GateStatus = "failed") -> Gate:
    subject = f"variant {variant}, output {output!r}"
    measured = f"max absolute of {variant} {output}"
    return Gate(
        name="parity.int8",
        subject=subject,
        status=status,
        limit="error <= 1",
        measured=measured,
        place=place,
    )


def test_a_breach_is_told_by_its_own_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates of one line of the profile, of which names begin alike, and breaches of no gate."""
    monkeypatch.chdir(tmp_path)
    for name in ("p.yaml", "m.onnx"):
        (tmp_path / name).touch()
    at = Place(file=str(tmp_path / "p.yaml"), line=3, column=1)
    pairs = [("cpu", "y"), ("cpu", "z"), ("cpu-2", "y"), ("cpu-2", "z")]
    shown = Gate(
        name="shown",
        subject="variant cpu, output 'y'",
        status="failed",
        limit="the answers compared show something",
        measured="is constant",
        place=at,
    )
    breaches = [
        Refusal(
            code="AOTC-N001",
            what=f"output {output!r} differs at batch=1",
            where=f"variant {variant}, fixture sample{number}",
            expected="error <= 1",
            found=f"max absolute {number}",
            place=at,
        )
        for number, (variant, output) in enumerate([*pairs[:2], pairs[0], pairs[3]])
    ]
    lacking = Refusal(
        code="AOTC-N046",
        what="output 'y' is constant: in int8 it is not proven",
        where="variant cpu",
        expected="answers in which an error could be seen",
        found="is constant",
        place=at,
    )
    elsewhere = replace(at, file="/usr/lib/other.yaml")
    stray = [
        Refusal(code="AOTC-I047", what=f"report {n} is lost", where=f"--report {n}", place=place)
        for n, place in enumerate((elsewhere, elsewhere, Place(file="m.onnx")))
    ]
    report = RunReport(
        tool_version="1",
        command="build",
        outcome="failed",
        exit_status=1,
        gates=(*(parity(*pair, at) for pair in pairs), shown),
        refusals=(*breaches, lacking, *stray),
    )
    cases = junit_cases(report)
    told = {names: [case.result[0].type, case.result[0].message] for names, case in cases.items()}
    title = "AOTC-I047 report cannot be written"
    assert told == {
        ("variant cpu, output 'y'", "parity.int8"): [
            "AOTC-N001",
            "output 'y' differs at batch=1, and 1 more",
        ],
        ("variant cpu, output 'z'", "parity.int8"): ["AOTC-N001", "output 'z' differs at batch=1"],
        ("variant cpu-2, output 'y'", "parity.int8"): [
            None,
            "max absolute of cpu-2 y (error <= 1)",
        ],
        ("variant cpu-2, output 'z'", "parity.int8"): [
            "AOTC-N001",
            "output 'z' differs at batch=1",
        ],
        ("variant cpu, output 'y'", "shown"): [
            "AOTC-N046",
            "output 'y' is constant: in int8 it is not proven",
        ],
        ("aotc", title): ["AOTC-I047", "report 0 is lost, and 1 more"],
        ("m.onnx", title): ["AOTC-I047", "report 2 is lost"],
    }
    # Fixtures are called as on the terminal, and files as in the checkout, or not at all.
    text = cases[("variant cpu, output 'y'", "parity.int8")].result[0].text
    assert "where: variant cpu, fixture of your samples 1\n" in text
    assert "where: variant cpu, fixture of your samples 3\n" in text
    files = {names: case._elem.get("file") for names, case in cases.items()}
    assert files.pop(("aotc", title)) is None
    assert files.pop(("m.onnx", title)) == "m.onnx"
    assert set(files.values()) == {"p.yaml"}


@pytest.mark.parametrize("kind", ["repository", "worktree", "bare"])
def test_files_are_named_from_the_top_of_the_repository(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "models" / "a"
    folder.mkdir(parents=True)
    if kind == "worktree":
        (tmp_path / ".git").write_text("gitdir: /elsewhere/.git/worktrees/w\n")
    elif kind == "repository":
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    else:
        (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    monkeypatch.chdir(folder)
    found = "p.yaml" if kind == "bare" else "models/a/p.yaml"
    report = failed_build(folder)
    assert {case._elem.get("file") for case in junit_cases(report).values()} == {found, None}
    _, properties, _ = decoded(annotation_lines(report)[0])
    assert properties["file"] == found


def test_what_could_not_be_judged_is_an_error_of_junit(report: RunReport) -> None:
    broken = replace(report, outcome="error", exit_status=3)
    (suite,) = JUnitXml.fromstring(report_text(broken, "r.xml").encode("utf-8"))
    assert (suite.failures, suite.errors) == (0, 2)


def test_code_quality_is_as_gitlab_reads_it(report: RunReport) -> None:
    issues = json.loads(report_text(report, "r.codequality.json"))
    assert [issue["check_name"] for issue in issues] == ["AOTC-N001", "AOTC-P002", "AOTC-O003"]
    assert [issue["severity"] for issue in issues] == ["major", "major", "info"]
    assert [issue["location"]["lines"]["begin"] for issue in issues] == [4, 6, 1]
    assert {issue["location"]["path"] for issue in issues} == {"p.yaml"}
    assert len({issue["fingerprint"] for issue in issues}) == 3
    for issue in issues:
        assert re.fullmatch("[0-9a-f]{64}", issue["fingerprint"])
        assert issue["description"].isprintable()


def test_a_fingerprint_is_of_the_breach_and_not_of_what_was_measured(report: RunReport) -> None:
    first, *others = report.refusals
    again = replace(report, refusals=(replace(first, found="another value"), *others))
    fingerprints = [
        [issue["fingerprint"] for issue in json.loads(report_text(each, "r.codequality.json"))]
        for each in (report, again)
    ]
    assert fingerprints[0] == fingerprints[1]


def test_a_fingerprint_is_the_same_in_another_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("one", "another"):
        folder = tmp_path / name
        (folder / "sub").mkdir(parents=True)
        monkeypatch.chdir(folder / "sub")
        for root in ("", str(folder)):
            monkeypatch.setenv("GITHUB_WORKSPACE", root)
            (folder if root else folder / "sub").joinpath("p.yaml").touch()
            report = failed_build(folder if root else folder / "sub", "y")
            first = replace(report.refusals[0], where=f"{folder}/sub/m.onnx: W")
            issues = json.loads(
                report_text(replace(report, refusals=(first,)), "r.codequality.json")
            )
            found.append(issues[0]["fingerprint"])
    assert found[:2] == found[2:]
    # Another file is another breach.
    other = replace(first, where=f"{folder}/sub/other.onnx: W")
    issues = json.loads(report_text(replace(report, refusals=(other,)), "r.codequality.json"))
    assert issues[0]["fingerprint"] not in found


def decoded(annotation: str) -> tuple[str, dict[str, str], str]:
    """A workflow command as GitHub's runner reads it: its name, its properties, its message."""
    assert annotation.startswith("::")
    head, _, message = annotation[2:].partition("::")
    name, _, stated = head.partition(" ")
    properties = dict(each.split("=", 1) for each in stated.split(","))
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        properties = {key: text.replace(code, character) for key, text in properties.items()}
    message = message.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return name, {key: text.replace("%25", "%") for key, text in properties.items()}, message


def test_annotations_are_lines_that_the_runner_reads(report: RunReport) -> None:
    lines = annotation_lines(report)
    assert all(line.isprintable() for line in lines)
    read = [decoded(line) for line in lines]
    assert [name for name, _, _ in read] == ["error", "error", "notice"]
    assert read[0][1] == {
        "file": "p.yaml",
        "line": "4",
        "col": "3",
        "title": "AOTC-N001 parity breach",
    }
    first = report.refusals[0]
    assert read[0][2].splitlines() == [
        printable(first.what),
        f"where: {printable(first.where)}",
        f"expected: {printable(first.expected)}",
        f"found: {printable(first.found)}",
        f"fix: {printable(first.fix)}",
    ]


def test_a_file_name_ends_no_property(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    folder = tmp_path / "a,line=9::b%"
    folder.mkdir()
    _, properties, _ = decoded(annotation_lines(failed_build(folder))[0])
    assert properties["file"] == "a,line=9::b%/p.yaml"
    assert properties["line"] == "4"


def test_what_lies_outside_the_checkout_is_no_place_of_a_pull_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout").mkdir()
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "checkout"))
    report = failed_build(tmp_path)
    assert "physicalLocation" not in json.dumps(sarif_of(report))
    assert not any("file=" in line for line in annotation_lines(report))
    assert json.loads(report_text(report, "r.codequality.json"))[0]["location"]["path"] == "p.yaml"


def test_markdown_shows_foreign_text_as_code_alone(report: RunReport) -> None:
    text = report_text(report, "r.md")
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    shown = [token.content for token in inline if token.type == "code_inline"]
    what = printable(report.refusals[0].what, 240)
    assert what in [each.strip() for each in shown]
    outside = " ".join(token.content for token in inline if token.type != "code_inline")
    for forged in ("<script", "@octocat", "forged", "//e"):
        assert forged not in outside
    assert not [token for token in inline if token.type in ("link_open", "image", "html_inline")]
    blocks = {token.content.strip() for token in tokens if token.type == "html_block"}
    assert all(re.fullmatch(r"</?details>(<summary>[\w ()]+</summary>)?", each) for each in blocks)
    rows = [token for token in tokens if token.type == "tr_open"]
    # Heads of five tables, and 1 node of both breaches, 4 gates, 1 figure, 1 finding, 1 stage.
    assert len(rows) == 5 + 8
    cells = [token for token in tokens if token.type in ("td_open", "th_open")]
    assert len(cells) == 1 * 2 + 6 * 5 + 3 * 2 + 4 * 2 + 2 * 2


def test_a_comment_is_short_enough_for_a_pull_request(tmp_path: Path) -> None:
    report = failed_build(tmp_path, HOSTILE)
    refusals = [
        replace(each, what=f"{i}{each.what}", place=None)
        for i in range(500)
        for each in report.refusals
    ]
    text = report_text(replace(report, gates=report.gates * 500, refusals=refusals), "r.md")
    assert len(text) <= MAX_CHARACTERS == 65536
    assert "and 980 more" in text


def test_full_cells_leave_out_the_last_tables(tmp_path: Path) -> None:
    report = failed_build(tmp_path, "x" * 300)
    gates = [
        replace(gate, measured=f"{i}{gate.measured}") for i in range(20) for gate in report.gates
    ]
    refusals = [
        replace(each, what=f"{i}{each.what}", place=None)
        for i in range(15)
        for each in report.refusals
    ]
    text = report_text(replace(report, gates=gates, refusals=refusals), "r.md")
    assert len(text) <= MAX_CHARACTERS
    assert text.count("- **AOTC-") == 20
    tables = re.findall(r"<summary>(\w+) ", text)
    assert tables == ["Concerned"]
    assert "Too long for a comment: 4 tables are left out." in text
    # What fits is there.
    few = report_text(report, "r.md")
    assert re.findall(r"<summary>(\w+) ", few)[-1] == "Stages"
    assert "Too long" not in few


def test_breaches_of_one_limit_are_told_once(tmp_path: Path) -> None:
    report = failed_build(tmp_path)
    refusals = [
        replace(
            report.refusals[0], where=f"variant {variant}, fixture sample{i}", found=f"error {i}"
        )
        for variant in "ab"
        for i in range(5 if variant == "a" else 1)
    ]
    fix = f"Do this. {'And that. ' * 60}"
    text = report_text(
        replace(report, refusals=[replace(each, fix=fix) for each in refusals]), "r.md"
    )
    assert text.count("- **AOTC-N001 parity breach**") == 2
    assert (
        "  also: `variant a, fixture of your samples 2: error 1; "
        "variant a, fixture of your samples 3: error 2; "
        "variant a, fixture of your samples 4: error 3; and 1 more`"
    ) in text
    # A fix is of no use in part.
    assert text.count(f"fix: `{fix}`") == 2


def test_bytes_are_told_in_full(tmp_path: Path) -> None:
    measurements = (
        Measurement(name="size", subject="a", value=65777664.0, unit="B"),
        Measurement(name="t", subject="a", value=0.25, unit="s"),
    )
    text = report_text(replace(failed_build(tmp_path), measurements=measurements), "r.md")
    assert "`65,777,664 B` |" in text
    assert "`250 ms` |" in text


# What a build's Markdown begins with: its figures, beside those of an earlier artifact.


def measured(name: str, variant: str, value: float, unit: str = "") -> Measurement:
    return Measurement(name=name, subject=variant, value=value, unit=unit)


def head_of(report: RunReport) -> str:
    """What stands before the first folded table."""
    return report_text(report, "r.md").partition("<details>")[0]


def built(*measurements: Measurement, beside: Beside | None = None) -> RunReport:
    return RunReport(
        tool_version="1",
        command="build",
        outcome="passed",
        exit_status=0,
        model="m.onnx",
        gates=(Gate(name=PROOF, subject="variant cpu", status="passed"),),
        measurements=measurements,
        beside=beside,
    )


SIZES = (measured("size", "payload", 71_800_000, "B"), measured("peak memory", "v", 1, "B"))
CPU = (measured("latency", "variant cpu", 161e-6, "s"), measured("load", "variant cpu", 1, "s"))
OFF = measured("largest error", "variant cpu, on the build host, output 'y, output z'", 2e-6)


def test_markdown_begins_with_the_figures_of_a_build() -> None:
    assert head_of(built(*SIZES, *CPU, OFF)) == (
        "### ✅ `aotc build` passed\n"
        "\n"
        "|  | this |\n"
        "| --- | --- |\n"
        "| `size` | `71.8 MB` |\n"
        f"| `latency` | `{duration(161e-6)}` |\n"
        "| `largest error, on the build host, output 'y, output z'` | `2e-06` |\n"
        "\n"
        "1 gate passed.\n"
        "\n"
        "model `m.onnx`\n"
        "\n"
    )
    # Of other commands, all that was measured is in one table.
    assert "| this |" not in report_text(replace(built(*SIZES, *CPU), command="bench"), "r.md")


def test_where_one_side_has_no_labelled_set_errors_are_told() -> None:
    judged = (measured("top-1", "variant cpu", 0.9), measured("top-1 of the original", "v", 0.9))
    # What is no artifact has neither figures nor an id.
    beside = Beside(artifact="old.aotc", measurements=judged)
    assert head_of(built(OFF, beside=beside)) == (
        "### ✅ `aotc build` passed\n"
        "\n"
        "|  | this | base |\n"
        "| --- | --- | --- |\n"
        "| `verdict` | `passed` | `VERIFIED` |\n"
        "| `top-1` |  | `0.9` |\n"
        "| `largest error, on the build host, output 'y, output z'` | `2e-06` |  |\n"
        "\n"
        "1 gate passed.\n"
        "\n"
        "model `m.onnx` · base `old.aotc`\n"
        "\n"
    )


def test_figures_stand_beside_those_of_an_earlier_artifact() -> None:
    earlier = Beside(
        artifact="old.aotc",
        artifact_id="ab" * 32,
        measurements=(
            measured("size", "payload", 143_600_000, "B"),
            measured("latency", "variant cpu", 140e-6, "s"),
            # Where a figure was measured is not what it is of.
            measured("latency", "variant gpu", 0.0, "s"),
            measured("top-1", "variant cpu", 0.93),
            measured("top-1 of the original", "variant cpu", 0.94),
            measured("largest error", "variant cpu, output 'y'", 1e-6),
        ),
    )
    now = (
        *SIZES,
        *CPU,
        measured("latency", "variant gpu, on the build host, not on gpu", 9e-6, "s"),
        measured("top-1", "variant cpu", 0.93),
        measured("top-1 of the original", "variant cpu", 0.94),
        measured("top-1", "variant gpu", 0.91),
        measured("top-1 of the original", "variant gpu", 0.94),
        OFF,
    )
    assert head_of(built(*now, beside=earlier)) == (
        "### ✅ `aotc build` passed\n"
        "\n"
        "|  | this | base | change |\n"
        "| --- | --- | --- | --- |\n"
        "| `verdict` | `passed` | `VERIFIED` |  |\n"
        "| `size` | `71.8 MB` | `143.6 MB` | `-50.0%` |\n"
        f"| `latency, variant cpu` | `{duration(161e-6)}` | `{duration(140e-6)}` | `+15.0%` |\n"
        f"| `latency, variant gpu, on the build host, not on gpu` | `{duration(9e-6)}` | "
        f"`{duration(0.0)}` |  |\n"
        "| `top-1, variant cpu` | `0.93` | `0.93` | `none` |\n"
        "| `top-1, variant gpu` | `0.91` |  |  |\n"
        "\n"
        "Each latency was measured by its own build, on the machine of that build.\n"
        "\n"
        "1 gate passed.\n"
        "\n"
        "model `m.onnx` · base `old.aotc abababababab`\n"
        "\n"
    )
    # A metric has no share by which it changed, and what nobody vouches for says so.
    better = [each if each.name != "top-1" else replace(each, value=0.95) for each in now]
    unsigned = replace(earlier, refused="signed by nobody you trust")
    text = head_of(built(*better, beside=unsigned))
    assert "| `top-1, variant cpu` | `0.95` | `0.93` | `+0.02` |\n" in text
    assert "| `verdict` | `passed` | `UNVERIFIED: signed by nobody you trust` |  |\n" in text


def test_gates_are_below_what_failed_and_findings_after_them(report: RunReport) -> None:
    text = report_text(report, "r.md")
    places = [text.index(each) for each in ("AOTC-N001", "<summary>Gates", "<summary>Findings")]
    assert places == sorted(places)


FORMS_OF_PEOPLE = ("r.md", "r.sarif", "r.xml", "r.codequality.json", "annotations")


@pytest.mark.parametrize("form", FORMS_OF_PEOPLE)
def test_fixtures_are_called_as_on_the_terminal(form: str, tmp_path: Path) -> None:
    report = failed_build(tmp_path)
    breach = replace(report.refusals[0], where="variant y, fixture sample3")
    finding = NoticedFinding(code="AOTC-N022", title="t", what="has NaN", where="sample3")
    slower = NoticedFinding(code="AOTC-N075", title="t", what="slower (1 s, fixture sample3, 2)")
    named = replace(report, refusals=(breach,), findings=(finding, slower))
    text = "\n".join(annotation_lines(named)) if form == "annotations" else report_text(named, form)
    assert "sample3" not in text
    # JUnit has no findings.
    assert text.count("your samples 4") >= (1 if form == "r.xml" else 3)
    assert '"where": "variant y, fixture sample3"' in report_text(named, "r.json")


def test_sheets_call_fixtures_so_too() -> None:
    finding = Finding(code="AOTC-N005", what="NaN or infinity", where="opt-sampled")
    other = Finding(code="AOTC-S036", what="what", where="fixture random0")
    table = findings_table((finding, other))
    assert [row[1] for row in table.rows] == [
        "optimal sizes with your samples: NaN or infinity",
        "fixture of random sizes 1: what",
    ]
    refusal = Refusal(code="AOTC-N007", what="differs", where="variant a, fixture padded2", fix="f")
    ((_, lines),) = refusals_table("r", (refusal,)).rows
    assert lines == ("variant a, fixture of padded sizes 3: differs", "f")
    # What is called alike and is no fixture is left alone.
    assert in_words("fixture sample3.npz and sample3") == "fixture sample3.npz and sample3"


# What was not judged: no form says that all is well.


@pytest.fixture
def unproven() -> RunReport:
    """A build for a GPU on a machine that has none."""
    return RunReport(
        tool_version="0.1.0",
        command="build",
        outcome="passed",
        exit_status=0,
        model="m.onnx",
        gates=(
            Gate(name="parity.float32", subject="variant cuda, output 'y'", status="passed"),
            Gate(name=PROOF, subject="variant cpu", status="passed", measured="proven"),
            Gate(
                name=PROOF,
                subject="variant cuda",
                status="not-judged",
                measured=f"not proven: no GPU {HOSTILE}",
            ),
        ),
        findings=(
            NoticedFinding(code="AOTC-N002", title="variant was not proven", what="cuda was not"),
            NoticedFinding(code="AOTC-O003", title="level lowered", what="was all"),
            NoticedFinding(code="AOTC-Z999", title="of a newer aotc", what="is no warning"),
        ),
    )


def test_markdown_of_what_was_not_judged(unproven: RunReport) -> None:
    head, _, rest = report_text(unproven, "r.md").partition("\n")
    assert head == "### ⚠️ `aotc build` passed, 1 gate not judged"
    assert "**2 gates passed, 1 not judged.**" in rest
    assert "\nnot judged `` variant cuda is not proven: no GPU a\\n::error" in rest
    assert "All " not in rest
    passed = tuple(gate for gate in unproven.gates if gate.status == "passed")
    text = report_text(replace(unproven, gates=passed), "r.md")
    assert text.startswith("### ✅ `aotc build` passed\n")
    assert "All 2 gates passed." in text
    # Of very many the first are told; the table has all.
    gates = tuple(
        Gate(name="baseline", subject=f"a{n}", status="not-judged", measured="interrupted")
        for n in range(7)
    )
    text = report_text(replace(unproven, gates=gates), "r.md")
    assert "**0 gates passed, 7 not judged.**" in text
    assert "a3, baseline: interrupted; and 3 more`" in text


def test_other_forms_of_what_was_not_judged(unproven: RunReport) -> None:
    assert [line.split(" ")[0] for line in annotation_lines(unproven)] == [
        "::warning",
        "::notice",
        "::notice",
    ]
    levels = [(each["ruleId"], each["level"]) for each in sarif_of(unproven)["results"]]
    assert levels == [("AOTC-N002", "warning"), ("AOTC-O003", "note"), ("AOTC-Z999", "note")]
    issues = json.loads(report_text(unproven, "r.codequality.json"))
    assert [issue["severity"] for issue in issues] == ["minor", "info", "info"]
    (suite,) = JUnitXml.fromstring(report_text(unproven, "r.xml").encode())
    skipped = [case for case in suite if any(isinstance(one, Skipped) for one in case.result)]
    assert [(case.name, case.classname) for case in skipped] == [("proof", "variant cuda")]
    assert skipped[0].result[0].message.startswith("not proven: no GPU")
