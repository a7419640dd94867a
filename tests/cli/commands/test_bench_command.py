"""`aotc bench` as a pipeline calls it: exit statuses, files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Command
from made_models import linear, save
from trace_format import read_trace


@pytest.fixture(scope="module")
def aotc(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command in a folder with `model.aotc`, of `model.onnx`, and `other.aotc` of another."""
    made = Command(tmp_path_factory.mktemp("bench"))
    for name, features in (("model", 4), ("other", 8)):
        save(linear(features=features), made.folder / f"{name}.onnx")
        words = ("build", f"{name}.onnx", "--dim", "batch=1..8", "-o", f"{name}.aotc")
        assert made(*words).status == 0
    return made


def file_of(aotc: Command, name: str) -> Path:
    return aotc.folder / name


def test_without_a_count_p99_is_stated(aotc: Command) -> None:
    document = aotc("bench", "model.aotc").document
    (timing,) = document["timings"]
    assert (document["runs"], timing["samples"]) == (300, 300)
    assert list(timing["latency_seconds"]) == ["p50", "p90", "p99"]
    assert timing["samples_needed"] == {}


def test_few_runs_say_how_many_are_needed(aotc: Command) -> None:
    shown = aotc.plain("bench", "model.aotc", "--runs", "10").stdout.split("\n\n")
    (section,) = (part.splitlines() for part in shown if part.startswith("not stated"))
    assert [line.split(maxsplit=1) for line in section[1:]] == [
        ["p90", "needs 29 runs"],
        ["p99", "needs 299 runs"],
    ]


def test_time_alone_may_be_stated(aotc: Command) -> None:
    document = aotc("bench", "model.aotc", "--seconds", "0.2").document
    # As many runs as fit into the time, and not a number of our own.
    assert document["runs"] not in (0, 300)


def test_slower_ends_with_1_and_within_with_0(aotc: Command) -> None:
    """The same artifact is no slower than itself by far, nor a hundred times quicker."""
    words = ("bench", "model.aotc", "--baseline", "model.aotc", "--allow")
    within = aotc(*words, "100")
    assert (within.status, within.document["comparison"]["verdict"]) == (0, "within")
    slower = aotc(*words, "0.01")
    assert (slower.status, slower.document["comparison"]["verdict"]) == (1, "slower")
    assert slower.document["comparison"]["code"] == "AOTC-I067"
    shown = aotc.plain(*words, "0.01")
    assert shown.status == 1
    assert "against model.aotc  SLOWER: AOTC-I067 slower than the baseline\n" in shown.stdout


def test_what_is_not_shown_ends_with_0(aotc: Command) -> None:
    words = ("bench", "model.aotc", "--baseline", "model.aotc", "--runs", "1", "--allow", "0.01")
    outcome = aotc(*words)
    assert (outcome.status, outcome.document["comparison"]["verdict"]) == (0, "inconclusive")


def test_a_baseline_of_another_model(aotc: Command) -> None:
    error = aotc("bench", "model.aotc", "--baseline", "other.aotc").refused("AOTC-I065", 3)
    assert (error["what"], error["where"]) == (
        "the baseline was built from another model",
        "other.aotc",
    )


def test_a_history_of_another_machine_model_or_measurement(aotc: Command) -> None:
    words = ("bench", "model.aotc", "--runs", "20")
    assert aotc(*words, "--history", "h.jsonl").status == 0
    assert aotc(*words, "--baseline", "h.jsonl", "--allow", "1000").status == 0
    error = aotc(*words, "--baseline", "h.jsonl", "--dim", "batch=7").refused("AOTC-I065", 3)
    assert error["expected"] == "sizes batch=7"
    aotc("bench", "other.aotc", "--baseline", "h.jsonl").refused("AOTC-I065", 3)
    line = json.loads(file_of(aotc, "h.jsonl").read_text())
    line["machine"]["cores"] = 4096
    file_of(aotc, "elsewhere.jsonl").write_text(json.dumps(line))
    error = aotc(*words, "--baseline", "elsewhere.jsonl").refused("AOTC-I064", 3)
    assert error["found"] == "cores 4096"


