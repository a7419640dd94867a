"""Words, variables and folders that are bytes in no encoding: refused before anything is done.

Every command is asked, and every option that it has, whichever they are.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import Command
from made_models import FEATURES, linear, save
from onnx import numpy_helper
from repository import TOOLCHAIN
from typer.core import TyperOption

import aotc as aotc_library
from aotc.base.errors import AotcError
from aotc.cli import main as cli
from aotc.cli.commands import every_command
from aotc.cli.grammar import label, options_by_name, positionals

OTHER = os.fsdecode(b"\xff")
COMMANDS = every_command()
# What is no document, or has none to print.
PLAIN = ("completion",)


@pytest.fixture
def called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, dict[str, Any]]]:
    """The status of a call in an empty folder, and its answer, which is UTF-8."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        written = [io.BytesIO(), io.BytesIO()]
        with monkeypatch.context() as patched:
            for name, file in zip(("stdout", "stderr"), written, strict=True):
                patched.setattr(sys, name, io.TextIOWrapper(file, "utf-8", write_through=True))
            status = cli.main(list(words))
            out, err = (file.getvalue().decode("utf-8") for file in written)
        return status, json.loads(out) if "--json" in words else {"text": out + err}

    return call


def needed(name: str, other_than: str) -> list[str]:
    """Words without which the command refuses its call, those of one option left out."""
    found: list[str] = []
    options = options_by_name(COMMANDS[name].params)
    for option in dict.fromkeys(options.values()):
        if option.required and other_than not in option.opts:
            found.append(f"{max(option.opts, key=len)}=x")
    choice = getattr(COMMANDS[name].callback, "command_choice", ())
    if choice and other_than not in choice:
        option = options[choice[0]]
        found.append(choice[0] if option.is_flag else f"{choice[0]}=x")
    return found


def calls() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every command, each option that has a value and each argument, and words with that alone.

    Each option has another form of value, so that all come up among those of every command.
    """
    forms = cycle((OTHER, f"/abs/{OTHER}.aotc", f"{OTHER}=1", f"a={OTHER}", f"é{OTHER}"))
    for name, command in COMMANDS.items():
        places = positionals(command.params)
        operands = ["x"] * len(places)
        for option in dict.fromkeys(options_by_name(command.params).values()):
            if option.is_flag:
                continue
            for spelled in option.opts:
                words = [*needed(name, spelled), f"{spelled}={next(forms)}"]
                yield name, max(option.opts, key=len), (*words, *operands)
                yield name, max(option.opts, key=len), (
                    *needed(name, spelled), *operands, spelled, OTHER
                )  # fmt: skip
        for index, place in enumerate(places):
            given = [*operands[:index], OTHER, *operands[index + 1 :]]
            yield name, label(place), (*needed(name, ""), *given)
            yield name, label(place), (*needed(name, ""), "--", *given)


def test_the_sweep_reaches_everything() -> None:
    swept = {(name, what) for name, what, _ in calls()}
    for name, command in COMMANDS.items():
        for each in command.params:
            if isinstance(each, TyperOption) and each.is_flag:
                continue
            spelled = max(each.opts, key=len) if isinstance(each, TyperOption) else label(each)
            assert (name, spelled) in swept
    assert len(swept) > 150


def test_every_word_of_every_command(called: Callable[..., tuple[int, dict[str, Any]]]) -> None:
    found = []
    for name, what, words in calls():
        json_ = () if name in PLAIN else ("--json",)
        status, answer = called(*name.split(), *json_, *words)
        told = json.dumps(answer)
        if status != 2 or "AOTC-I027" not in told or f"argument {what} is not UTF-8" not in told:
            found.append((name, words, status, told[:300]))
    assert not found
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "words", [(OTHER,), ("trust", OTHER), (f"--{OTHER}",), ("build", "m.onnx", f"--{OTHER}=1")]
)
def test_words_that_name_nothing(
    words: tuple[str, ...], called: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    status, answer = called(*words)
    assert status == 2
    assert "AOTC-I027" in answer["text"]
    assert "\\udcff" in answer["text"]


def read_variables() -> list[str]:
    """The variables of ours and of the user's folders that the source names."""
    text = "".join(path.read_text() for path in sorted(TOOLCHAIN.rglob("*.py")))
    found = set(re.findall(r'"((?:AOTC|XDG)_[A-Z_]+|HOME|TMPDIR)"', text))
    assert {"AOTC_STORE", "AOTC_CACHE", "AOTC_CONFIG", "XDG_CONFIG_HOME", "HOME"} <= found
    return sorted(found)


