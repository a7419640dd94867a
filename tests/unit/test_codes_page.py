"""The page of codes is generated from the catalogue, and explains every code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from aotc.errors import AotcError
from aotc.inspection.explanation import LETTERS, explain, explain_all
from aotc.reasons import REASONS

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_current() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "ci" / "generate_docs.py"), "--check"],
        env={"PYTHONPATH": str(ROOT / "toolchain")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "")


def test_every_code_is_explained() -> None:
    assert [each.code for each in explain_all()] == list(REASONS)
    assert {code[5] for code in REASONS} == set(LETTERS)


@pytest.mark.parametrize("spelling", ["AOTC-C004", "aotc-c004", "c004", " C004 "])
def test_a_code_may_be_spelt_short(spelling: str) -> None:
    found = explain(spelling)
    assert found.code == "AOTC-C004"
    assert found.detail.startswith("The host's CPU has the features")


def test_an_unknown_code() -> None:
    with pytest.raises(AotcError) as caught:
        explain("G0005")
    assert caught.value.line() == "AOTC-I027 there is no code 'G0005'; did you mean AOTC-G005?"
