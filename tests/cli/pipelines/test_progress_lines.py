"""What a pipeline sees of a build: plain lines on standard error, and nothing where it reads."""

from __future__ import annotations

import hashlib
import json
import re

import pytest
from command import Command
from made_models import linear, save

LINE = re.compile(r"[a-z]+( \([^)]*\))?  \d+\.\d s")
STAGES = [
    "import",
    "analyze",
    "optimize",
    "partition",
    "lower",
    "prove",
    "observe",
    "package",
    "sign",
    "check",
    "cache",
]

TUNED = """
schema: aotc.profile/1
name: tuned
providers: [cpu]
variants: [{name: portable, isa: baseline}, {name: native, isa: host}]
tune: {rounds: 3}
"""


@pytest.fixture
def aotc(aotc: Command) -> Command:
    save(linear(), aotc.folder / "model.onnx")
    return aotc


def test_one_line_a_stage_with_its_time(aotc: Command) -> None:
    done = aotc.plain("build", "model.onnx")
    assert done.status == 0
    lines = done.stderr.splitlines()
    assert [line.split()[0] for line in lines] == STAGES
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert "prove (portable)  " in done.stderr
    assert not [line for line in done.stdout.splitlines() if LINE.fullmatch(line)]


def test_a_document_comes_alone(aotc: Command) -> None:
    done = aotc.plain("build", "model.onnx", "--json")
    assert (done.status, done.stderr) == (0, "")
    assert done.document["schema"] == "aotc.build/1"


def test_a_document_with_every_step_beside_it(aotc: Command) -> None:
    done = aotc.plain("build", "model.onnx", "--json", "-v")
    assert done.document["schema"] == "aotc.build/1"
    *lines, last = done.stderr.splitlines()
    assert [line.split()[0] for line in lines] == STAGES
    assert re.fullmatch(r"aotc build  \d+\.\d s", last)


def test_quiet_tells_the_id_and_errors_only(aotc: Command) -> None:
    done = aotc.plain("build", "model.onnx", "-q")
    assert (done.status, done.stderr) == (0, "")
    id_ = hashlib.sha256((aotc.folder / "model.aotc/payload/aotc.json").read_bytes()).hexdigest()
    assert done.stdout == f"{id_}\n"
    (aotc.folder / "mine").mkdir()
    again = aotc.plain("build", "model.onnx", "-o", "mine", "--quiet")
    assert again.status == 3
    assert again.stderr.startswith("error: AOTC-I017 ")


def test_quiet_and_verbose_exclude_each_other(aotc: Command) -> None:
    done = aotc.plain("explain", "G005", "-q", "-v")
    assert done.status == 2
    assert "argument -v/--verbose: not allowed with argument -q/--quiet" in done.stderr


def test_a_stage_that_fails_is_told_as_such(aotc: Command) -> None:
    (aotc.folder / "broken.onnx").write_bytes(b"no model")
    done = aotc.plain("build", "broken.onnx")
    assert done.status == 3
    first, second, *_ = done.stderr.splitlines()
    assert re.fullmatch(r"import  \d+\.\d s, not finished", first)
    assert second.startswith("error: AOTC-I002 ")


def test_a_long_step_shows_that_it_lives(aotc: Command) -> None:
    often = Command(aotc.folder, {"AOTC_HEARTBEAT": "0.02"})
    done = often.plain("build", "model.onnx")
    alive = [line for line in done.stderr.splitlines() if line.startswith("still in ")]
    # The sandbox alone takes longer to start than this.
    assert any(re.fullmatch(r"still in import, \d+ s", line) for line in alive), done.stderr
    analyzed = r"still in analyze \(.*\), \d+ s: \d+ of \d+ steps, \d+ probes"
    assert any(re.fullmatch(analyzed, line) for line in alive), done.stderr
    assert "still in" not in done.stdout


@pytest.mark.parametrize("value", ["0", "-1", "often", ""])
def test_no_sign_of_life_where_none_is_wanted_or_soon(aotc: Command, value: str) -> None:
    done = Command(aotc.folder, {"AOTC_HEARTBEAT": value}).plain("build", "model.onnx")
    assert done.status == 0
    assert "still in" not in done.stderr