@pytest.mark.parametrize("text", ["", "{", '{"traceEvents": []}', "\x00", "[1,"])
def test_a_baseline_that_is_neither(text: str, aotc: Command) -> None:
    file_of(aotc, "neither.json").write_text(text)
    aotc("bench", "model.aotc", "--baseline", "neither.json").refused("AOTC-I063", 3)


def test_a_trace_cut_off_is_no_baseline(aotc: Command) -> None:
    assert aotc("bench", "model.aotc", "--runs", "1", "--trace", "trace.json").status == 0
    path = file_of(aotc, "trace.json")
    read_trace(path)
    path.write_bytes(path.read_bytes()[:-100])
    aotc("bench", "model.aotc", "--baseline", "trace.json").refused("AOTC-I063", 3)


def test_a_baseline_that_is_not_there(aotc: Command) -> None:
    aotc("bench", "model.aotc", "--baseline", "none.jsonl").refused("AOTC-I001", 3)


def test_a_history_that_is_not_there_yet(aotc: Command) -> None:
    error = aotc(
        "bench", "model.aotc", "--baseline", "new.jsonl", "--history", "new.jsonl"
    ).refused("AOTC-I001", 3)
    assert error["what"] == "there is no baseline yet: nothing was appended to the history"
    assert not file_of(aotc, "new.jsonl").exists()


def test_a_gate_by_a_history_is_not_passed_by_running_it_again(aotc: Command) -> None:
    """The baseline is the other artifact each time, and the slower one never its own."""
    words = ("build", "model.onnx", "--dim", "batch=1..4", "-o", "earlier.aotc")
    assert aotc(*words).status == 0
    words = ("--runs", "30", "--dim", "batch=1", "--history", "gate.jsonl")
    assert aotc("bench", "earlier.aotc", *words).status == 0
    gate = ("--baseline", "gate.jsonl", "--allow")
    outcomes = [aotc("bench", "model.aotc", *words, *gate, "0.001") for _ in range(3)]
    assert [outcome.status for outcome in outcomes] == [1, 1, 1]
    compared = [outcome.document["comparison"] for outcome in outcomes]
    assert {each["artifact_id"] for each in compared} == {compared[0]["artifact_id"]}
    assert {each["measurements"] for each in compared} == {1}
    lines = [json.loads(line) for line in file_of(aotc, "gate.jsonl").read_text().splitlines()]
    assert [line["verdict"] for line in lines] == ["", "slower", "slower", "slower"]
    assert lines[0]["artifact_id"] == compared[0]["artifact_id"] != lines[1]["artifact_id"]


def test_a_baseline_that_does_not_take_the_inputs(aotc: Command) -> None:
    """Its refusal is not the artifact's: not the exit status of a slower one."""
    words = ("build", "model.onnx", "--dim", "batch=1..2", "-o", "narrow.aotc")
    assert aotc(*words).status == 0
    words = ("bench", "model.aotc", "--dim", "batch=7", "--baseline", "narrow.aotc")
    error = aotc(*words).refused("AOTC-I065", 3)
    assert error["where"] == "narrow.aotc"


@pytest.mark.parametrize(
    "words",
    [
        ["--trace", "model.onnx", "--against", "model.onnx"],
        ["--trace", "x.json", "--history", "./x.json"],
        ["--trace", "x.json", "--report", "x.json"],
        ["--history", "x.jsonl", "--baseline", "x.jsonl", "--trace", "x.jsonl"],
        ["--history", "model.aotc.zip", "--baseline", "model.aotc.zip"],
    ],
    ids=" ".join,
)
def test_no_output_overwrites_an_input_or_another_output(words: list[str], aotc: Command) -> None:
    if not file_of(aotc, "model.aotc.zip").exists():
        assert aotc("pack", "model.aotc", "-o", "model.aotc.zip").status == 0
    before = {path: path.read_bytes() for path in aotc.folder.glob("model.*") if path.is_file()}
    outcome = aotc("bench", "model.aotc", *words)
    outcome.refused("AOTC-I027", 2)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert not list(aotc.folder.glob("x.json*"))


