"""Captured sizes while they are measured, with the host's memory as the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.cuda_place import CudaPlace, Settings
from aotc.session.device.device import HostDevice
from aotc.spec.variant import GraphCapture
from aotc.tools import learn_costs
from aotc.tools.learn_costs import CapturedRuns


class Counting(CapturingRunner):
    """Counts what it is asked to capture; keeps nothing if it shall not."""

    asked: int = 0
    keeps: bool = True

    def capture(self, inputs: Any, sizes: Any) -> bool:
        self.asked += 1
        return super().capture(inputs, sizes) if self.keeps else False


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[GraphCapture, Counting]]:
    """The runners that were opened, on the host, with what they were to capture."""
    found: list[tuple[GraphCapture, Counting]] = []

    def on_host(
        graphs: GraphCapture, placed: CudaPlace, opener: Callable[[Settings], Any], where: str
    ) -> Counting:
        found.append((graphs, Counting(opener({}), HostDevice(), graphs, where)))
        return found[-1][1]

    monkeypatch.setattr(learn_costs, "open_capturing", on_host)
    return found


def session(settings: Settings) -> ort.InferenceSession:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", *map(list, zip(values))
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def rows(count: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.ones((count, 2), np.float32)}


def test_a_size_is_captured_once(opened: list[tuple[GraphCapture, Counting]]) -> None:
    runs = CapturedRuns(session, ("n",))
    ((graphs, runner),) = opened
    assert graphs.max_bytes == 2**53 - 1
    for count in (1, 2, 1, 2, 1):
        runs.at({"n": count}, rows(count))()
    assert runner.asked == 2
    assert {size["n"] for size in runner.captured} == {1, 2}
    runner.close()


def test_a_size_that_is_not_kept_is_not_measured(
    opened: list[tuple[GraphCapture, Counting]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "keeps", False)
    runs = CapturedRuns(session, ("n",))
    with pytest.raises(AotcError, match="AOTC-S005") as caught:
        runs.at({"n": 3}, rows(3))
    assert caught.value.where == "n=3"
    opened[0][1].close()


def test_a_run_without_a_graph_captures_nothing(
    opened: list[tuple[GraphCapture, Counting]],
) -> None:
    runs = CapturedRuns(session, ("n",))
    ((_, runner),) = opened
    runs.without_graph(rows(4))
    assert runner.asked == 0 and runner.captured == ()
    (found,) = runner.run_without_graph({"x": -rows(4)["x"]})
    assert np.array_equal(found, np.zeros((4, 2), np.float32))
    with pytest.raises(AotcError, match="AOTC-S005"):
        runs.without_graph({"x": np.ones((4, 3), np.float32)})
    runner.close()
