"""Memory as it is observed: arenas at known sizes, mixed calls, and where nothing is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.session import counted_session
from aotc.session.observed_memory import SizedCall, observe_memory
from aotc.spec.evidence import MixedCalls, ObservedMemory
from aotc.spec.variant import SessionSpec

PLAIN = SessionSpec(optimization="disable", threads=1)
COLUMNS = 256
ROW = COLUMNS * 4
WEIGHTS = COLUMNS * COLUMNS * 4


def turned() -> bytes:
    """y = transpose(transpose(x)): nothing is computed in place, so both are alive at the peak."""
    graph = helper.make_graph(
        [
            helper.make_node("Transpose", ["x"], ["a"], name="there"),
            helper.make_node("Transpose", ["a"], ["y"], name="back"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", COLUMNS])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return made.SerializeToString()


def product(folder: Path) -> Path:
    """y = x w: the kernel packs w into the session's memory, beside the arena."""
    weights = numpy_helper.from_array(np.ones((COLUMNS, COLUMNS), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [COLUMNS, COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [COLUMNS, COLUMNS])],
        [weights],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.save(made, folder / "m.onnx")
    return folder / "m.onnx"


def call(rows: int) -> SizedCall:
    return SizedCall(f"rows{rows}", {"rows": rows}, {"x": np.ones((rows, COLUMNS), np.float32)})


def observed(*rows: int, mixed: int = 0) -> ObservedMemory:
    return observe_memory(
        turned(),
        PLAIN,
        [call(each) for each in rows],
        ["y"],
        providers=["CPUExecutionProvider"],
        mixed_calls=mixed,
    )


def test_the_peak_of_activations_is_that_of_the_graph() -> None:
    found = observed(1024, 4096)
    assert found.why_not == ""
    assert [each.sizes for each in found.at] == [{"rows": 1024}, {"rows": 4096}]
    for each in found.at:
        value = each.sizes["rows"] * ROW
        # The first call asks for each value; later ones for one block, by their memory pattern.
        assert each.first_bytes == 2 * value
        assert each.activation_bytes >= 2 * value
        assert each.output_bytes == value
        assert each.loaded.in_use == each.arena.in_use == 0
        assert each.arena.allocated >= each.activation_bytes
        assert 0 <= each.unused_share < 1


def test_packed_weights_are_told_apart(tmp_path: Path) -> None:
    inputs = {"x": np.ones((COLUMNS, COLUMNS), np.float32)}
    found = observe_memory(
        product(tmp_path),
        PLAIN,
        [SizedCall("only", {}, inputs)],
        ["y"],
        providers=["CPUExecutionProvider"],
    )
    (each,) = found.at
    assert each.loaded.in_use >= WEIGHTS
    assert each.loaded.reserves == 1
    assert each.activation_bytes == each.output_bytes == WEIGHTS


def test_what_the_process_takes_is_known() -> None:
    found = observed(65536)
    assert found.before is not None
    assert found.after_largest is not None
    assert found.peak_resident is not None
    taken = found.after_largest.private - found.before.private
    # Both values were written, and stay in the arena.
    assert taken >= 2 * 65536 * ROW
    assert found.peak_resident >= found.after_largest.resident - found.after_largest.shared
    assert found.after_largest.file_backed > 0


def test_mixed_calls_count_what_arenas_take() -> None:
    mixed = observed(64, 256, 1024, mixed=40).mixed
    assert mixed is not None
    assert (mixed.calls, mixed.planned_calls, mixed.sizes) == (40, 40, 3)
    assert mixed.first_allocated >= 2 * 1024 * ROW
    assert mixed.last_in_use == mixed.first_in_use == 0
    assert mixed.grown_arena == mixed.last_allocated - mixed.first_allocated


def test_calls_of_the_largest_size_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the time: mixed calls go on in the session that was called with it."""
    made: list[int] = []
    kept = counted_session.CountedSession.kept

    def counting(session: Any, inputs: Any, outputs: Any) -> Any:
        made.append(len(inputs["x"]))
        return kept(session, inputs, outputs)

    monkeypatch.setattr(counted_session.CountedSession, "kept", counting)
    found = observed(64, 1024, 256, mixed=6)
    # Two of each size: mixed calls begin with those that were made.
    assert made[:2] == [1024, 1024]
    assert 1024 not in made[2:]
    assert found.mixed is not None
    assert [each.sizes["rows"] for each in found.at] == [64, 1024, 256]


def test_mixed_calls_end_when_their_time_is_over() -> None:
    def mixed(*rows: int) -> MixedCalls | None:
        return observe_memory(
            turned(),
            PLAIN,
            [call(each) for each in rows],
            ["y"],
            providers=["CPUExecutionProvider"],
            mixed_calls=10**6,
            seconds=0.0,
        ).mixed

    found = mixed(4, 8, 64)
    assert found is not None
    # A round of two calls of each size but the largest, and one of each.
    assert (found.calls, found.sizes) == (6, 2)
    assert mixed(8) is None


def test_the_first_call_of_a_size_is_profiled(tmp_path: Path) -> None:
    calls = [call(rows) for rows in (16, 32)]
    profiles = {f"rows{rows}": tmp_path / f"{rows}.json" for rows in (16, 32)}
    provider = "CPUExecutionProvider"
    observe_memory(turned(), PLAIN, calls, ["y"], providers=[provider], profiles=profiles)
    for rows in (16, 32):
        events = json.loads((tmp_path / f"{rows}.json").read_text())
        shapes = [
            event["args"]["input_type_shape"]
            for event in events
            if event.get("args", {}).get("op_name") and event["name"].endswith("_kernel_time")
        ]
        assert shapes == [[{"float": [rows, COLUMNS]}], [{"float": [COLUMNS, rows]}]]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("STRING", np.array("1", dtype=object)),
        ("INT64", np.int64(1)),
        ("BOOL", np.bool_(True)),
        ("FLOAT16", np.float16(1)),
        ("BFLOAT16", ml_dtypes.bfloat16(1)),
        ("INT4", ml_dtypes.int4(1)),
    ],
)
def test_inputs_of_any_type(dtype: str, value: Any) -> None:
    """y is x in float32."""
    code = TensorProto.DataType.Value(dtype)
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], name="cast", to=TensorProto.FLOAT)],
        "g",
        [helper.make_tensor_value_info("x", code, [3, COLUMNS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, COLUMNS])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inputs = {"x": np.full((3, COLUMNS), value, np.asarray(value).dtype)}
    found = observe_memory(
        made.SerializeToString(),
        PLAIN,
        [SizedCall("only", {}, inputs)],
        ["y"],
        providers=["CPUExecutionProvider"],
    )
    assert found.why_not == ""
    assert found.at[0].output_bytes == 3 * ROW


def test_inputs_that_are_no_tensors_are_not_counted() -> None:
    found = observe_memory(
        turned(),
        PLAIN,
        [SizedCall("only", {}, {"x": [np.ones(3, np.float32)]})],
        ["y"],
        providers=["CPUExecutionProvider"],
    )
    assert found.why_not == "input 'x' is no tensor"
    assert found.at == ()


def test_memory_of_another_provider_is_its_own() -> None:
    found = observe_memory(
        turned(), PLAIN, [call(4)], ["y"], providers=["NimbusExecutionProvider", "CPU"]
    )
    assert found.elsewhere
    assert found.why_not.startswith("NimbusExecutionProvider has memory of its own")


def test_a_wheel_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(counted_session._Api, "_loaded", None)
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(counted_session, "find_spec", lambda _: _Spec(tmp_path / "__init__.py"))
    found = observed(4)
    assert found.why_not == "this build of ONNX Runtime has no library beside its Python module"


class _Spec:
    def __init__(self, origin: Path) -> None:
        self.origin = str(origin)


def test_a_version_that_has_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted_session._Api, "_loaded", None)
    monkeypatch.setattr(counted_session, "_TABLE", 1000)
    found = observed(4)
    assert found.why_not.startswith("ONNX Runtime 1.")
    assert found.why_not.endswith("has no API of version 1000")


def test_a_model_that_is_refused_says_why() -> None:
    found = observe_memory(
        b"no model",
        PLAIN,
        [call(4)],
        ["y"],
        providers=["CPUExecutionProvider"],
    )
    assert "protobuf" in found.why_not