@pytest.mark.parametrize(
    "words",
    [
        ["--trace", "model.aotc/aotc.json"],
        ["--history", "other.aotc/h.jsonl", "--baseline", "other.aotc"],
    ],
    ids=" ".join,
)
def test_no_output_is_written_into_an_artifact(words: list[str], aotc: Command) -> None:
    before = sorted(aotc.folder.glob("*.aotc/**/*"))
    aotc("bench", "model.aotc", *words).refused("AOTC-I026", 3)
    assert sorted(aotc.folder.glob("*.aotc/**/*")) == before


def test_a_report_has_the_quantiles_the_throughput_and_the_verdict(aotc: Command) -> None:
    words = ("bench", "model.aotc", "--runs", "1", "--baseline", "model.aotc")
    assert aotc(*words, "--report", "short.json").status == 0
    report = json.loads(file_of(aotc, "short.json").read_text())
    assert [gate["status"] for gate in report["gates"]] == ["not-judged"]
    words = ("bench", "model.aotc", "--runs", "300", "--baseline", "model.aotc", "--allow", "100")
    assert aotc(*words, "--report", "long.json").status == 0
    report = json.loads(file_of(aotc, "long.json").read_text())
    assert [gate["status"] for gate in report["gates"]] == ["passed"]
    figures = {
        each["name"]: each for each in report["measurements"] if each["subject"] == "artifact"
    }
    assert 0 < figures["p50"]["value"] <= figures["p90"]["value"] <= figures["p99"]["value"]
    assert (figures["throughput"]["unit"], figures["throughput"]["value"] > 0) == ("runs/s", True)


def test_a_trace_on_standard_output(aotc: Command) -> None:
    """Nothing else is there, so that it may be piped; the answer is on standard error."""
    outcome = aotc.plain("bench", "model.aotc", "--runs", "5", "--trace", "-", "-q")
    assert outcome.status == 0
    path = file_of(aotc, "piped.json")
    path.write_text(outcome.stdout)
    events, _ = read_trace(path)
    assert sum(event["name"] == "run artifact" for event in events) == 5
    assert outcome.stderr.startswith("model.aotc  5 runs\n")


@pytest.mark.parametrize(
    ("words", "what", "where"),
    [
        (["--allow", "1.1"], "--allow needs --baseline", "--allow"),
        (["--trace", "-"], "--json and --trace - both write to standard output", "--trace"),
        (["--allow", "0", "--baseline", "x"], "argument --allow: '0' is not a number above 0", ""),
        (["--allow", "nan"], "argument --allow: 'nan' is not a number above 0", ""),
        (["--seconds", "inf"], "argument --seconds: 'inf' is not a number above 0", ""),
        (["--seconds", "-1"], "argument --seconds: '-1' is not a number above 0", ""),
        (["--streams", "0"], "argument --streams: '0' is not a positive number", ""),
        (["--warm-up", "x"], "argument --warm-up: 'x' is not a positive number", ""),
    ],
)  # fmt: skip
def test_words_that_mean_nothing(words: list[str], what: str, where: str, aotc: Command) -> None:
    error = aotc("bench", "model.aotc", *words).refused("AOTC-I027", 2)
    assert error["what"] == what
    assert error["where"] == (where or "aotc bench")


@pytest.mark.parametrize("option", ["--trace", "--history"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(
    option: str, aotc: Command
) -> None:
    outcome = aotc("bench", "none.aotc", option, "no/folder/file.jsonl")
    outcome.refused("AOTC-I026", 3)


def test_nodes_are_shown_with_their_providers(aotc: Command) -> None:
    shown = aotc.plain("bench", "model.aotc", "--runs", "1", "--nodes").stdout
    assert "\nproviders  nodes  time" in shown
    document = aotc("bench", "model.aotc", "--runs", "1", "--nodes").document
    assert {node["provider"] for node in document["nodes"]["nodes"]} == {"CPUExecutionProvider"}
