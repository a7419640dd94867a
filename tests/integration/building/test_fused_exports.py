"""Exported transformers, fused for CUDA: what is found, where it runs, and what it computes.

The operators have kernels for the CPU as well, so the answers are compared there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from half_models import in_half
from onnx import TensorProto, helper, numpy_helper

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.fuse_for_cuda import fuse
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.passes.with_sizes import FixDims, FoldShapes
from aotc.precision.half_conversion import HALF_TYPES, TypedGraph
from aotc.precision.half_ranges import lower_masks
from aotc.providers.cuda import claim_of
from aotc.spec.variant import PassRecord

EXPORTS = Path("tests/data/exports").resolve()
ROTARY_EXPORTS = Path("tests/data/rotary").resolve()
# By export: the operator that its attentions become.
ATTENTION = {
    "bert": "Attention",
    "decoder": "Attention",
    "gpt2": "MultiHeadAttention",
    "gpt_neox": "MultiHeadAttention",
    "llama_eager": "MultiHeadAttention",
    "llama_sdpa": "MultiHeadAttention",
    "modernbert": "MultiHeadAttention",
    "qwen3": "MultiHeadAttention",
    "vit": "Attention",
    "whisper": "Attention",
}
LAYERS = {"modernbert": 3}
# How many of each are found.
GELU = {"bert": 2, "decoder": 2, "gpt2": 2, "gpt_neox": 2, "modernbert": 3, "vit": 2, "whisper": 4}
SKIPPED = {"gpt_neox": 2, "modernbert": 6}
ROTARY = {"gpt_neox": 4, "llama_eager": 4, "llama_sdpa": 4, "modernbert": 6, "qwen3": 4}
GROUPED = ("llama_eager", "llama_sdpa", "qwen3")
PACKED = {"decoder": 2, "gpt2": 2, "gpt_neox": 2, "modernbert": 6}
WITH_PAST = ("gpt2", "gpt_neox", "llama_eager", "llama_sdpa", "qwen3")
SIZES = {"batch": 2, "sequence": 5, "frames": 3000}


def path_of(name: str) -> Path:
    own = ROTARY_EXPORTS / f"{name}.onnx"
    return own if own.exists() else EXPORTS / own.name


@cache
def original(name: str) -> onnx.ModelProto:
    """The export; weights are larger than random ones, so that masks show in the answers."""
    model = onnx.load(path_of(name))
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 2 and values.std() < 0.1:
            tensor.CopyFrom(numpy_helper.from_array(values * np.float32(15), tensor.name))
    return model


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


@cache
def fused(name: str) -> tuple[onnx.ModelProto, tuple[PassRecord, ...]]:
    return fuse(copy_of(original(name)), Path())


@cache
def half(name: str) -> onnx.ModelProto:
    """The export in float16, with its own weights."""
    return in_half(onnx.load(path_of(name)))


@cache
def fused_half(name: str) -> tuple[onnx.ModelProto, tuple[PassRecord, ...]]:
    return fuse(copy_of(half(name)), Path())


def inputs(
    model: onnx.ModelProto, past: int, mask: str, stated: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Inputs with this many past positions, and a mask of ones, of padding, or of nothing.

    `stated` are sizes other than the usual.
    """
    rng = np.random.default_rng(7)
    sizes = {**SIZES, "past_sequence": past, **(stated or {})}
    sizes["total"] = sizes["sequence"] + sizes["past_sequence"]
    found: dict[str, Any] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in kind.shape.dim]
        if "mask" in value.name:
            found[value.name] = np.ones(shape, np.int64)
            # Padding before and after; then a row that is all padding.
            found[value.name][0, : shape[1] // 2] = mask == "ones"
            found[value.name][-1, -2:] = mask == "ones"
            found[value.name][-1] *= mask != "nothing"
        elif kind.elem_type == TensorProto.INT64:
            most = 2 if "type" in value.name else 60
            found[value.name] = rng.integers(0, most, shape)
        else:
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = rng.standard_normal(shape).astype(dtype)
    return found


def answers(model: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, given))


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.domain == "com.microsoft"]


@pytest.mark.parametrize("name", ATTENTION)
def test_all_attentions_and_activations_are_found(name: str) -> None:
    model, records = fused(name)
    found = operators(model)
    assert found.count(ATTENTION[name]) == LAYERS.get(name, 2)
    assert "Softmax" not in {node.op_type for node in model.graph.node}
    assert found.count("RotaryEmbedding") == ROTARY.get(name, 0)
    gelus = [op for op in found if op in ("Gelu", "BiasGelu", "FastGelu")]
    assert len(gelus) == GELU.get(name, 0)
    assert sum("Normalization" in op for op in found) == SKIPPED.get(name, 4)
    matched = {item.name: sum(item.matched.values()) for item in records if item.matched}
    assert {"fuse-attention", "fuse-normalization"} <= set(matched)
    assert all(matched.values())
    # The mask of a vision transformer keeps all, and that is known of its constants.
    (attention,) = (item.matched for item in records if item.name == "fuse-attention")
    assert attention.get("idle masks", 0) == (2 if name == "vit" else 0)
    assert attention.get("grouped", 0) == (2 if name in GROUPED else 0)
    assert matched.get("divide-products", 0) == PACKED.get(name, 0)
    assert "Split" not in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("name", ROTARY)
def test_nothing_is_left_of_rotary_embeddings_and_repeated_keys(name: str) -> None:
    model, _ = fused(name)
    found = [node.op_type for node in model.graph.node]
    assert not {"Neg", "Slice"} & set(found)
    # One cosine for each kind of layer; no value is transposed but those of the present.
    assert found.count("Cos") == (2 if name == "modernbert" else 1)
    transposed = {"gpt_neox": 0, "modernbert": 0}.get(name, 8)
    assert found.count("Transpose") == transposed


