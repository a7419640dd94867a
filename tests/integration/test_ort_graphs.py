"""The script that looks for models whose CUDA graphs fail, on the CPU, where none is captured."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import onnx
import pytest

from benchmarks.gpu.ort_graphs import (
    CHANGES,
    MODELS,
    SCENARIOS,
    TYPES,
    failed,
    hypotheses,
    main,
    verdicts,
    written,
)

RIGHT = dict.fromkeys(SCENARIOS, "ok")


def case(**fields: Any) -> dict[str, Any]:
    stated = {"model": "expand", "type": "float32", "options": {}, "cpu": True}
    return {**stated, "patience": 600, **fields}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_valid(name: str) -> None:
    for dtype in TYPES:
        onnx.checker.check_model(written(name, dtype), full_check=True)


def test_the_scenarios_pass_where_nothing_is_captured() -> None:
    assert verdicts(case()) == RIGHT


def test_a_crash_is_told_and_the_scenarios_after_it_are_tried() -> None:
    found = verdicts(case(crashes="other"))
    assert found["other"].startswith("exit status -6")
    assert {name: each for name, each in found.items() if name != "other"} == {
        name: "ok" for name in SCENARIOS if name != "other"
    }


def test_what_there_is_no_time_for_is_told_and_is_no_failure() -> None:
    found = verdicts(case(until=0.0, scenarios=["other", "turns"]))
    assert found == {"other": "not tried", "turns": "not tried"}
    assert failed(found) == [] and hypotheses("block", found) == ""


def test_options_are_changed_where_a_model_failed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = {"no memory patterns": CHANGES["no memory patterns"]}
    monkeypatch.setattr("benchmarks.gpu.ort_graphs.CHANGES", change)
    stated = Namespace(
        cpu=True, crash="turns", only=["expand"], types=["float32"], out=None, workers=1,
        seconds=6000.0, patience=600.0,
    )  # fmt: skip
    assert main(stated) == 1
    *_, title, _, line, last = capsys.readouterr().out.splitlines()
    assert title.count("expand, float32, channels") == 2 and title.count(": turns |") == 2
    assert line.startswith("| no memory patterns | exit status -6")
    assert last == "2 kinds of failure in 2 cases"


def test_a_model_that_does_not_begin_is_told_of() -> None:
    found = verdicts(case(model="none of them"))
    assert set(found) == set(SCENARIOS)
    assert all("KeyError" in each for each in found.values())


@pytest.mark.parametrize(
    ("name", "failed", "why"),
    [
        ("block", (), ""),
        ("block", ("other", "back", "turns"), "plan"),
        ("block", ("turns",), "arena"),
        ("block", ("dirty", "turns"), "memset"),
        ("expand", ("turns",), "host"),
        ("block", ("alone", "turns"), "fails without another size"),
    ],
)
def test_what_fails_tells_why(name: str, failed: tuple[str, ...], why: str) -> None:
    found = {**RIGHT, **dict.fromkeys(failed, "CUDA failure 715")}
    assert hypotheses(name, found).startswith(why)
    assert bool(hypotheses(name, found)) == bool(failed)
