"""Every reader of untrusted files under the fuzzer, for a second or two each; slow: for longer."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from fuzz_run import can_fuzz, fuzz
from fuzz_target import NAMES

SECONDS, LONG = 15, 60
PLANTED = """
from fuzz_target import Target

def check(data):
    if data.startswith(b"bad"):
        raise KeyError("the planted fault")
    return True

TARGET = Target("planted", check, lambda: (b"good",), frozenset({"bad"}), 8)
"""

pytestmark = pytest.mark.skipif(
    not can_fuzz(), reason="the fuzzer (atheris) has no package for this system"
)


@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(LONG, marks=pytest.mark.slow)])
def test_no_input_is_found_that_a_reader_cannot_take(seconds: int) -> None:
    outcomes = list(fuzz(NAMES, seconds))
    assert [outcome.target for outcome in outcomes] == list(NAMES)
    bad = [str(outcome) for outcome in outcomes if outcome.crash is not None]
    assert not bad, "\n\n".join(bad)
    assert all(outcome.executions and outcome.coverage for outcome in outcomes)


def test_a_fault_is_found_and_its_input_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fuzz_planted.py").write_text(PLANTED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (outcome,) = fuzz(["planted"], 30)
    assert outcome.crash is not None
    assert outcome.crash.startswith(b"bad")
    assert "the planted fault" in str(outcome)
    assert base64.b64encode(outcome.crash).decode() in str(outcome)
