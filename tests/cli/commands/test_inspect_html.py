"""`aotc inspect --html`: the file, standard output, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn_artifacts import DIGITS, built, read_page, text_of

from aotc.cli.main import main


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("digits"), DIGITS, "--dim", "batch=1..8")


def test_a_file_beside_the_answer(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")
    assert main(["inspect", str(artifact), "--html", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "aotc.inspect/1"
    assert text_of(read_page(file.read_text("ascii"))).startswith("digits")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_standard_output(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(artifact), "--html", "-"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("<!doctype html>\n")
    assert shown.out.endswith("</html>\n")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["{artifact}", "--html", "-", "--json"], 2, "AOTC-I027"),
        (["{artifact}", "--html", "{folder}/none/x.html"], 3, "AOTC-I026"),
        (["{artifact}", "--html", "{folder}"], 3, "AOTC-I026"),
        ([str(DIGITS), "--html", "{folder}/x.html"], 2, "AOTC-I057"),
    ],
)
def test_refusals(
    artifact: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    status: int,
    code: str,
) -> None:
    given = [word.format(artifact=artifact, folder=tmp_path) for word in words]
    assert main(["inspect", *given]) == status
    shown = capsys.readouterr()
    assert code in shown.out + shown.err
    assert list(tmp_path.iterdir()) == []


def test_the_layout_library_is_named_where_it_is_missing(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    assert main(["inspect", str(artifact), "--html", str(tmp_path / "x.html")]) == 0
    shown = text_of(read_page((tmp_path / "x.html").read_text("ascii")))
    assert "Not drawn: AOTC-I019" in shown
    assert "[report]" in shown


@pytest.mark.parametrize("command", ["inspect", "diff"])
@pytest.mark.parametrize(
    "file", ["{artifact}/payload/page.html", "{folder}/s.zip", "{folder}/l.zip"]
)
def test_an_input_is_not_overwritten(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, file: str
) -> None:
    """Neither in the artifact nor over a packed one, also where a link names it."""
    packed = tmp_path / "s.zip"
    assert main(["pack", str(artifact), "-o", str(packed)]) == 0
    (tmp_path / "l.zip").symlink_to(packed)
    content = packed.read_bytes()
    capsys.readouterr()
    inputs = [str(packed)] if "{folder}" in file else [str(artifact)]
    if command == "diff":
        inputs.insert(0, str(artifact))
    html = file.format(artifact=artifact, folder=tmp_path)
    assert main([command, *inputs, "--html", html]) == 2
    told = capsys.readouterr().err
    assert "AOTC-I027" in told
    assert "--html would overwrite an input" in told
    assert packed.read_bytes() == content
    assert not (artifact / "payload/page.html").exists()
