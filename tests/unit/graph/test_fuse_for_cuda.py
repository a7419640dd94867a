"""Fusion for CUDA: graphs before and after, and the same answers from both."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from attention_graphs import (
    BOOLEANS,
    CONDITION,
    HEADS,
    HIDDEN,
    LOWEST,
    ROOT,
    WIDTH,
    attention,
    check_same,
    decomposed,
    ops,
    opset,
    tokens,
)
from model_parts import info
from onnx import TensorProto, helper, numpy_helper

from aotc.base.errors import AotcError
from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.pipeline.optimize import fusion_job


@pytest.mark.parametrize("name", BOOLEANS)
def test_the_standard_attention_with_a_boolean_mask_is_packed(name: str) -> None:
    core = helper.make_node("Attention", ["q", "k", "v", "m"], ["a"], scale=0.3)
    mask = info("m", ["b", 1, "length", "length"], TensorProto.BOOL)
    model = attention([mask], [core])
    fused, records = fuse(model, Path())
    assert "Attention" in ops(fused) and "MatMul" not in ops(fused)
    assert {"fuse-attention", "pack-attention"} <= {item.name for item in records}
    check_same(model, fused, x=tokens(), m=BOOLEANS[name])


@pytest.mark.parametrize("shape", [["b", 1, 1, "length"], ["length", "length"], [1, "length"]])
def test_masks_of_other_ranks_are_spread(shape: list[Any]) -> None:
    core = decomposed(helper.make_node("Add", ["added", "s"], ["m"]))
    model = attention([info("added", shape)], core, root=np.float32(2))
    sizes = [{"b": 2, "length": 3}.get(size, size) for size in shape]
    mask = np.random.default_rng(1).standard_normal(sizes).astype(np.float32)
    fused, records = fuse(model, Path())
    assert records
    check_same(model, fused, x=tokens(), added=mask)


def test_causal_attention_stays_causal() -> None:
    model = attention([], [helper.make_node("Attention", ["q", "k", "v"], ["a"], is_causal=1)])
    fused, records = fuse(model, Path())
    assert records
    (node,) = [node for node in fused.graph.node if node.op_type == "Attention"]
    assert node.domain == "com.microsoft"
    assert {item.name: item.i for item in node.attribute}["unidirectional"] == 1
    check_same(model, fused, x=tokens())


@pytest.mark.parametrize(
    "core",
    [
        helper.make_node("Attention", ["q", "k", "v"], ["a"], softcap=2.0),
        helper.make_node("Attention", ["q", "k", "v"], ["a", "", "", "scores"]),
        helper.make_node("Attention", ["q", "k", "v", "m"], ["a"], is_causal=1),
    ],
    ids=["capped", "scores are read", "causal and masked"],
)
def test_what_the_fused_operator_cannot_do_is_left(core: onnx.NodeProto) -> None:
    masks = [info("m", ["length", "length"])] if "m" in core.input else []
    model = attention(masks, [core])
    if len(core.output) > 1:
        model.graph.output.append(info("scores", ["batch", HEADS, "length", "length"]))
    fused, records = fuse(model, Path())
    assert records == () and fused is model


def changed(core: list[onnx.NodeProto], index: int, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [*core[:index], node, *core[index + 1 :]]


# Constants and nodes that look like an attention, and are none that the fused operator has.
LEFT: dict[str, Any] = {
    "another axis": (
        changed(decomposed(), 3, helper.make_node("Softmax", ["s"], ["p"], axis=-2)),
        ROOT,
    ),
    "a scale of 0": (
        changed(decomposed(), 2, helper.make_node("Mul", ["s0", "root"], ["s"])),
        {"root": np.float32(0)},
    ),
    "factors instead of masks": (decomposed(helper.make_node("Mul", ["s", "f"], ["m"])), ROOT),
    "chosen, but not far below": (
        decomposed(helper.make_node("Where", ["c", "s", "low"], ["m"])),
        {**ROOT, "low": np.float32(-1e4)},
    ),
    "chosen from a tensor": (decomposed(helper.make_node("Where", ["c", "s", "f"], ["m"])), ROOT),
    "probabilities are masked": (
        [
            *changed(decomposed(), 3, helper.make_node("Softmax", ["s"], ["r"], axis=-1))[:-1],
            helper.make_node("Where", ["c", "r", "zero"], ["p"]),
            helper.make_node("MatMul", ["p", "v"], ["a"]),
        ],
        {**ROOT, "zero": np.float32(0)},
    ),
    "keys of one item for all": (
        changed(decomposed(), 0, helper.make_node("Transpose", ["one"], ["kt"], perm=[0, 1, 3, 2])),
        {**ROOT, "one": np.ones((1, HEADS, 3, WIDTH), np.float32)},
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_only_looks_like_an_attention_is_left(name: str) -> None:
    core, constants = LEFT[name]
    model = attention([CONDITION, info("f", [1, 1, "length", "length"])], core, **constants)
    fused, _ = fuse(model, Path())
    assert "Softmax" in ops(fused)
    factors = np.random.default_rng(2).standard_normal((1, 1, 3, 3)).astype(np.float32)
    check_same(model, fused, x=tokens(), c=BOOLEANS["rows without any"], f=factors)


def test_the_axis_of_a_softmax_before_opset_13_is_not_the_last() -> None:
    """Without a stated axis it is over all axes from the second on."""
    core = changed(decomposed(), 3, helper.make_node("Softmax", ["s"], ["p"]))
    model = opset(attention([], core, **ROOT), 12)
    fused, records = fuse(model, Path())
    assert records == () and fused is model
    assert fuse(opset(attention([], core, **ROOT), 13), Path())[1]


def test_masks_that_spread_the_batch_are_left() -> None:
    core = decomposed(helper.make_node("Add", ["s", "f"], ["m"]))
    model = attention([info("f", [2, 1, 3, 3])], core, **ROOT)
    # `y` is of the mask's batch.
    for item, batch in ((model.graph.input[0], 1), (model.graph.output[0], 2)):
        item.type.tensor_type.shape.dim[0].dim_value = batch
    fused, _ = fuse(model, Path())
    assert "Softmax" in ops(fused)
    mask = np.random.default_rng(2).standard_normal((2, 1, 3, 3)).astype(np.float32)
    check_same(model, fused, x=tokens(1), f=mask)


@pytest.mark.parametrize("read", ["p", "s", "a"])
def test_what_is_also_an_output_stays_one(read: str) -> None:
    model = attention([], decomposed(), **ROOT)
    last = WIDTH if read == "a" else "length"
    model.graph.output.append(info(read, ["batch", HEADS, "length", last]))
    fused, _ = fuse(model, Path())
    assert ("Softmax" in ops(fused)) == (read == "p")
    check_same(model, fused, x=tokens())


@pytest.mark.parametrize("read", ["p", "s", "a"])
def test_what_is_read_twice_is_the_same_to_both(read: str) -> None:
    core = [*decomposed(), helper.make_node("Neg", [read], ["z"])]
    model = attention([], core, **ROOT)
    last = WIDTH if read == "a" else "length"
    model.graph.output.append(info("z", ["batch", HEADS, "length", last]))
    check_same(model, fuse(model, Path())[0], x=tokens())


def test_a_mask_made_from_the_scores_is_computed_from_them() -> None:
    masked = [
        helper.make_node("Greater", ["s", "limit"], ["c1"]),
        helper.make_node("Where", ["c1", "s", "lowest"], ["m"]),
    ]
    constants = {**ROOT, "limit": np.float32(0.1), "lowest": np.float32(LOWEST)}
    model = attention([], decomposed(*masked), **constants)
    fused, records = fuse(model, Path())
    assert records
    check_same(model, fused, x=tokens())


@pytest.mark.parametrize("factor", [0.3, -1.5, 4.0])
def test_any_scale_and_width_of_values(factor: float) -> None:
    """Values are half as wide as queries; the scale is not that of the width."""
    core = changed(decomposed(), 2, helper.make_node("Mul", ["root", "s0"], ["s"]))
    model = attention([], core, root=np.float32(factor))
    held = {item.name: item for item in model.graph.initializer}
    rng = np.random.default_rng(9)
    for name, values in {
        "wv": rng.standard_normal((HIDDEN, HIDDEN // 2)).astype(np.float32),
        "bv": rng.standard_normal(HIDDEN // 2).astype(np.float32),
        "join": np.array([0, 0, HIDDEN // 2]),
    }.items():
        held[name].CopyFrom(numpy_helper.from_array(values, name))
    narrow = numpy_helper.from_array(np.array([0, 0, HEADS, WIDTH // 2]), "narrow")
    model.graph.initializer.append(narrow)
    for node in model.graph.node:
        if node.output[0] == "v3":
            node.input[1] = "narrow"
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = HIDDEN // 2
    fused, records = fuse(model, Path())
    assert {"fuse-attention", "pack-attention"} <= {item.name for item in records}
    check_same(model, fused, x=tokens())


def activation(nodes: list[onnx.NodeProto], kind: int, **constants: Any) -> onnx.ModelProto:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    graph = helper.make_graph(
        nodes,
        "activation",
        [info("x", ["n", HIDDEN], kind)],
        [info("y", ["n", HIDDEN], kind)],
        [
            numpy_helper.from_array(np.asarray(item, dtype), name)
            for name, item in constants.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def gelu(order: str) -> list[onnx.NodeProto]:
    make = helper.make_node
    first = [make("Div", ["x", "root"], ["1"]), make("Erf", ["1"], ["2"])]
    if order == "product":
        first = [make("Mul", ["inverse", "x"], ["1"]), make("Erf", ["1"], ["2"])]
    last = {
        "half last": [make("Mul", ["x", "3"], ["4"]), make("Mul", ["4", "half"], ["y"])],
        "half first": [make("Mul", ["half", "3"], ["4"]), make("Mul", ["4", "x"], ["y"])],
        "product": [make("Mul", ["x", "half"], ["4"]), make("Mul", ["4", "3"], ["y"])],
    }[order]
    return [*first, make("Add", ["2", "one"], ["3"]), *last]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("order", ["half last", "half first", "product"])
def test_gelu_is_found_in_every_order_and_type(order: str, kind: int) -> None:
    constants = {"root": math.sqrt(2), "inverse": 1 / math.sqrt(2), "half": 0.5, "one": 1.0}
    model = activation(gelu(order), kind, **constants)
    fused, records = fuse(model, Path())
    assert ops(fused) == ["Gelu"]
    assert {item.name: item.matched for item in records}["fuse-gelu"] == {"erf": 1}
    if kind == TensorProto.FLOAT:
        check_same(model, fused, x=tokens()[0])


@pytest.mark.parametrize("name", ["root", "half", "one"])
def test_a_constant_of_more_dims_than_the_source_adds_some(name: str) -> None:
    constants: dict[str, Any] = {"root": math.sqrt(2), "half": 0.5, "one": 1.0}
    for shape, found in (((1, 1), True), ((1, 1, 1), False)):
        constants[name] = np.full(shape, constants[name])
        model = activation(gelu("half last"), TensorProto.FLOAT, **constants)
        if not found:
            del model.graph.output[0].type.tensor_type.shape.dim[:]
            model.graph.output[0].type.tensor_type.ClearField("shape")
        fused, records = fuse(model, Path())
        assert bool(records) == found
        check_same(model, fused, x=tokens()[0])


@pytest.mark.parametrize("changed", [{"root": 1.5}, {"half": 0.51}, {"one": 1.01}])
def test_what_is_almost_gelu_is_left(changed: dict[str, float]) -> None:
    constants = {"root": math.sqrt(2), "half": 0.5, "one": 1.0, **changed}
    model = activation(gelu("half last"), TensorProto.FLOAT16, **constants)
    assert fuse(model, Path())[1] == ()


def test_what_has_no_kernel_is_not_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MultiHeadAttention of float64 is an operator of no provider."""
    monkeypatch.chdir(tmp_path)
    model = attention([], decomposed(), TensorProto.DOUBLE, root=np.float64(2))
    onnx.save(model, "model.onnx")
    request = {"graph": "model.onnx", "weights": str(tmp_path), "backend": "cuda", "plugins": {}}
    assert "cuda has no kernel" in fusion_job(request)["why_not"]


def test_without_the_library_the_fix_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "aotc.graph.passes.fuse_for_cuda", raising=False)
    monkeypatch.setitem(sys.modules, "onnxscript.optimizer", None)
    onnx.save(activation(gelu("product"), TensorProto.FLOAT, inverse=0.7, half=0.5, one=1), "m")
    request = {"graph": "m", "weights": str(tmp_path), "backend": "cuda", "plugins": {}}
    with pytest.raises(AotcError) as caught:
        fusion_job(request)
    assert caught.value.code == "AOTC-O011"
    assert "fusion: none" in caught.value.fix
