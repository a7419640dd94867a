"""Every reader of untrusted files under the fuzzer, for a second or two each; slow: for longer."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest
from fuzz_run import can_fuzz, fuzz
from fuzz_target import NAMES

SECONDS, LONG = 8, 60
PLANTED = """
from fuzz_target import Target

def check(data):
    if data.startswith(b"bad"):
        raise KeyError("the planted fault")
    return True

TARGET = Target("planted", check, lambda: (b"good",), frozenset({"bad"}), 8)
"""

STEPS = """
from fuzz_target import Target

from aotc.spec.json import strict_json

def check(data):
    try:
        return bool(strict_json(data))
    except ValueError:
        return False

TARGET = Target("planted", check, lambda: (b"[]",), frozenset({"true", "null"}), 16)
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
    monkeypatch.delitem(sys.modules, "fuzz_planted", raising=False)
    kept = tmp_path / "kept"
    (outcome,) = fuzz(["planted"], 30, keep=kept)
    assert outcome.crash is not None
    assert outcome.crash.startswith(b"bad")
    assert "the planted fault" in str(outcome)
    assert base64.b64encode(outcome.crash).decode() in str(outcome)
    # It is there for the next run, with the seed of this one.
    (crash,) = (kept / "crashes").iterdir()
    name, seed, digest = crash.name.split("-")
    assert (name, digest) == ("planted", hashlib.sha256(outcome.crash).hexdigest()[:16])
    assert int(seed)
    assert crash.read_bytes() == outcome.crash


def test_what_was_found_is_where_the_next_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fuzz_planted.py").write_text(STEPS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "fuzz_planted", raising=False)
    kept = tmp_path / "kept"
    (first,) = fuzz(["planted"], 4, keep=kept)
    assert first.crash is None
    found = {path.name for path in (kept / "corpus" / "planted").iterdir()}
    assert found
    (second,) = fuzz(["planted"], 4, keep=kept)
    assert second.crash is None
    assert found <= {path.name for path in (kept / "corpus" / "planted").iterdir()}
