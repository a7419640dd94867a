"""`aotc help`, and the versions of the toolchain as a document."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest
from command import Command
from repository import ROOT, TOOLCHAIN

from aotc.cli import main as cli
from aotc.cli.commands import COMMANDS, every_command
from aotc.spec.versions import VERSION


@pytest.mark.parametrize("name", [*COMMANDS, *every_command()])
def test_help_of_a_command_is_that_of_its_option(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert cli.main(["help", *name.split()]) == 0
    assert capsys.readouterr().out == shown


def test_help_alone_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "  help  " in shown
    for words in (["help"], ["help", "help"]):
        assert cli.main(words) == 0
        assert capsys.readouterr().out == shown


def test_help_of_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "bild"]) == 2
    assert "there is no command 'bild'; did you mean 'build'?" in capsys.readouterr().err
    assert cli.main(["help", "profile", "lst"]) == 2
    assert "there is no command 'lst'; did you mean 'list'?" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_versions_of_the_toolchain(option: str, tmp_path: Path) -> None:
    found = Command(tmp_path)(option).document
    schema = json.loads((ROOT / "manifests" / "version.schema.json").read_text())
    jsonschema.validate(found, schema)
    assert (found["aotc"], found["python"]) == (VERSION, platform.python_version())
    for name in ("onnx", "onnxruntime"):
        assert found["packages"][name] == metadata.version(name)
    assert all(metadata.version(name) == each for name, each in found["packages"].items())


def test_versions_are_told_without_importing_what_they_are_of() -> None:
    code = (
        "import sys; from aotc.cli.main import main; assert main(['--version', '--json']) == 0; "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert not {"onnx", "onnxruntime", "numpy", "tensorrt_rtx"} & loaded
