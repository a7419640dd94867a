"""The script that looks for models whose CUDA graphs fail, on the CPU, where none is captured."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from benchmarks.gpu.ort_graphs import MODELS, SCENARIOS, TYPES, hypotheses, verdicts, written

RIGHT = dict.fromkeys(SCENARIOS, "ok")


def case(**fields: Any) -> dict[str, Any]:
    return {"model": "expand", "type": "float32", "options": {}, "cpu": True, **fields}


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