@pytest.mark.parametrize(
    ("name", "past", "mask"),
    [
        (name, past, mask)
        for name in ATTENTION
        for past, mask in itertools.product((0, 3), ("ones", "padding", "nothing"))
        if (past == 0 or name in WITH_PAST) and (mask == "ones" or name not in ("vit", "whisper"))
    ],
)
def test_the_answers_are_those_of_the_original(name: str, past: int, mask: str) -> None:
    model, _ = fused(name)
    given = inputs(model, past, mask)
    for expected, found in zip(answers(original(name), given), answers(model, given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-5)


def test_masks_of_half_precision_change_rows_that_see_nothing_alone() -> None:
    """ModernBERT's windows are of two positions on either side; all of it is in float32 here."""
    model = onnx.shape_inference.infer_shapes(fused("modernbert")[0])
    graph = TypedGraph(model, HALF_TYPES["float16"].tensor_name, "CUDAExecutionProvider")
    given = inputs(model, 0, "padding", {"sequence": 16})
    (before,) = answers(model, given)
    assert lower_masks(graph, HALF_TYPES["float16"], numpy_helper.to_array)
    off = np.abs(answers(model, given)[0] - before).max(axis=-1)
    mask = np.pad(given["attention_mask"], ((0, 0), (2, 2)))
    sees = np.lib.stride_tricks.sliding_window_view(mask, 5, axis=1).any(axis=-1)
    assert 0 < (~sees).sum() < (given["attention_mask"] == 0).sum()
    assert off[sees].max() == 0 and off[~sees].min() > 0.05


# Dims as variants fix them: all, those of a bucket, and all but those that a bucket fixes.
_PAST = {"sequence": 1, "past_sequence": 7, "total": 8}
FIXED = {
    "bert": {"sequence": 16},
    "decoder": {"sequence": 16},
    "gpt2": _PAST,
    "gpt_neox": _PAST,
    "llama_eager": _PAST,
    "llama_sdpa": _PAST,
    "modernbert": {"sequence": 16},
    "qwen3": _PAST,
    "vit": {},
    "whisper": {"frames": 3000},
}


# Without any fixed dim they are those of the tests above.
@pytest.mark.parametrize(
    ("others", "batch"),
    [(True, None), (True, 1), (True, 2), (False, 1)],
    ids=["fixed", "fixed-1", "fixed-2", "free-1"],
)
@pytest.mark.parametrize("name", FIXED)
def test_graphs_of_fixed_dims_are_fused_alike(name: str, others: bool, batch: int | None) -> None:
    sizes: dict[str, int] = dict(FIXED[name]) if others else {}
    if batch is not None:
        sizes["batch"] = batch
    model = copy_of(original(name))
    run_passes(model, (FixDims(sizes=sizes), FoldShapes()))
    result, _ = fuse(model, Path())
    found = operators(result)
    assert found.count(ATTENTION[name]) == LAYERS.get(name, 2)
    assert found.count("RotaryEmbedding") == ROTARY.get(name, 0)
    assert "Softmax" not in {node.op_type for node in result.graph.node}
    # With a batch of 1 the sum with embeddings of positions is one, too.
    assert sum("Normalization" in op for op in found) >= SKIPPED.get(name, 4)
    given = inputs(
        result, 7, "padding" if name in ("bert", "decoder", "modernbert") else "ones", sizes
    )
    for expected, answer in zip(
        answers(original(name), given), answers(result, given), strict=True
    ):
        np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=2e-5)


def test_masks_show_in_these_answers() -> None:
    """Else the comparison above would say nothing of them."""
    for name in ("bert", "decoder", *ROTARY):
        model = original(name)
        whole, padded = (answers(model, inputs(model, 0, mask))[0] for mask in ("ones", "padding"))
        assert np.abs(whole - padded).max() > 1e-2


@pytest.mark.parametrize("name", ATTENTION)
def test_cuda_claims_every_node_in_float32_and_half(name: str) -> None:
    for model, records in (fused(name), fused_half(name)):
        assert records
        result = copy_of(model)
        assert operators(result).count(ATTENTION[name]) == LAYERS.get(name, 2), operators(result)
        run_passes(result, (NameNodes(),))
        claims = claim_of(result)
        assert claims.refusals == ()
        assert {node.name for node in result.graph.node} <= claims.nodes


@pytest.mark.parametrize(
    "name", ["bert", "vit", "gpt2", "gpt_neox", "decoder", "modernbert", "whisper"]
)
def test_half_models_are_fused_in_half(name: str) -> None:
    model, (result, _) = half(name), fused_half(name)
    found = operators(result)
    assert found.count("RotaryEmbedding") == ROTARY.get(name, 0)
    assert sum(op in ("Gelu", "BiasGelu", "FastGelu") for op in found) == GELU[name]
    given = inputs(result, 0, "padding" if name in ("bert", "gpt2") else "ones")
    for expected, answer in zip(answers(model, given), answers(result, given), strict=True):
        assert answer.dtype == np.float16
        np.testing.assert_allclose(answer, expected, rtol=2e-2, atol=5e-3)


def test_the_same_bytes_twice() -> None:
    first, _ = fused("llama_sdpa")
    second, _ = fuse(copy_of(original("llama_sdpa")), Path())
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(
        deterministic=True
    )


def test_a_graph_without_patterns_is_as_it_was() -> None:
    model = onnx.load(EXPORTS / "resnet50.onnx")
    result, records = fuse(model, Path())
    assert records == () and result is model
