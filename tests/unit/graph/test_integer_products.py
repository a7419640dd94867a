"""Integer products: which saturate on CPUs without VNNI, and the exact rewrite."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from product_models import CASES, ROWS, answer, model_of, product
from repository import SUPPORT

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.same_sign_weights import (
    PRODUCTS,
    SameSignWeights,
    exact_feature,
    saturating_operands,
)
from aotc.host.probe import probe

PLAIN_CPU = "EPYC-Milan"
needs_emulator = pytest.mark.skipif(
    shutil.which("qemu-x86_64") is None,
    reason="needs qemu-x86_64 (qemu-user) to run as a CPU without VNNI",
)
needs_exact_cpu = pytest.mark.skipif(
    not exact_feature(probe(gpus=False).isa), reason="this CPU has no VNNI"
)
OPPOSITE = [case for case in CASES if case.saturates]


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    run_passes(result, (SameSignWeights(),))
    return result


def test_every_operator_of_the_table_is_tried() -> None:
    assert {(case.domain, case.op) for case in CASES} == set(PRODUCTS) - {
        # ONNX Runtime's layout step turns QLinearConv into this.
        ("com.microsoft", "QLinearConv")
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operands_of_two_signs_are_reported(case: Any) -> None:
    found = list(saturating_operands(case.model()))
    assert bool(found) == case.saturates
    assert all(operand.fixable for operand in found)


@pytest.mark.parametrize("case", OPPOSITE, ids=str)
def test_nothing_is_left_to_saturate(case: Any) -> None:
    model = rewritten(case.model())
    assert not list(saturating_operands(model))


@needs_exact_cpu
@pytest.mark.parametrize("case", OPPOSITE, ids=str)
def test_the_rewrite_is_exact(case: Any) -> None:
    model = case.model()
    assert np.array_equal(answer(model, case), answer(rewritten(model), case))


@pytest.mark.parametrize("case", [c for c in OPPOSITE if c.op == "MatMulInteger"], ids=str)
def test_the_rewrite_is_exact_on_any_cpu(case: Any) -> None:
    model = case.model()
    weights = numpy_helper.to_array(model.graph.initializer[0]).astype(np.int64)
    expected = case.activation().astype(np.int64) @ weights
    assert np.array_equal(answer(rewritten(model), case), expected)


@pytest.fixture(scope="module")
def on_a_plain_cpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Answers of every case, unchanged and rewritten, on a CPU with AVX2 and without VNNI."""
    folder = tmp_path_factory.mktemp("plain")
    models = {}
    for case in CASES:
        models[str(case), "as it is"] = case.model().SerializeToString()
        models[str(case), "rewritten"] = rewritten(case.model()).SerializeToString()
    asked, told = folder / "asked", folder / "told"
    asked.write_bytes(pickle.dumps(models))
    program = Path(__file__).with_name("product_models.py")
    subprocess.run(
        ["qemu-x86_64", "-cpu", PLAIN_CPU, sys.executable, program, asked, told],
        check=True,
        capture_output=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(SUPPORT)},
    )
    found: dict[str, Any] = pickle.loads(told.read_bytes())
    return found


@needs_emulator
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plain_cpu_agrees_if_nothing_saturates(case: Any, on_a_plain_cpu: dict[str, Any]) -> None:
    model = case.model()
    assert np.array_equal(on_a_plain_cpu[str(case), "rewritten"], answer(rewritten(model), case))
    if not case.saturates:
        assert np.array_equal(on_a_plain_cpu[str(case), "as it is"], answer(model, case))


@needs_emulator
@needs_exact_cpu
@pytest.mark.parametrize("case", OPPOSITE, ids=str)
def test_a_plain_cpu_saturates_as_the_table_says(case: Any, on_a_plain_cpu: dict[str, Any]) -> None:
    assert not np.array_equal(on_a_plain_cpu[str(case), "as it is"], answer(case.model(), case))


def test_a_zero_point_of_each_channel_moves_along() -> None:
    zeros = np.arange(-3, 5, dtype=np.int8)
    model = product(zero=zeros, columns=8)
    (node,) = rewritten(model).graph.node
    constants = {t.name: numpy_helper.to_array(t) for t in rewritten(model).graph.initializer}
    assert constants[node.input[3]].dtype == np.uint8
    assert constants[node.input[3]].tolist() == (zeros.astype(int) + 128).tolist()


