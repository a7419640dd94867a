"""`aotc pack` and `aotc unpack`: where they write, what they print, how they end."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from aotc.cli import main as cli


@pytest.fixture(autouse=True)
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "built" / "m.aotc" / "payload"
    place.mkdir(parents=True)
    (place / "aotc.json").write_bytes(b"{}")


def test_outputs_are_named_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pack", "built/m.aotc/", "--json"]) == 0
    packed = json.loads(capsys.readouterr().out)
    assert packed["schema"] == "aotc.pack/1"
    assert packed["archive"] == "m.aotc.zip"
    assert packed["bytes"] == Path("m.aotc.zip").stat().st_size
    assert cli.main(["unpack", "m.aotc.zip", "--json"]) == 0
    unpacked = json.loads(capsys.readouterr().out)
    assert unpacked["schema"] == "aotc.unpack/1"
    assert unpacked["artifact"] == "m.aotc"
    assert unpacked["artifact_id"] == packed["artifact_id"]
    assert Path("m.aotc/payload/aotc.json").read_bytes() == b"{}"


def test_what_people_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pack", "built/m.aotc", "-o", "a.zip"]) == 0
    assert capsys.readouterr().out.startswith("a.zip  1 file packed\n")
    assert cli.main(["unpack", "a.zip", "-o", "b"]) == 0
    assert capsys.readouterr().out.startswith("b  1 file unpacked\n")


def test_a_zip_by_another_program(capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile("other.zip", "w") as other:
        other.mkdir("payload")
        other.write("built/m.aotc/payload/aotc.json", "payload/aotc.json")
    assert cli.main(["unpack", "other.zip", "-o", "out"]) == 1
    said = capsys.readouterr().err
    assert "AOTC-G008" in said
    assert "Unpack it with the program that made it, and use 'aotc pack' on the folder." in said


def test_what_is_packed_is_not_packed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pack", "built/m.aotc"]) == 0
    assert cli.main(["pack", "m.aotc.zip"]) == 1
    assert "Give the artifact's folder; 'aotc unpack' makes one" in capsys.readouterr().err


def test_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pack", "built/m.aotc"]) == 0
    assert cli.main(["pack", "built/m.aotc"]) == 3
    assert "AOTC-I017" in capsys.readouterr().err
    assert cli.main(["pack", "built/m.aotc", "--force"]) == 0
    assert cli.main(["unpack", "built/m.aotc"]) == 2
    assert "-o" in capsys.readouterr().err
    with Path("m.aotc.zip").open("ab") as file:
        file.write(b"\n")
    assert cli.main(["unpack", "m.aotc.zip"]) == 1
    assert "AOTC-G039" in capsys.readouterr().err
    Path("built/m.aotc/notes.txt").write_text("x")
    assert cli.main(["pack", "built/m.aotc", "-o", "c.zip"]) == 3
    assert "AOTC-I035" in capsys.readouterr().err
    assert sorted(path.name for path in Path().iterdir()) == ["built", "m.aotc.zip"]
