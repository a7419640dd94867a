"""What is offered for each beginning of a call, and what finding it out imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import TOOLCHAIN

from aotc.base.codes import REASONS
from aotc.cli.commands import COMMANDS, all_commands, every_command
from aotc.cli.shell_completion import answer, candidates

HEAVY = ("rich", "onnx", "onnxruntime", "numpy", "yaml", "cryptography", "google")


def offered(*words: str) -> list[str]:
    return [value for value, _ in candidates(all_commands(), words)]


def test_commands() -> None:
    assert offered("") == [*COMMANDS, "help"]
    assert offered("help", "ver") == ["verify"]
    assert offered("help", "trust", "ad") == ["add"]
    assert offered("ver") == ["verify"]
    assert offered("trust", "") == ["init", "add", "check", "explain", "sign", "root"]
    assert offered("nothing", "") == []


def test_options() -> None:
    assert offered("--") == ["--version", "--debug", "--help"]
    assert offered("verify", "--t") == ["--trust", "--target"]
    assert offered("build", "m.onnx", "--no") == ["--no-cache"]
    # One that was given is not given again, unless it may be repeated.
    assert offered("verify", "--trust", "a", "--t") == ["--target"]
    assert offered("build", "--dim", "a=1", "--di") == ["--dim"]


@pytest.mark.parametrize("name", every_command())
def test_every_option_of_every_command(name: str) -> None:
    known = {
        max(spellings, key=len)
        for each in every_command()[name].params
        if each.param_type_name == "option" and not each.hidden
        for spellings in (each.opts, each.secondary_opts)
        if spellings
    }
    assert set(offered(*name.split(), "-")) == {*known, "--help"}


def test_values() -> None:
    assert offered("explain", "") == sorted(REASONS)
    assert offered("explain", "G005") == ["G005"]
    servers = ["server-cpu", "server-cuda", "server-tensorrt"]
    assert offered("build", "m.onnx", "--profile", "server-") == servers
    assert offered("build", "m.onnx", "--profile=server-cp") == ["--profile=server-cpu"]
    assert offered("verify", "a.aotc", "--target", "h") == ["host"]
    assert offered("trust", "add", "trust.yaml", "--usage", "oms,sb") == ["oms,sbom"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize(
    "words", [("build", ""), ("build", "m.onnx", ""), ("verify", "a", "--key", "")]
)
def test_paths_are_left_to_the_shell(words: tuple[str, ...]) -> None:
    assert offered(*words) == []


def test_bash_takes_what_stands_around_an_equals_sign_for_words() -> None:
    words = ("build", "m.onnx", "--profile", "=", "server-cp")
    assert answer(all_commands(), words, "bash") == "server-cpu\n"
    assert answer(all_commands(), (*words[:3], "="), "bash").splitlines()[0] == "edge"


@pytest.mark.parametrize("words", [("",), ("build", "--"), ("explain", "G"), ("run", "a", "--")])
def test_completing_imports_nothing_heavy(words: tuple[str, ...]) -> None:
    code = (
        "import sys; from aotc.cli.main import main; assert main() == 2;"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN), "_AOTC_COMPLETE": "bash"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.splitlines()[-1] == "[]"
    assert len(shown.stdout.splitlines()) > 1


@pytest.mark.parametrize("leaked", ["1", "0", "bash_source", "bash"])
def test_a_variable_that_leaks_makes_no_verification_pass(leaked: str, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "aotc.cli.main", "verify", "none.aotc"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TOOLCHAIN), "_AOTC_COMPLETE": leaked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode in (2, 3), shown
