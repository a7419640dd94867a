"""Inputs whose values a model rejects: a few alternatives are tried in order, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from aotc.base.errors import AotcError
from aotc.graph.symbols import symbols_of
from aotc.session.capture import value_of
from aotc.sizes.analysis import analyze_job
from aotc.sizes.inputs.fixtures import MAX_ALTERNATIVES, alternatives
from aotc.sizes.inputs.hints import hints_of
from aotc.spec.codec import Json, encode
from aotc.spec.payload import Value
from aotc.spec.precision import ParitySpec
from aotc.spec.profile import ProbeLimits

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'
# How many elements differ shows only when it runs, so that nothing tells what an index may be.
UNTOLD = """
    g (int64[SIZE] x, int64[40] at) => (int64[40] y)
    { one = Constant <value = int64 {0}> ()  zeros = Mul (x, one)
      few, i, j, k = Unique (zeros)  y = Gather (few, at) }"""


def analyzed(text: str, deadly: list[Json] | None = None) -> Json:
    """The analysis of a model, in the current folder."""
    model = parser.parse_model(HEAD + text)
    onnx.save(model, "model.onnx")
    declared = [value_of(info) for info in model.graph.input]
    return analyze_job(
        {
            "model": "model.onnx",
            "weights": ".",
            "symbols": encode(symbols_of([], declared)),
            "outputs": [encode(value_of(info)) for info in model.graph.output],
            "hints": hints_of(model),
            "graph": "model.onnx",
            "graph_weights": ".",
            "control_flow": False,
            **{"pads": {}, "crops": {}, "stated": {}, "given": [], "deadly": deadly or []},
            **{"empties": True, "further": True, "done": [], "spent": 0.0},
            **{"side_by_side": True, "seeded": False, "custom_ops": False},
            "probe": encode(ProbeLimits()),
            "conditions": [],
            "parity": encode(ParitySpec()),
        }
    )


def alternative_findings(result: Json) -> list[str]:
    return [item["what"] for item in result["findings"] if item["code"] == "AOTC-S030"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("size", ["3", "n"])
def test_zeros_are_taken_where_nothing_else_runs(size: str) -> None:
    result = analyzed(UNTOLD.replace("SIZE", size))
    assert alternative_findings(result) == [
        "the first values were rejected; taken instead: x, at: 0"
    ]
    if size == "n":
        assert result["domain"]["dims"]["n"]["max"] > 64


def test_a_reading_that_killed_the_process_is_not_tried_again() -> None:
    """Reading 1 sets all to zero; at these sizes, which are none, it was deadly."""
    result = analyzed(UNTOLD.replace("SIZE", "3"), deadly=[{"": 1}])
    assert alternative_findings(result) == ["the first values were rejected; taken instead: at: 0"]


def test_a_model_that_runs_is_not_asked_again() -> None:
    assert alternative_findings(analyzed("g (float[n] x) => (float[n] y) { y = Relu (x) }")) == []


def test_what_runs_with_no_values_is_refused() -> None:
    with pytest.raises(AotcError) as caught:
        analyzed("""
            g (float[n, 2] x, int64[1] at) => (float[1, 1] y)
            { c = Constant <value = int64[1] {9}> ()  w = Gather <axis = 1> (x, c)
              y = Gather (w, at) }""")
    assert caught.value.code == "AOTC-S001"
    assert "idx=9" in caught.value.found


def test_other_rules_are_asked_before_plain_numbers() -> None:
    values = [
        Value(name="at", dtype="int64", shape=(3,)),
        Value(name="x", shape=("n",), dtype="float32"),
    ]
    hints: dict[str, Any] = {"at": {"kind": "ones", "or": [{"kind": "index", "high": 4}]}}
    tried = list(alternatives(values, hints))
    assert tried[0].hints["at"] == {"kind": "index", "high": 4}
    assert [reading.what for reading in tried] == [
        "at: as index", "at: 0", "at: 1", "at: 2", "x: from 0 to 1", "at: the size of x",
    ]  # fmt: skip


def test_readings_of_many_inputs_are_few() -> None:
    values = [Value(name=f"i{n}", dtype="int64", shape=(3,)) for n in range(100)]
    assert len(list(alternatives(values, {}))) == MAX_ALTERNATIVES
