"""Calls that ask for more memory than there is, and sessions that give back what they took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.providers.ort import OUT_OF_MEMORY
from aotc.runtime.runners import PlainRunner
from aotc.session.device.cuda_place import CudaPlace
from aotc.session.device.device import HostDevice
from aotc.session.observed_memory import resident_memory
from aotc.session.sessions import create_session
from aotc.spec.variant import SessionSpec

CPU = "CPUExecutionProvider"


def runner() -> PlainRunner:
    """y has as many elements as n says."""
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "n"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["size"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = create_session(
        model.SerializeToString(), SessionSpec(optimization="all"), providers=[CPU]
    )
    variant: Any = SimpleNamespace(
        providers=(CPU,), cuda_graphs=None, session=SessionSpec(optimization="all")
    )
    return PlainRunner(session, variant, cast("CudaPlace", None))


def turning(*, shrinks: bool) -> PlainRunner:
    """The sum of x, transposed twice: two values are in the arena."""
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["a"]),
            helper.make_node("Transpose", ["a"], ["b"]),
            helper.make_node("ReduceSum", ["b"], ["y"], keepdims=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    spec = SessionSpec(optimization="disable", threads=1, shrinks=shrinks)
    session = create_session(model.SerializeToString(), spec, providers=[CPU])
    variant: Any = SimpleNamespace(providers=(CPU,), cuda_graphs=None, session=spec)
    return PlainRunner(session, variant, CudaPlace())


@pytest.mark.parametrize("shrinks", [False, True])
def test_a_session_that_shrinks_gives_back_what_a_call_took(*, shrinks: bool) -> None:
    plain = turning(shrinks=shrinks)
    rows = 1 << 16
    large = np.ones((rows, 256), np.float32)
    # The first region of an arena that doubles is kept.
    assert plain.run({"x": large[:1]}, None, {})[0] == 256
    before = resident_memory()
    assert plain.run({"x": large}, None, {})[0] == rows * 256
    after = resident_memory()
    assert before is not None and after is not None
    assert (after.private - before.private < large.nbytes) is shrinks


def call(size: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.ones(1, np.float32), "n": np.array([size], np.int64)}


def test_a_call_that_the_host_has_no_memory_for() -> None:
    plain = runner()
    with pytest.raises(AotcError) as caught:
        # 128 TiB: more than a process can address.
        plain.run(call(1 << 45), None, {})
    assert caught.value.code == "AOTC-R057"
    assert "Failed to allocate memory for requested buffer" in caught.value.found
    assert caught.value.code in OUT_OF_MEMORY
    (answer,) = plain.run(call(3), None, {})
    assert np.asarray(answer).tolist() == [1, 1, 1]


def test_another_failure_is_none_of_memory() -> None:
    with pytest.raises(AotcError) as caught:
        runner().run(call(-2), None, {})
    assert caught.value.code == "AOTC-R005"


def test_the_limit_of_an_arena_is_not_the_devices() -> None:
    text = "Available memory of 1024 is smaller than requested bytes of 4096"
    found = HostDevice().failure(RuntimeError(text))
    assert found.code == "AOTC-R058"
    assert text in found.found
    assert HostDevice().failure(RuntimeError("out of memory")).code == "AOTC-M004"
