"""Help as people read it: phrases with their defaults, in lines that the terminal holds."""

from __future__ import annotations

import io
import re
import sys

import pytest
from typer.core import TyperOption

from aotc.cli import main as cli
from aotc.cli.commands import every_command


def page(monkeypatch: pytest.MonkeyPatch, *words: str, columns: int = 100) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    assert cli.main([*words, "--help"]) == 0
    return stream.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 130])
@pytest.mark.parametrize("name", ["build", "trust add", "profile learn", "verify"])
def test_lines_stay_within_the_width(
    name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = page(monkeypatch, *name.split(), columns=columns)
    assert max(map(len, shown.splitlines())) <= columns
    assert "…" not in shown


def test_defaults_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page(monkeypatch, "build", columns=200)
    for line in (
        r"-o, --output NAME.aotc +artifact to write \(default: \./MODEL\.aotc\)",
        r"--profile NAME\|FILE +what to build: .* \(default: edge\)",
        r"--key FILE +signing key .* \(default: \$AOTC_SIGNING_KEY, or .* key\)",
        r"--dim NAME=SPEC +fix .* a dim \(may be repeated\)",
    ):
        assert re.search(line, shown), line
    shown = page(monkeypatch, "bench", columns=200)
    assert re.search(r"--warm-up N +runs of each side before the timed ones \(default: 3\)", shown)
    assert re.search(
        r"--runs N .* \(default: 300 for each stream, unless --seconds is given\)", shown
    )
    shown = page(monkeypatch, "keygen", columns=200)
    assert shown.startswith("usage: aotc keygen [OPTIONS] -o NAME.pem\n")
    assert "in the same folder (required)\n" in shown


@pytest.mark.parametrize("name", every_command())
def test_help_texts_are_phrases(name: str) -> None:
    """A parameter has one, without a capital or a full stop; a command's first line is one."""
    command = every_command()[name]
    assert re.fullmatch(r"[A-Z][^\n]*\.", (command.help or "").split("\n\n")[0])
    for parameter in command.params:
        text = str(getattr(parameter, "help", ""))
        assert re.match(r"[a-z.]|ONNX|OIDC|NAME", text), text
        assert not text.endswith("."), text
        assert "default" not in text, text
        if isinstance(parameter, TyperOption) and not parameter.is_flag:
            assert parameter.metavar, parameter
