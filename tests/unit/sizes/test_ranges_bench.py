"""Calls of owners as the bench of ranges draws them, its table and its limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from made_models import model_of
from onnx import TensorProto, helper
from repository import ROOT

from benchmarks import ranges
from benchmarks.ranges import CALLS, Calls, Found

EXPORTS = [
    path
    for path in sorted((ROOT / "tests" / "data" / "exports").glob("*.onnx"))
    if (CALLS / f"{path.stem}.json").exists()
]
DIM = {"min": 1, "max": 8, "opt": 2, "stopped_by": "bytes"}
FOUND = Found(
    model="one",
    side="now",
    ranges=[{"batch": DIM}, {"batch": {**DIM, "max": 64, "multiple_of": 2, "stopped_by": ""}}],
    relations=["total = past + sequence"],
    codes=["N055", "S008"],
    seconds=[30.0, 2.0, 3.0],
    analyze=[25.0],
    run=2.5,
    calls=[[True, True, True], [True, True, False], [False, False, False]],
)


@pytest.mark.parametrize("model", EXPORTS, ids=[path.stem for path in EXPORTS])
def test_calls_of_exports_are_answered(model: Path) -> None:
    calls = Calls.of(model)
    assert calls is not None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for inputs in calls.drawn():
        assert session.run(None, inputs)


def test_exports_have_calls() -> None:
    assert len(EXPORTS) >= 13


def _read(tmp_path: Path, **document: Any) -> list[dict[str, Any]]:
    """The calls of a model of int64 `ids` [batch, n] and float16 `past_1` [batch, 4, past]."""
    values = (("ids", TensorProto.INT64, ["batch", "n"]), ("past_1", 10, ["batch", 4, "past"]))
    inputs = [helper.make_tensor_value_info(*value) for value in values]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, ["batch", "n"])]
    nodes = [helper.make_node("Identity", ["ids"], ["y"], name="copy")]
    onnx.save(model_of(nodes, inputs=inputs, outputs=outputs), tmp_path / "m.onnx")
    (tmp_path / "m.json").write_text(json.dumps(document))
    calls = Calls.of(tmp_path / "m.onnx")
    assert calls is not None
    return list(calls.drawn())


def test_shapes_are_sizes_sums_and_what_the_model_states(tmp_path: Path) -> None:
    inputs = {
        "ids": {"shape": ["batch", "past + new"], "values": {"from": "past"}},
        "past_*": {"shape": ["batch", None, "past"]},
    }
    calls = [{"batch": 2, "past": 3, "new": 2}, {"batch": 1, "past": 0, "new": 4, "ids": [7, 9]}]
    first, second = _read(tmp_path, inputs=inputs, calls=calls)
    assert first["ids"].dtype == np.int64
    assert first["ids"].tolist() == [[3, 4, 5, 6, 7]] * 2
    assert (first["past_1"].shape, first["past_1"].dtype) == ((2, 4, 3), np.float16)
    assert second["ids"].tolist() == [[7, 9, 7, 9]]
    assert second["past_1"].shape == (1, 4, 0)


def test_values_are_below_a_number_or_between_two(tmp_path: Path) -> None:
    inputs = {
        "ids": {"shape": [50, 4], "values": {"below": 3}},
        "past_1": {"shape": [50, 4, 2], "values": {"uniform": [5, 6]}},
    }
    (call,) = _read(tmp_path, inputs=inputs, calls=[{}])
    assert {*np.unique(call["ids"])} == {0, 1, 2}
    assert 5 <= call["past_1"].min() < call["past_1"].max() <= 6


def test_an_input_that_is_not_described_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="says nothing of the input past_1"):
        _read(tmp_path, inputs={"ids": {"shape": [1, 1], "values": 0}}, calls=[{}])


def test_the_table_has_further_ranges_and_counts() -> None:
    failed = Found(model="two", side="now", status=1, codes=["S001"], seconds=[1.0])
    _, _, row, other = ranges.table([FOUND, failed]).splitlines()
    assert row == (
        "| one | now | batch 1..8 (2, bytes); also batch 1..64:2 (2) | total = past + sequence "
        "| N055 S008 | 25.0 | 2.500 | 10.0 | 3.0 | 2 of 3 | 2 | 1 |"
    )
    assert other == "| two | now | exit status 1 |  | S001 |  |  |  | 1.0 |  |  |  |"


def test_an_analysis_may_take_twenty_seconds_or_twelve_runs() -> None:
    assert ranges.missed([FOUND]) == []
    short = replace(FOUND, run=0.1)
    assert ranges.missed([short]) == ["one: analysis 25.0 s, limit 20.0 s"]
    before = replace(short, side="before", seconds=[1.5])
    assert ranges.missed([before, FOUND]) == []
    assert ranges.missed([before, FOUND], 1.9) == ["one: 2.00 times the processor time of before"]


def test_the_page_tells_what_is_over_a_limit() -> None:
    page = ranges.page([replace(FOUND, run=0.1)], "abc1234")
    assert "- before: revision abc1234\n" in page
    assert "Over a limit:\n\n- one: analysis 25.0 s, limit 20.0 s\n\n| Model |" in page