@pytest.mark.parametrize("name", read_variables())
def test_every_variable(
    name: str,
    called: Callable[..., tuple[int, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(name, f"/a/{OTHER}")
    status, answer = called("explain", "AOTC-G001", "--json")
    if name == "AOTC_KEY_PASSWORD":
        # A password is bytes.
        assert status == 0
        return
    assert status == 2
    assert answer["errors"][0]["where"] == f"${name}"
    # Help is there to be read.
    assert called("build", "--help")[0] == 0


@pytest.mark.parametrize("words", [("verify", OTHER), ("build", "--profile", OTHER), (OTHER,)])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_such_a_word(
    shell: str,
    words: tuple[str, ...],
    called: Callable[..., tuple[int, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("_AOTC_COMPLETE", shell)
    assert called(*words)[0] == 2


def test_a_working_folder_of_such_a_name(
    tmp_path: Path,
    called: Callable[..., tuple[int, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / OTHER
    folder.mkdir()
    save(linear(), folder / "x")
    monkeypatch.chdir(folder)
    for name, command in COMMANDS.items():
        operands = ["x"] * len(positionals(command.params))
        json_ = () if name in PLAIN else ("--json",)
        status, answer = called(*name.split(), *needed(name, ""), *operands, *json_)
        told = json.dumps(answer)
        assert (status, "the name of the working directory" in told) == (2, True), (name, told)
    assert called("--version")[0] == 0
    assert [path.name for path in folder.iterdir()] == ["x"]


def _sample(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = numpy_helper.from_array(np.ones((2, FEATURES), np.float32), "x")
    path.write_bytes(array.SerializeToString())


@pytest.mark.parametrize("option", ["--fixtures", "--calibration"])
@pytest.mark.parametrize("where", ["set", "file", "archive"])
def test_names_of_test_data(aotc: Command, where: str, option: str) -> None:
    save(linear(), aotc.folder / "m.onnx")
    data = aotc.folder / "data"
    _sample(data / "good" / "input_0.pb")
    if where == "set":
        _sample(data / OTHER / "input_0.pb")
    elif where == "file":
        _sample(data / "good" / f"{OTHER}.pb")
    else:
        np.savez(data / f"{OTHER}.npz", x=np.ones((2, FEATURES), np.float32))
    precision = ("--precision", "int8") if option == "--calibration" else ()
    outcome = aotc("build", "m.onnx", "-o", "m.aotc", option, "data", *precision)
    found = outcome.refused("AOTC-I027", 2)
    assert found["what"] == "the name of a file is not UTF-8"
    assert not (aotc.folder / "m.aotc").exists()


@pytest.mark.parametrize("name", [OTHER, "a\nb", "-x", "\u2028", "\x1b[31m"])
def test_names_in_an_artifact_or_a_folder_of_models(aotc: Command, name: str) -> None:
    save(linear(), aotc.folder / "m.onnx")
    assert aotc("build", "m.onnx", "-o", "m.aotc").status == 0
    for where in (".", "payload", "attestations"):
        (aotc.folder / "m.aotc" / where / name).write_bytes(b"x")
    forms = ("json", "md", "xml", "sarif", "codequality.json", "html")
    reports = [f"--report=r.{form}" for form in forms]
    aotc("verify", "m.aotc", *reports).refused("AOTC-G007", 1)
    assert aotc("inspect", "m.aotc").status == 0
    assert aotc("run", "m.aotc").status == 1
    assert aotc("install", "m.aotc").status == 1
    given = aotc.folder / "models"
    (given / f"{name}-folder").mkdir(parents=True)
    for each in (f"{name}.onnx", f"{name}-folder/m.onnx"):
        shutil.copy(aotc.folder / "m.onnx", given / each)
    (given / f"{name}-bad.onnx").write_bytes(b"no model")
    outcome = aotc("check-models", "models", *reports, "--output", "checked.json")
    assert outcome.status == 1
    models = outcome.document["models"]
    assert "AOTC-R999" not in json.dumps(models)
    # ONNX Runtime opens no file of such a name.
    built = set() if name == OTHER else {"built"}
    assert {each["outcome"] for each in models} == {"refused", *built}
    for report in ("checked.json", *(f"r.{form}" for form in forms)):
        (aotc.folder / report).read_bytes().decode("utf-8")


def test_the_library_refuses_them_too(tmp_path: Path) -> None:
    model = save(linear(), tmp_path / "m.onnx")
    folder = tmp_path / OTHER
    folder.mkdir()
    options: dict[str, Any] = {"cache": False, "force": True}
    with pytest.raises(AotcError) as caught:
        aotc_library.build(model, output=folder / "m.aotc", **options)
    assert caught.value.code == "AOTC-I027"
    assert "the path of the artifact is not UTF-8" in caught.value.what
    with pytest.raises(AotcError) as caught:
        aotc_library.build(model, output=tmp_path / "m.aotc", invocation_id=OTHER, **options)
    assert caught.value.code == "AOTC-I027"
    assert not list(folder.iterdir())
    assert [path.name for path in tmp_path.glob("*.aotc")] == []
