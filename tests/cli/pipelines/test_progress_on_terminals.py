"""What a terminal is sent: a row that moves, lines that stay, and colours for results."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command import Command
from made_models import linear, save
from terminal import on_a_terminal

GREEN, RED, YELLOW = "32m", "31m", "33m"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("built")
    save(linear(), folder / "model.onnx")
    aotc = Command(folder)
    assert aotc.plain("build", "model.onnx", "-q").status == 0
    shutil.copytree(folder / "model.aotc", folder / "bad.aotc")
    (weights,) = (folder / "bad.aotc" / "payload").rglob("model.onnx")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    return aotc


def plain(text: str) -> str:
    """Without what steers the terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_row_moves_and_the_answer_goes_elsewhere(built: Command) -> None:
    status, sent, answer = on_a_terminal(
        built,
        "build",
        "model.onnx",
        "-o",
        "other.aotc",
        "--no-cache",
        "--json",
        "-v",
        only_error=True,
    )
    assert status == 0
    assert json.loads(answer)["schema"] == "aotc.build/1"
    assert "\x1b[2K" in sent
    assert re.search(r"^  import  \d+\.\d s$", plain(sent).replace("\r", "\n"), re.MULTILINE)


def test_nothing_is_drawn_for_a_document(built: Command) -> None:
    status, sent, answer = on_a_terminal(
        built, "build", "model.onnx", "-o", "silent.aotc", "--json", only_error=True
    )
    assert (status, sent) == (0, "")
    assert json.loads(answer)["schema"] == "aotc.build/1"


def test_the_share_done_and_the_time_left_are_shown(built: Command) -> None:
    """Of several models it is known how many there are."""
    models = built.folder / "models"
    models.mkdir()
    for number in range(3):
        save(linear(), models / f"{number}.onnx")
    status, sent, _ = on_a_terminal(built, "check-models", "models", columns=120)
    assert status == 0
    text = plain(sent)
    assert "0 of 3 models" in text
    assert "2 of 3 models" in text
    # The bar, and rich's estimate.
    assert "━" in text
    assert re.search(r"2 of 3 models 0:\d\d:\d\d 0?\d:\d\d left", text)


def test_results_have_colours(built: Command) -> None:
    _, sent, _ = on_a_terminal(built, "verify", "model.aotc")
    assert f"\x1b[{GREEN}passed" in sent
    status, sent, _ = on_a_terminal(built, "verify", "bad.aotc")
    assert status == 1
    assert f"\x1b[1;{RED}  REFUSED: changed since it was signed" in sent
    assert f"\x1b[{RED}failed" in sent
    _, sent, _ = on_a_terminal(built, "inspect", "model.aotc")
    assert re.search(rf"\x1b\[{YELLOW} *AOTC-[A-Z]\d", sent), sent
    _, sent, _ = on_a_terminal(built, "verify", "missing.aotc")
    assert f"\x1b[1;{RED}error:" in sent


def test_no_color_is_honoured(built: Command) -> None:
    for words in (("verify", "bad.aotc"), ("verify", "missing.aotc"), ("inspect", "model.aotc")):
        _, sent, _ = on_a_terminal(built, *words, change={"NO_COLOR": "1"})
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", sent), sent
        assert "AOTC-" in sent


def test_a_pipe_gets_colours_by_force_alone(built: Command) -> None:
    assert "\x1b" not in built.plain("verify", "bad.aotc").stdout
    forced = Command(built.folder, {"FORCE_COLOR": "1"})
    assert f"\x1b[{RED}failed" in forced.plain("verify", "bad.aotc").stdout
    assert f"\x1b[1;{RED}error:" in forced.plain("verify", "missing.aotc").stderr
    assert json.loads(forced.plain("verify", "bad.aotc", "--json").stdout)["authentic"] is False


def test_a_long_name_makes_no_line_of_its_own(built: Command, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    save(linear(), models / f"{'x' * 150}.onnx")
    _, sent, _ = on_a_terminal(built, "check-models", str(models), "--json", "-v", columns=60)
    lines = plain(sent).replace("\r", "\n").splitlines()
    assert not [line for line in lines if line.startswith("x")]


# -- what takes long beside a build: hashing, installing, signing
@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """An artifact whose weights are long to hash: 96 MB."""
    aotc = Command(tmp_path_factory.mktemp("large"))
    save(linear(features=4900), aotc.folder / "model.onnx")
    assert aotc.plain("build", "model.onnx", "--dim", "batch=1", "-q").status == 0
    return aotc


@pytest.mark.parametrize(
    ("call", "stage"),
    [
        ("verify model.aotc", "hash"),
        ("install model.aotc --store store", "hash"),
        ("run model.aotc --variant portable", "hash"),
        ("sign model.aotc --force", "hash"),
        ("pack model.aotc -o packed.zip", "pack"),
        ("unpack packed.zip -o unpacked.aotc", "unpack"),
    ],
)
def test_long_work_has_a_bar(large: Command, call: str, stage: str) -> None:
    status, sent, answer = on_a_terminal(large, *call.split(), only_error=True, columns=120)
    assert status == 0, sent
    told = plain(sent).replace("\r", "\n")
    assert re.search(rf"{stage}.*━.* of 9\d\.\d MB", told), told
    # The answer is on standard output, and nothing else.
    assert "━" not in answer
    # And a line stays.
    assert re.search(rf"^ *{stage}( \(.*\))?  \d+\.\d s *$", told, re.MULTILINE)


def test_a_pipe_is_told_nothing_of_it(large: Command) -> None:
    for words in (("verify", "model.aotc"), ("install", "model.aotc"), ("sign", "model.aotc")):
        assert large.plain(*words, *(["--force"] if words[0] == "sign" else ())).stderr == ""
    for words in (("--json",), ("-q",)):
        _, sent, _ = on_a_terminal(large, "verify", "model.aotc", *words, only_error=True)
        assert sent == ""
