"""Names that options had: they work as those of today do, and stand in no help."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import Command
from made_models import linear, save

from aotc.cli.commands import every_command
from aotc.cli.grammar import show_command

FORMER = (
    ("trust add", ("--id", "--key"), "--signer ID=PUB"),
    ("trust root", ("--policy",), "--name NAME"),
    ("trust init", ("--days",), "--expires MOMENT"),
    ("profile learn", ("--dim-names",), "--dim NAME[,NAME]"),
    ("bench", ("--model", "--dims"), "--dim NAME=SIZE"),
    ("build", ("--dims", "--license"), "--dim NAME=SPEC"),
)


@pytest.fixture
def keys(tmp_path: Path) -> Command:
    aotc = Command(tmp_path)
    for name in ("release", "ops"):
        assert aotc("keygen", "-o", f"{name}.pem").status == 0
    return aotc


def text(aotc: Command, name: str) -> str:
    """A policy, without the moments of this call."""
    lines = (aotc.folder / name).read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("expires", "issued")))


def test_a_key_of_a_policy(keys: Command) -> None:
    for name, words in {
        "today.yaml": ("--signer", "ops=ops.pub"),
        "former.yaml": ("--id", "ops", "--key", "ops.pub"),
    }.items():
        init = ("trust", "init", "--name", "plant", "--signer", "release=release.pub", "-o", name)
        assert keys(*init).status == 0
        assert keys("trust", "add", name, *words, "--usage", "approval").status == 0
    assert text(keys, "today.yaml") == text(keys, "former.yaml")
    refused = keys("trust", "add", "today.yaml", "--signer", "a=ops.pub", "--key", "ops.pub")
    assert refused.refused("AOTC-I027", 2)["what"] == (
        "argument --key: not allowed with argument --signer"
    )


def test_the_end_of_a_policy(keys: Command) -> None:
    init = ("trust", "init", "--name", "plant", "--signer", "release=release.pub")
    assert keys(*init, "--expires", "2099-01-31", "-o", "a.yaml").status == 0
    assert "expires: 2099-01-31T00:00:00Z" in (keys.folder / "a.yaml").read_text()
    assert keys(*init, "--days", "1", "-o", "b.yaml").status == 0
    found = keys(*init, "--days", "1", "--expires", "2099-01-31").refused("AOTC-I027", 2)
    assert found["what"] == "argument --expires: not allowed with argument --days"


def test_a_name_of_a_policy(keys: Command) -> None:
    words = ("trust", "root", "--key", "release.pub", "--threshold", "1", "-o")
    assert keys(*words, "a.yaml", "--name", "plant").status == 0
    assert keys(*words, "b.yaml", "--policy=plant").status == 0
    assert (keys.folder / "a.yaml").read_text() == (keys.folder / "b.yaml").read_text()
    twice = keys(*words, "c.yaml", "--name", "plant", "--policy", "other").document
    assert twice["policy"] == "other"


def test_dims(tmp_path: Path) -> None:
    aotc = Command(tmp_path)
    save(linear(), aotc.folder / "model.onnx")
    former = aotc("build", "model.onnx", "--dims", "batch=1..8", "--license", "MIT")
    today = aotc("build", "model.onnx", "--dim", "batch=1..8", "--licence", "MIT", "--force")
    assert former.document["artifact_id"] == today.document["artifact_id"]
    timed = aotc("bench", "model.aotc", "--model", "model.onnx", "--dims", "batch=4", "--runs", "5")
    assert timed.document["sizes"] == {"batch": 4}
    assert len(timed.document["timings"]) == 2


@pytest.mark.parametrize(("name", "former", "today"), FORMER)
def test_help_shows_the_names_of_today(
    name: str, former: tuple[str, ...], today: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = every_command()[name]
    show_command(f"aotc {name}", command.help or "", command.params, command.examples)
    shown = capsys.readouterr().out
    assert today in shown
    for option in former:
        assert f"{option} " not in shown
