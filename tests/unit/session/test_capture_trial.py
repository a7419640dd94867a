"""A trial of a capture, with the host's memory as the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.session.device import cuda_place
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.cuda_place import CudaPlace, Settings, why_not_captured
from aotc.session.device.device import HostDevice
from aotc.spec.variant import GraphCapture


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[CapturingRunner]:
    """The runners of trials, which open on the host, when they were closed."""
    found: list[CapturingRunner] = []

    class Noted(CapturingRunner):
        def close(self) -> None:
            found.append(self)
            super().close()

    def on_host(
        graphs: GraphCapture, placed: CudaPlace, opener: Callable[[Settings], Any], where: str
    ) -> CapturingRunner:
        return Noted(opener({}), HostDevice(), graphs, where)

    monkeypatch.setattr(cuda_place, "open_capturing", on_host)
    return found


def session(kind: int) -> Callable[[Settings], ort.InferenceSession]:
    node = helper.make_node("Identity", ["x"], ["y"])
    value = [helper.make_tensor_value_info(name, kind, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return lambda settings: ort.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def test_a_graph_that_replays_rightly_is_captured(closed: list[CapturingRunner]) -> None:
    given = {"x": np.arange(5, dtype=np.float32)}
    assert why_not_captured(session(TensorProto.FLOAT), given, "v") == ""
    assert len(closed) == 1


def test_the_reason_is_told(closed: list[CapturingRunner]) -> None:
    given = {"x": np.array(["a"], object)}
    assert "tensor(string)" in why_not_captured(session(TensorProto.STRING), given, "v")


def test_other_errors_are_raised(closed: list[CapturingRunner]) -> None:
    def failing(settings: Settings) -> Any:
        raise AotcError("AOTC-R025", "there is no device")

    with pytest.raises(AotcError) as caught:
        why_not_captured(failing, {}, "v")
    assert caught.value.code == "AOTC-R025"
