"""The table of the bench that measures the judge, and which variants count as honest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_models import linear, save

from benchmarks.judge import table
from benchmarks.judge.judging import Case, judged
from benchmarks.judge.shipped import Shipped, scores_error
from benchmarks.judge.trials import Outcome

OUTCOMES = (
    Outcome(
        network="one",
        arithmetic="float16",
        faults=10,
        missed=1,
        honest=4,
        kinds={"zeroed": [6, 1], "moved": [4, 0]},
        slices=200,
        drowned=10,
        noise=20,
    ),
    Outcome(
        network="one", arithmetic="int8", faults=5, honest=2, refused=1, poor=2, poor_refused=1
    ),
    Outcome(
        network="two", arithmetic="int8", faults=5, missed=5, honest=2, kinds={"moved": [5, 5]}
    ),
)


def test_rows_are_by_network_and_arithmetic_then_totals() -> None:
    found = table.rows(OUTCOMES)
    assert [row[:2] for row in found] == [
        ("one", "float16"),
        ("one", "int8"),
        ("two", "int8"),
        ("all", "float16"),
        ("all", "int8"),
        ("all", "all but int4"),
    ]
    assert found[0][2:] == ("10", "1 (10.0%)", "4", "0", "0 (0)", "200", "5.0%", "10.0%")
    assert found[4][2:7] == ("10", "5 (50.0%)", "4", "1 (25.0%)", "2 (1)")
    assert found[5][2:7] == ("20", "6 (30.0%)", "8", "1 (12.5%)", "2 (1)")
    assert table.kinds(OUTCOMES) == [("zeroed", "6", "1 (16.7%)"), ("moved", "9", "5 (55.6%)")]


def test_the_page_has_both_judges_and_each_network() -> None:
    now = {**table.totals(OUTCOMES), "seeds": [100, 109]}
    before = {**now, "missed": 20}
    text = table.page(OUTCOMES, now, before)
    assert "| before | 100 to 109 | 20 | 20 (100.0%) | 8 | 1 (12.5%) |" in text
    assert "| now | 100 to 109 | 20 | 6 (30.0%) | 8 | 1 (12.5%) |" in text
    assert "| two | int8 | 5 | 5 (100.0%) | 2 | 0 | 0 (0) | 0 | 0.0% | 0.0% |" in text
    builds = [Shipped(form="flat", precision="auto", found="refused: exit 1", held=True)]
    assert "| flat | auto | refused: exit 1 |" in table.page(OUTCOMES, now, before, builds)
    assert "before" not in table.page(OUTCOMES, now, {}).split("Judge |")[1]


def test_the_judge_passes_equal_answers_and_says_why_it_refuses_others(tmp_path: Path) -> None:
    case = Case(model=save(linear(), tmp_path / "linear.onnx"), arithmetic="float32")
    value = np.linspace(1, 2, 64, dtype=np.float32).reshape(4, 16)
    assert judged(case, [({"y": value}, {"y": value.copy()})] * 3) == ""
    wrong = value + np.float32(1)
    why = judged(case, [({"y": value}, {"y": value}), ({"y": value}, {"y": wrong})])
    assert "y" in why


def test_scores_are_judged_without_the_boxes() -> None:
    wanted = np.ones((2, 84, 576), np.float32)
    wanted[:, :4] = 640
    found = wanted.copy()
    found[:, :4] = 0
    assert scores_error("joined", wanted, found) == 0
    found[:, 4:] = 0
    assert scores_error("joined", wanted, found) == pytest.approx(1, abs=0.01)
    rows = wanted.transpose(0, 2, 1)
    assert scores_error("transposed", rows, found.transpose(0, 2, 1)) == pytest.approx(1, abs=0.01)
    assert scores_error("flat", wanted.reshape(2, -1), found.reshape(2, -1)) == pytest.approx(
        1, abs=0.01
    )