def test_every_model_of_a_folder_has_a_line(aotc: Command) -> None:
    models = aotc.folder / "models"
    models.mkdir()
    for name in ("one", "two"):
        save(linear(), models / f"{name}.onnx")
    done = aotc.plain("check-models", "models")
    assert done.status == 0
    first, second, last = done.stderr.splitlines()
    assert re.fullmatch(r"1/2 one\.onnx  \d+\.\d s", first)
    assert re.fullmatch(r"2/2 two\.onnx  \d+\.\d s", second)
    assert re.fullmatch(r"check \(2 models\)  \d+\.\d s", last)


def test_nested_stages_are_for_the_verbose(aotc: Command) -> None:
    (aotc.folder / "tuned.yaml").write_text(TUNED)
    plain = aotc.plain("build", "model.onnx", "--tune", "--profile", "tuned.yaml").stderr
    told = aotc.plain("build", "model.onnx", "--tune", "--profile", "tuned.yaml", "-v", "--force")
    assert re.search(r"^tune \(", plain, re.MULTILINE)
    assert not re.search(r"^ +prove", plain, re.MULTILINE)
    assert re.search(r"^  prove \(\w+\)  ", told.stderr, re.MULTILINE)
    assert told.stdout.count("\n") > plain.count("\n")


def test_the_log_has_every_step_with_its_time(aotc: Command) -> None:
    done = aotc.plain("build", "model.onnx", "-q", "--log-file", "build.log")
    assert (done.status, done.stderr) == (0, "")
    lines = (aotc.folder / "build.log").read_text().splitlines()
    moments, texts = zip(*(line.split("  ", 1) for line in lines), strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each) for each in moments)
    assert list(moments) == sorted(moments)
    assert re.fullmatch(r"aotc \S+: aotc build model\.onnx -q --log-file build\.log", texts[0]), (
        texts[0]
    )
    assert [text.split()[0] for text in texts if LINE.fullmatch(text)] == STAGES
    assert re.fullmatch(r"exit status 0  \d+\.\d s", texts[-1])


def test_a_log_holds_the_error_and_what_was_before(aotc: Command) -> None:
    aotc.plain("explain", "G005", "--log-file", "all.log")
    done = aotc.plain("build", "missing.onnx", "--json", "--log-file", "all.log")
    assert done.refused("AOTC-I001", 3)
    text = (aotc.folder / "all.log").read_text()
    assert re.search(
        r"Z  aotc \S+: aotc explain G005 --log-file all\.log\n.*Z  exit status 0  0\.", text
    )
    assert "  error: AOTC-I001 no such file\n" in text
    assert re.search(r"Z  exit status 3  \d+\.\d s\n\Z", text)


def test_foreign_text_cannot_forge_lines_of_a_log(aotc: Command) -> None:
    name = "a\n2026-01-01T00:00:00.000Z  done\x1b[2J.onnx"
    aotc.plain("build", name, "--log-file", "all.log")
    text = (aotc.folder / "all.log").read_text()
    assert "\x1b" not in text
    assert not re.search(r"^2026-01-01T00:00:00\.000Z", text, re.MULTILINE)


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_a_log_is_not_mixed_with_the_answer(aotc: Command, place: str) -> None:
    refused = aotc("explain", "G005", "--log-file", place)
    assert refused.refused("AOTC-I055", 3)["where"] == f"--log-file {place}"


def test_a_log_that_cannot_be_written_is_refused_before_the_work(aotc: Command) -> None:
    refused = aotc("build", "model.onnx", "--log-file", "no/such/folder/log")
    assert refused.refused("AOTC-I026", 3)
    assert not (aotc.folder / "model.aotc").exists()


def test_a_log_that_fills_its_disk_fails_no_build(aotc: Command) -> None:
    done = aotc.plain("build", "model.onnx", "-q", "--log-file", "/dev/full")
    assert done.status == 0
    assert done.stderr == "warning: the log /dev/full is incomplete: No space left on device\n"


def test_every_command_takes_the_options(aotc: Command) -> None:
    from aotc.cli.commands import every_command

    for name, command in every_command().items():
        spelled = {word for option in command.params for word in option.opts}
        assert {"-q", "--quiet", "-v", "--verbose", "--log-file"} <= spelled, name
    shown = aotc.plain("doctor", "-v").stderr
    assert re.fullmatch(r"aotc doctor  \d+\.\d s\n", shown)
    listed = aotc.plain("profile", "list", "--json", "-v")
    assert json.loads(listed.stdout)["schema"] == "aotc.list/1"
