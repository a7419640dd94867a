"""`aotc explain`: several codes, in any spelling, in lines of the terminal's width."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from command import Command
from terminal import on_a_terminal

from aotc.base.codes import REASONS

TEXT = """\
AOTC-G005: digest mismatch

(exit status 1)

The content of a file is not what was signed.

Fix: Get the artifact from its builder again; do not load it.

AOTC-G016: signed with a development key

(a finding: it is reported, and refuses nothing)

The signature is by this user's own development key, which other machines do not trust.

Fix: Sign releases with --key.
"""


@pytest.fixture
def aotc(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("G005", "G016"),
        ("AOTC-G005", "AOTC-G016"),
        ("g005", "aotc-g016"),
        ("G005,", "G016"),
        ("G005,g016",),
        ("G005", "G016", "g005"),
    ],
    ids=" ".join,
)
def test_several_codes_in_any_spelling(aotc: Command, words: tuple[str, ...]) -> None:
    done = aotc.plain("explain", *words)
    assert (done.status, done.stdout, done.stderr) == (0, TEXT, "")
    codes = [each["code"] for each in aotc("explain", *words).document["reasons"]]
    assert codes == ["AOTC-G005", "AOTC-G016"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_are_as_wide_as_the_terminal(aotc: Command, columns: int) -> None:
    _, sent, _ = on_a_terminal(aotc, "explain", "N040", columns=columns)
    lines = sent.splitlines()
    assert max(map(len, lines)) <= columns
    # The room is used: no next word would have had room in the line before.
    for line, following in pairwise(lines):
        if line and following:
            assert len(line) + 1 + len(following.split()[0]) > columns
    whole = " ".join(sent.split())
    assert " ".join(REASONS["AOTC-N040"].explain.split()) in whole


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("G005", "G0015"), "there is no code 'G0015'; did you mean AOTC-G001?"),
        (("QQQQ",), "there is no code 'QQQQ'"),
        (("verify",), "there is no code 'verify'"),
        ((), "give a code, or --list"),
        (("G005", "--list"), "give a code, or --list"),
        ((",",), "give a code, or --list"),
    ],
)
def test_what_is_no_code(aotc: Command, words: tuple[str, ...], what: str) -> None:
    assert aotc("explain", *words).refused("AOTC-I027", 2)["what"] == what
    shown = aotc.plain("explain", *words)
    assert "  usage:    aotc explain [OPTIONS] [CODE...]\n" in shown.stderr


def test_the_list_has_every_code(aotc: Command) -> None:
    shown = aotc.plain("explain", "--list").stdout.splitlines()
    assert shown == [f"{code}  {REASONS[code].title}" for code in sorted(REASONS)]
    _, sent, _ = on_a_terminal(aotc, "explain", "--list", columns=60)
    assert re.search(r"^AOTC-G005  digest mismatch *$", sent, re.MULTILINE)
