"""The code and the tests that the threat model names are there."""

from __future__ import annotations

import re

from repository import ROOT

ROWS = [
    line
    for line in (ROOT / "docs" / "threat-model.md").read_text("utf-8").splitlines()
    if line.startswith("|") and ".py`" in line
]


def test_every_answer_names_code_and_a_test() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        *_, code, test, _ = row.split("|")
        assert code.strip(), row
        assert test.strip(), row


def test_what_a_row_names_is_there() -> None:
    for row in ROWS:
        *_, code, test, _ = row.split("|")
        for folder, cell in (("toolchain/aotc", code), ("tests", test)):
            for name in re.findall(r"`([\w/.-]+\.py)`", cell):
                assert (ROOT / folder / name).is_file(), row


def test_the_table_of_attackers_names_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    section = text.partition("## Who does what, and what stops it")[2].partition("\n## ")[0]
    head, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    assert head == "| Who | What | Which defence | Which test |"
    assert len(rows) >= 15
    for row in rows:
        who, what, defence, test = (cell.strip() for cell in row.strip("|").split(" | "))
        assert who and what and defence, row
        names = re.findall(r"`([^`]+)`", test)
        assert names and test == ", ".join(f"`{name}`" for name in names), row
        for name in names:
            assert name.endswith(".py"), name
            assert (ROOT / "tests" / name).is_file(), name
        for name in re.findall(r"`([a-z][\w/]*(?:\.py|/))`", defence):
            assert (ROOT / "toolchain" / "aotc" / name).exists(), name
