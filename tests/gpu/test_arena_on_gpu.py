"""The arena of a session on the GPU: what is observed of it, its limit, and what it gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from on_gpu import built, note
from onnx import TensorProto, helper

import aotc
from aotc.base.errors import AotcError
from aotc.host.nvidia import free_memory
from aotc.spec.codec import encode

pytestmark = pytest.mark.gpu

COLUMNS = 1024
SMALL, LARGE = 16, 1 << 16


def turning(folder: Path) -> Path:
    """The sums of the rows of x, transposed twice: two values of its size are alive at once."""
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["a"], name="there"),
            helper.make_node("Transpose", ["a"], ["b"], name="back"),
            helper.make_node("ReduceSum", ["b"], ["y"], name="sum", keepdims=1),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def artifact(folder: Path, **memory: Any) -> Path:
    return built(
        turning(folder),
        folder,
        {"rows": f"{SMALL}..{LARGE}"},
        capture="none",
        cuda={"fusion": "none", "memory": memory},
    ).path


def rows(count: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.ones((count, COLUMNS), np.float32)}


def test_the_arena_of_the_gpu_is_observed(tmp_path: Path) -> None:
    report = built(turning(tmp_path), tmp_path, {"rows": SMALL}, capture="none").report
    memory = report.variants[0].memory
    assert memory is not None
    assert memory.why_not == ""
    (at,) = memory.at
    note(
        "arena of the GPU", {"device": encode(at.device), "activations": at.device_activation_bytes}
    )
    assert at.device is not None and at.device_activation_bytes is not None
    # The input is copied there, and both values are.
    assert at.device_activation_bytes >= 2 * SMALL * COLUMNS * 4


def test_a_limit_refuses_what_it_has_no_room_for(tmp_path: Path) -> None:
    limit = LARGE * COLUMNS * 4
    with aotc.load(artifact(tmp_path, limit_bytes=limit)) as model:
        model.run(rows(SMALL))
        with pytest.raises(AotcError) as caught:
            model.run(rows(LARGE))
        note("limit of the arena", caught.value.line())
        assert caught.value.code == "AOTC-R058"
        assert model.telemetry.snapshot().memory_failures == {"AOTC-R058": 1}
        model.run(rows(SMALL))


@pytest.mark.alone
@pytest.mark.parametrize("shrink", [False, True])
def test_a_session_that_shrinks_gives_memory_back(tmp_path: Path, *, shrink: bool) -> None:
    value = LARGE * COLUMNS * 4
    with aotc.load(artifact(tmp_path, shrink=shrink)) as model:
        model.run(rows(SMALL))
        before = free_memory()
        model.run(rows(LARGE))
        after = free_memory()
        assert before is not None and after is not None
        note(f"shrink {shrink}", {"taken": before - after, "value": value})
        assert (before - after < value) is shrink
        moved = next(iter(model.telemetry.snapshot().variants.values())).transfers
        assert moved.to_device_bytes == (SMALL + LARGE) * COLUMNS * 4
