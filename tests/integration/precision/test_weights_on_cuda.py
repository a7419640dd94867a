"""Weights in 8 and 4 bits for CUDA, built without a GPU: what is promised has kernels there.

ONNX Runtime's CPU provider has kernels of the same operators, which show what the graphs compute.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from made_profiles import profile_with
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from refusals import refusal, refusal_code
from workbench import Built, Workbench, plain_answer, plain_session

from aotc.base.records import replace
from aotc.providers.cuda import CudaBackend, claim_of, uncapturable
from aotc.runtime.warmup import open_variant

pytestmark = pytest.mark.skipif(
    CudaBackend().probe().runs, reason="this machine runs CUDA: tests/gpu are for it"
)
# 72 is no multiple of a block, and 50 not even of 8, which the kernels of single rows want.
VOCABULARY, WIDTH, WIDE = 700, 72, 50
CUDA = "CUDAExecutionProvider"
HALF = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def decoder() -> onnx.ModelProto:
    """Embeddings, two products with weights, one of them with a bias, and a normalization."""
    chance = np.random.default_rng(5)

    def normal(name: str, *shape: int) -> onnx.TensorProto:
        values = chance.standard_normal(shape) / np.sqrt(shape[0])
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["looked"], "lookup"),
        helper.make_node("MatMul", ["looked", "up"], ["high"], "first"),
        helper.make_node("Add", ["high", "bias"], ["biased"], "add"),
        helper.make_node("Tanh", ["biased"], ["hidden"], "between"),
        helper.make_node("MatMul", ["hidden", "down"], ["low"], "second"),
        helper.make_node("Add", ["low", "looked"], ["skipped"], "skip"),
        helper.make_node("LayerNormalization", ["skipped", "scale"], ["y"], "norm"),
    ]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "time"])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "time", WIDTH])],
        initializers=[
            numpy_helper.from_array(
                chance.standard_normal((VOCABULARY, WIDTH)).astype(np.float32), "table"
            ),
            normal("up", WIDTH, WIDE),
            normal("bias", WIDE),
            normal("down", WIDE, WIDTH),
            numpy_helper.from_array(np.ones(WIDTH, np.float32), "scale"),
        ],
    )


def built(bench: Workbench, name: str, precision: str, **quantization: Any) -> Built:
    profile = profile_with(
        "server-cuda",
        precision=precision,
        quantization=quantization,
        dims={"batch": {"buckets": [1, 4]}, "time": 3},
        budgets={},
    )
    return bench.build(decoder(), name, profile=profile)


def graph_of(artifact: Built) -> onnx.ModelProto:
    (variant,) = artifact.manifest.variants
    return onnx.load(artifact.payload / variant.model, load_external_data=False)


def answer_on_the_cpu(artifact: Built, given: dict[str, Any]) -> Any:
    (variant,) = artifact.manifest.variants
    session = replace(variant.session, provider_options={}, optimization="disable")
    on_cpu = replace(variant, providers=("CPUExecutionProvider",), session=session)
    (found,) = open_variant(artifact.payload, on_cpu, threads=1).run(None, given)
    return found


@pytest.mark.parametrize(
    ("precision", "activations", "settings"),
    [
        ("int8", "auto", {}),
        ("int4", "float16", {}),
        ("int4", "bfloat16", {"block_size": 128, "symmetric": False}),
    ],
)
def test_all_of_it_has_kernels_on_cuda_and_can_be_captured(
    bench: Workbench, precision: str, activations: str, settings: dict[str, Any]
) -> None:
    artifact = built(
        bench, f"{precision}-{activations}", precision, activations=activations, **settings
    )
    (variant,) = artifact.manifest.variants
    assert (variant.precision, variant.placement.share[CUDA]) == (precision, 1.0)
    # Readers before it know of no such activations.
    asked = artifact.manifest.required_features
    assert ("half-activations" in asked) == (activations in HALF)
    assert variant.cuda_graphs is not None and len(variant.cuda_graphs.sizes) == 2
    model = graph_of(artifact)
    claims = claim_of(model)
    assert claims.refusals == ()
    assert not uncapturable(model, dict.fromkeys(claims.nodes, CUDA))
    products = [node for node in model.graph.node if node.op_type == "MatMulNBits"]
    assert len(products) == 2
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    kind = HALF.get(activations, TensorProto.FLOAT)
    for node in products:
        stated = {each.name: each.i for each in node.attribute}
        assert stated["bits"] == (8 if precision == "int8" else 4)
        assert stated["block_size"] == settings.get("block_size", 32)
        # CUDA's kernels take no account of it, and the manifest does not say so.
        assert not stated.get("accuracy_level")
        assert constants[node.input[2]].data_type == kind
        assert (len(node.input) > 3) == ("symmetric" in settings)
    # CUDA counts blocks of a table from its begin, not from that of each row: rows have scales.
    assert not any(node.op_type == "GatherBlockQuantized" for node in model.graph.node)
    assert TensorProto.INT8 in {tensor.data_type for tensor in constants.values()}
    assert [value.type.tensor_type.elem_type for value in model.graph.output] == [TensorProto.FLOAT]


def test_half_precision_beside_four_bits_answers_as_float32_does(bench: Workbench) -> None:
    ids = {"ids": np.array([[0, 3, VOCABULARY - 1]])}
    answers, sizes = {}, {}
    for activations in ("auto", "float16"):
        artifact = built(bench, f"answers-{activations}", "int4", activations=activations)
        (variant,) = artifact.manifest.variants
        answers[activations] = answer_on_the_cpu(artifact, ids)
        sizes[activations] = sum(
            math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            for tensor in graph_of(artifact).graph.initializer
        )
        changes = Counter(record.name for record in variant.passes)
        assert changes["half-precision"] == (activations == "float16")
        assert changes["quantize"] == 1
    expected = plain_answer(plain_session(artifact.source), ids)["y"]
    worst = {name: np.abs(found - expected).max() for name, found in answers.items()}
    assert 0 < np.abs(answers["float16"] - answers["auto"]).max() < 0.02 < worst["auto"] < 0.5
    assert worst["float16"] < 1.1 * worst["auto"]
    assert sizes["float16"] < sizes["auto"]


def test_half_precision_is_of_weights_alone_on_cuda(bench: Workbench) -> None:
    stated = {"activations": "float16", "form": "weights"}
    profile = profile_with("edge", precision="int4", quantization=stated)
    refused = refusal(bench.build, decoder(), "refused", profile=profile)
    assert (refused.code, refused.where) == (
        "AOTC-N017",
        "variant portable: quantization.activations",
    )
    assert refused.found == "float16, in the form weights on cpu"
    stated["form"] = "mixed"
    profile = profile_with("server-cuda", precision="int4", quantization=stated)
    assert refusal_code(bench.build, decoder(), "refused", profile=profile) == "AOTC-N008"


@pytest.mark.parametrize("activations", ["auto", "float16", "bfloat16"])
def test_four_bits_in_blocks_of_256_have_no_kernel_of_one_row_there(
    bench: Workbench, activations: str
) -> None:
    stated = {"block_size": 256, "activations": activations}
    profile = profile_with("server-cuda", precision="int4", quantization=stated)
    refused = refusal(bench.build, decoder(), "blocks", profile=profile)
    assert (refused.code, refused.where, refused.expected, refused.found) == (
        "AOTC-N017",
        "variant portable: quantization.block_size",
        "at most 128, or precision int8",
        "256",
    )


def test_blocks_of_256_are_written_in_eight_bits(bench: Workbench) -> None:
    artifact = built(bench, "large-blocks", "int8", block_size=256)
    products = [node for node in graph_of(artifact).graph.node if node.op_type == "MatMulNBits"]
    assert {a.i for node in products for a in node.attribute if a.name == "block_size"} == {256}
