"""Every example at the end of every command's help runs as it stands, in a shell.

Where one names a registry, Debian's runs in its place, on loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command import SCRIPT, Command
from made_models import FEATURES, linear, save
from ready_command import write_program
from registries import docker_registry
from repository import ROOT

from aotc.cli import main as cli
from aotc.cli.commands import every_command

EXAMPLES = [(name, call) for name, each in every_command().items() for call in each.examples]
# What an example needs that is not everywhere, by a word in it: where it is found, and what it is.
NEEDED = {
    "jq": (shutil.which("jq"), "jq, the program, is not installed"),
}
# What is built once, in this order, for the examples to work on.
MADE = (
    "keygen -o release.pem",
    "keygen -o second.pem",
    "keygen -o root.pem",
    "build model.onnx --dim batch=1..8 --key release.pem -o model.aotc",
    # With this user's development key, too.
    "sign model.aotc --trust release.pub",
    "build model.onnx --dim batch=1..8 -o other.aotc",
    "build model.onnx --dim batch=1..8 --target linux-x86-64 -o portable.aotc",
    "pack model.aotc -o release.aotc.zip",
    "trust init --name prod --signer release=release.pub -o trust.yaml",
    "profile learn traffic.jsonl --model model.onnx --seconds 1 --save-costs costs.json",
    "check-models models --output known.json",
    "fleet build fleet.yaml --shard 1/2 --report shard-1.json",
    "fleet build fleet.yaml --shard 2/2 --report shard-2.json",
    "install model.aotc",
    "install model.aotc --store store",
)
# Hosts of registries in examples.
REGISTRIES = ("registry.example.com", "localhost:5000")
PUSHED = "push model.aotc oci://registry.example.com/models/shop:1.4"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry."""
    with docker_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running.host


@pytest.fixture(scope="module")
def pushed(workspace: Path, registry: str) -> str:
    """The address of a registry that has what examples pull."""
    made = Command(workspace).plain(*_with_registry(PUSHED, registry).split())
    assert made.status == 0, made
    return registry


def _with_registry(call: str, host: str) -> str:
    for each in REGISTRIES:
        call = call.replace(each, host)
    return call


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the examples name."""
    aotc = Command(tmp_path_factory.mktemp("workspace"), {"AOTC_STORE": "home/store"})
    folder = aotc.folder
    for name in ("model", "resnet"):
        save(linear(), folder / f"{name}.onnx")
    (folder / "models").mkdir()
    save(linear(), folder / "models" / "linear.onnx")
    (folder / "fleet.yaml").write_text(
        "schema: aotc.fleet/1\nname: zoo\nmodels: [models/*.onnx]\ntargets: [host, linux-x86-64]\n"
    )
    np.save(folder / "x.npy", np.ones((2, FEATURES), np.float32))
    lines = [f'{{"x": [{size}, {FEATURES}]}}\n' for size in (1, 1, 2, 4)]
    (folder / "traffic.jsonl").write_text("".join(lines))
    (folder / "password.txt").write_text("correct horse\n")
    for words in MADE:
        made = aotc.plain(*words.split())
        assert made.status == 0, made
    shown = aotc.plain("profile", "show", "server-cpu").stdout
    (folder / "mine.yaml").write_text(shown)
    return folder


def test_every_command_has_two_examples() -> None:
    """Each is of the command whose help shows it."""
    for name, command in every_command().items():
        assert len(command.examples) == 2, name
        assert all(f"{each} ".startswith(f"aotc {name} ") for each in command.examples), name


def test_the_guide_to_fleets_shows_examples_that_run_here() -> None:
    page = (ROOT / "docs" / "guides" / "pipeline" / "fleet.md").read_text("utf-8")
    block = r"<!-- run by: tests/cli/help/test_help_examples.py -->\n```sh\n(.*?)```"
    shown = [call for found in re.findall(block, page, re.DOTALL) for call in found.splitlines()]
    assert shown
    assert set(shown) <= {call for _, call in EXAMPLES}


@pytest.mark.parametrize(("name", "call"), EXAMPLES, ids=[call for _, call in EXAMPLES])
def test_example(
    name: str, call: str, workspace: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if any(each in call for each in REGISTRIES):
        call = _with_registry(call, request.getfixturevalue("pushed"))
    for word in call.split():
        found, missing = NEEDED.get(word, ("nothing is needed", ""))
        if found is None:
            pytest.skip(missing)
    here = tmp_path / "here"
    shutil.copytree(workspace, here, symlinks=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    write_program(programs)
    environment = Command(here, {"AOTC_STORE": str(here / "home" / "store")}).environment()
    path = (str(programs), str(SCRIPT.parent), environment["PATH"])
    environment["PATH"] = os.pathsep.join(path)
    (here / "home" / ".config" / "fish" / "completions").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["sh", "-ec", call],
        cwd=here,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Stages with their times, and nothing else, but for what is told before a rebuild.
    if not call.startswith("aotc reproduce"):
        lines = done.stderr.splitlines()
        assert not [line for line in lines if not re.search(r"  \d+\.\d s$", line)]


@pytest.mark.parametrize("name", every_command())
def test_help_ends_with_the_examples(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    expected = "".join(f"  {call}\n" for call in every_command()[name].examples)
    assert shown.endswith(f"\nexamples\n{expected}")
