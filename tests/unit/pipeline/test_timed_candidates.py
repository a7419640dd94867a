"""Timing candidates: one whose graph is refused ends nothing, and equal ones are timed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.graph import values
from aotc.pipeline import tune as candidate_trials
from aotc.pipeline.timing import measure_job
from aotc.pipeline.tune import choose, measure
from aotc.pipeline.types import LoweredModel
from aotc.spec.codec import encode
from aotc.spec.evidence import TuningCandidate
from aotc.spec.variant import SessionSpec

CPU = "CPUExecutionProvider"
SESSION = SessionSpec(optimization="basic")


def relu(path: Path) -> Path:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 17)]
    path.parent.mkdir(exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), path)
    return path


def times(folder: Path, *candidates: Mapping[str, Any]) -> Any:
    """What the worker measures of candidates, each with other fields."""
    given = values.save(np.ones(2, np.float32), folder / "x.npy")
    model = relu(folder / "relu" / "model.onnx")
    common = {
        "model": str(model),
        "contexts": False,
        "weights": str(model.parent),
        "libraries": {},
        "twin": None,
        "session": encode(SESSION),
        "providers": [CPU],
        "captures": False,
        "free": False,
        "on_refusal": "fail",
    }
    # As a worker does: the job tells its steps in a file there.
    with chdir(folder):
        return measure_job(
            {
                "rounds": (1, 1),
                "one_thread": False,
                "most_seconds": None,
                "inputs": {"x": str(given)},
                "candidates": [{**common, **fields} for fields in candidates],
            }
        )["seconds"]


def test_a_refused_graph_is_one_candidates_failure(tmp_path: Path) -> None:
    """No graph is captured on the CPU."""
    plain, refused, without = times(
        tmp_path, {}, {"captures": True}, {"captures": True, "on_refusal": "run"}
    )
    assert refused["code"] in ("AOTC-I019", "AOTC-R024", "AOTC-R025")
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in (plain, without))


def test_other_errors_end_the_timing(tmp_path: Path) -> None:
    with pytest.raises(AotcError, match="AOTC-P004"):
        times(tmp_path, {"providers": ["NoExecutionProvider"]})


def lowered(folder: Path, **fields: Any) -> LoweredModel:
    stated = {
        "partitioned": None,
        "model": relu(folder / "model.onnx"),
        "weights": folder,
        "files": (),
        "session": SESSION,
        "memory": None,
        "providers": (CPU,),
    }
    return LoweredModel(**{**stated, **fields})


def measured(
    monkeypatch: pytest.MonkeyPatch, found: Sequence[Any], **variants: LoweredModel
) -> tuple[tuple[TuningCandidate, ...], int]:
    """The rows of candidates with these layouts, and how many were timed."""
    counts: list[int] = []

    def timed(items: Sequence[LoweredModel], *_: Any, **__: Any) -> Sequence[Any]:
        counts.append(len(items))
        return found[: len(items)], True

    monkeypatch.setattr(candidate_trials, "time_alternately", timed)
    proven: dict[TuningCandidate, Any] = {
        TuningCandidate(variant="v", providers=("cuda",), layout=layout): SimpleNamespace(
            lowered=item, parity=SimpleNamespace(status="passed")
        )
        for layout, item in variants.items()  # type: ignore[misc]
    }
    reference: Any = SimpleNamespace(sizes={"n": 2})
    tune = SimpleNamespace(tune=SimpleNamespace(rounds=3))
    asked: Any = SimpleNamespace(profile=tune)
    state: Any = SimpleNamespace(context=asked, work=Path())
    return measure(proven, reference, state), counts[0]


def test_equal_candidates_are_timed_once_and_the_first_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SessionSpec(optimization="all")
    rows, count = measured(
        monkeypatch,
        [(2.0, 1.0), (3.0, 2.0)],
        auto=lowered(tmp_path / "a"),
        nchw=lowered(tmp_path / "b"),
        nhwc=lowered(tmp_path / "c", session=other),
    )
    assert count == 2
    assert [row.median_seconds for row in rows] == [2.0, 2.0, 3.0]
    assert [row.layout for row in choose(rows) if row.chosen] == ["auto"]


def test_other_weights_make_another_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {}
    for layout, data in (("auto", b"1"), ("nchw", b"2")):
        made[layout] = lowered(tmp_path / layout, files=("w.bin",))
        (tmp_path / layout / "w.bin").write_bytes(data)
    _, count = measured(monkeypatch, [(2.0, 1.0)] * 2, **made)
    assert count == 2


def test_a_refused_candidate_did_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    why = AotcError("AOTC-R024", "a CUDA graph cannot be captured", found="because")
    rows, _ = measured(
        monkeypatch,
        [why, (2.0, 1.0)],
        auto=lowered(tmp_path / "a"),
        nhwc=lowered(tmp_path / "b", session=SessionSpec(optimization="all")),
    )
    refused, passed = rows
    assert not refused.passed and "AOTC-R024" in refused.reason
    assert passed.passed and not passed.reason
