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