def test_weights_that_others_read_stay() -> None:
    model = product()
    model.graph.node.append(helper.make_node("Identity", ["w"], ["kept"], name="other"))
    model.graph.output.append(helper.make_tensor_value_info("kept", TensorProto.INT8, None))
    names = {tensor.name for tensor in rewritten(model).graph.initializer}
    assert "w" in names
    assert len(names) == 3


def test_one_operand_of_two_products_is_written_once() -> None:
    model = product()
    model.graph.node.append(helper.make_node("MatMulInteger", ["x", "w"], ["again"], name="two"))
    model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.INT32, None))
    first, second = rewritten(model).graph.node
    assert first.input[1] == second.input[1]
    assert {tensor.name for tensor in rewritten(model).graph.initializer} == {
        first.input[1],
        first.input[3],
    }


def test_subgraphs_are_rewritten_with_constants_of_the_graph_around() -> None:
    inner = product()
    body = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["inside"], name="inner")],
        "body",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.INT32, None)],
    )
    other = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "v"], ["beside"], name="other")],
        "other",
        [],
        [helper.make_tensor_value_info("beside", TensorProto.INT32, None)],
        [numpy_helper.from_array(np.full((256, 4), 127, np.int8), "v")],
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=other)
    model = model_of(
        [choice],
        [*inner.graph.input, helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        inner.graph.initializer,
    )
    assert sorted(operand.node.name for operand in saturating_operands(model)) == ["inner", "other"]
    result = rewritten(model)
    assert not list(saturating_operands(result))
    (node,) = result.graph.node
    assert "w" not in {tensor.name for tensor in result.graph.initializer}
    # The other branch's weights stay unchanged.
    assert [
        len(attribute.g.initializer) for attribute in sorted(node.attribute, key=lambda a: a.name)
    ] == [
        2,
        0,
    ]


def test_weights_that_are_not_constants_cannot_be_rewritten() -> None:
    model = product()
    del model.graph.initializer[:]
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.INT8, [256, 4]))
    (found,) = saturating_operands(model)
    assert not found.fixable
    assert [node.input[1] for node in rewritten(model).graph.node] == ["w"]


@pytest.mark.parametrize(("largest", "told"), [(64, False), (65, True)])
def test_weights_of_seven_bits_cannot_saturate(largest: int, told: bool) -> None:
    model = product()
    weights = np.full((256, 4), -largest, np.int8)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    assert bool(list(saturating_operands(model))) == told


@pytest.mark.parametrize(
    ("isa", "feature"),
    [
        (None, ""),
        (("avx2", "avx512f"), ""),
        (("avx2", "avx_vnni"), "avx_vnni"),
        (("avx_vnni", "avx512_vnni"), "avx512_vnni"),
    ],
)
def test_the_feature_by_which_sums_are_exact(isa: Sequence[str] | None, feature: str) -> None:
    assert exact_feature(tuple(isa) if isa is not None else None) == feature


def test_a_signed_activation_needs_no_rewrite() -> None:
    model = product(activation=TensorProto.INT8)
    assert not list(saturating_operands(model))
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == ROWS


def recurrent(largest: int) -> onnx.ModelProto:
    """An LSTM whose recurrent weights saturate; all others are at most `largest`."""
    (case,) = (c for c in CASES if str(c) == "DynamicQuantizeLSTM-float32-int8-8")
    model = case.model()
    for tensor in model.graph.initializer:
        if tensor.name == "w":
            values = np.clip(numpy_helper.to_array(tensor), -largest, largest)
            tensor.CopyFrom(numpy_helper.from_array(values, "w"))
    return model


def test_all_weights_of_a_node_keep_one_type() -> None:
    (case,) = (c for c in CASES if str(c) == "DynamicQuantizeLSTM-float32-int8-8")
    model = rewritten(recurrent(63))
    (node,) = model.graph.node
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert types[node.input[1]] == types[node.input[2]] == TensorProto.UINT8
    answer(model, case)


def test_the_type_of_what_is_only_moved_is_known() -> None:
    model = product(activation=TensorProto.INT8)
    model.graph.node[0].input[0] = "moved"
    model.graph.node.insert(0, helper.make_node("Identity", ["x"], ["moved"]))
    assert not list(saturating_operands(model))
