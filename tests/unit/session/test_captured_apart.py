"""A session for each captured size, with the host's memory as the device."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.session.device.capturing_runner import CapturingRunner
from aotc.session.device.device import HostDevice
from aotc.spec.variant import GraphCapture

SIZES = ({"n": 2}, {"n": 4})


def session() -> ort.InferenceSession:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    node = helper.make_node("Add", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


class Opened:
    """Sessions that were opened, as long as somebody has them."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []

    def __call__(self) -> ort.InferenceSession:
        made = session()
        self.sessions.append(weakref.ref(made))
        return made

    @property
    def alive(self) -> int:
        gc.collect()
        return sum(each() is not None for each in self.sessions)


def runner(opened: Opened, device: HostDevice | None = None, **fields: Any) -> CapturingRunner:
    graphs = GraphCapture(sizes=SIZES, **{"sessions": "each", **fields})
    return CapturingRunner(session(), device or HostDevice(), graphs, "variant v", opened)


def given(n: int) -> dict[str, Any]:
    return {"x": np.full(n, n, np.float32)}


def test_each_captured_size_has_one_and_other_calls_the_first() -> None:
    opened = Opened()
    made = runner(opened)
    for sizes in SIZES:
        made.capture(given(sizes["n"]), sizes)
    for n in (2, 4, 3, 2, 3, 4):
        (y,) = made.run(given(n), None, {"n": n})
        assert (y == 2 * n).all() and y.shape == (n,)
    assert (len(opened.sessions), opened.alive) == (2, 2)
    assert made.session_of({"n": 2}) is opened.sessions[0]()
    made.close()
    assert opened.alive == 0


def test_a_run_without_a_graph_is_in_the_session_of_its_size() -> None:
    opened = Opened()
    made = runner(opened)
    ran = []
    once = made._run_once

    def noted(inputs: Any, names: Any, own: ort.InferenceSession | None) -> Any:
        ran.append(own)
        return once(inputs, names, own)

    made._run_once = noted  # type: ignore[method-assign]
    for sizes in ({"n": 2}, {"n": 3}, None):
        (y,) = made.run_without_graph(given(3), sizes)
        assert (y == 6).all()
    assert len(opened.sessions) == 1
    assert ran == [opened.sessions[0](), None, None]
    ran.clear()
    made.close()


def test_one_session_is_opened_once() -> None:
    opened = Opened()
    made = runner(opened, sessions="one")
    for sizes in SIZES:
        made.capture(given(sizes["n"]), sizes)
    assert made.session_of({"n": 9}) is made.session
    assert not opened.sessions
    made.close()


def test_a_dropped_size_gives_its_session_back_unless_a_bound_call_has_it() -> None:
    opened = Opened()
    made = runner(opened, on_call=True, max_count=2)
    for n in (2, 4, 6):
        made.run(given(n), None, {"n": n})
    assert (len(opened.sessions), opened.alive) == (3, 2)
    made.session_of({"n": 4})
    made.run(given(8), None, {"n": 8})
    assert [size["n"] for size in made.captured] == [6, 8]
    assert opened.alive == 3
    made.close()


class Full(HostDevice):
    """Memory that ends when a tensor of four elements is made."""

    def empty(self, shape: Sequence[int], dtype: str) -> ort.OrtValue:
        if self.full and tuple(shape) == (4,):
            raise AotcError("AOTC-M004", "there is too little memory")
        return super().empty(shape, dtype)

    full = True


@pytest.mark.parametrize("sessions", ["one", "each"])
def test_a_call_runs_without_a_graph_where_memory_ends_during_its_capture(sessions: str) -> None:
    class FullOnce(Full):
        def settle(self) -> None:
            super().settle()
            # What was tried is given back before the call runs without it.
            self.full = False

    opened = Opened()
    made = runner(opened, FullOnce(), on_call=True, sessions=sessions)
    (y,) = made.run(given(4), None, {"n": 4})
    assert (y == 8).all()
    assert made.captured == () and opened.alive == 0
    assert [finding.code for finding in made.findings] == ["AOTC-R024"]
    assert "n=4 runs without a graph: too little memory" in made.findings[0].what
    # It is not tried at every call.
    assert not made.may_capture({"n": 4})
    (y,) = made.run(given(2), None, {"n": 2})
    assert (y == 4).all() and made.captured == ({"n": 2},)
    made.close()


def test_a_load_is_refused_where_memory_ends_during_a_capture_that_is_promised() -> None:
    made = runner(Opened(), Full())
    assert made.capture(given(2), {"n": 2})
    with pytest.raises(AotcError) as caught:
        made.capture(given(4), {"n": 4})
    assert caught.value.code == "AOTC-M004"
    (y,) = made.run(given(2), None, {"n": 2})
    assert (y == 4).all()
    made.close()
