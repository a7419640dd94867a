"""Weights alone, in blocks: how they are computed with on CPUs, and what is stored of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from model_parts import model_of
from onnx import TensorProto, helper, numpy_helper
from refusals import refusal
from workbench import Built, Workbench, plain_answer, plain_session

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.pipeline.integers import weight_settings
from aotc.spec.precision import ParitySpec, QuantizationSpec, Tolerance
from aotc.spec.profile import Profile
from aotc.spec.profile_files import load_profile
from aotc.spec.run_report import Journal
from aotc.spec.variant import PassRecord

VOCABULARY, WIDTH = 700, 64


def profile(precision: Any, limit: float, **fields: Any) -> Profile:
    tolerance = Tolerance(atol=limit, rtol=limit, max_slice=10.0)
    stated = {
        "precision": precision,
        "quantization": QuantizationSpec(form="weights", **fields),
        "parity": ParitySpec(int8=tolerance, int4=tolerance, random_shapes=0),
    }
    return replace(load_profile("edge"), **stated)


def tied() -> onnx.ModelProto:
    """A decoder's two ends: a table of embeddings, and a head that reads it transposed."""
    chance = np.random.default_rng(5)
    table = chance.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["looked"], "lookup"),
        helper.make_node("Tanh", ["looked"], ["hidden"], "between"),
        helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["hidden", "turned"], ["logits"], "head"),
    ]
    logits = ["batch", "time", VOCABULARY]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "time"])],
        outputs=[helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)],
        initializers=[numpy_helper.from_array(table, "table")],
    )


def change_of(built: Built) -> PassRecord:
    (change,) = (item for item in built.manifest.variants[0].passes if item.name == "quantize")
    return change


def stored_bytes(built: Built) -> int:
    return sum(entry.size for entry in built.manifest.files if entry.role == "weights")


@pytest.mark.parametrize(
    ("precision", "share"), [("int8", 0.35), pytest.param("int4", 0.2, marks=pytest.mark.slow)]
)
def test_tied_embeddings_are_stored_once(bench: Workbench, precision: str, share: float) -> None:
    model = tied()
    built = bench.build(model, f"tied-{precision}", profile=profile(precision, 0.3))
    options = change_of(built).options
    assert options["accuracy_level"] == 4
    assert options["table_bits"] == options["bits"] == (4 if precision == "int4" else 8)
    operators = {node.op_type for node in built.nodes()}
    assert {"MatMulNBits", "GatherBlockQuantized"} <= operators
    assert stored_bytes(built) < share * 4 * VOCABULARY * WIDTH
    ids = {"ids": np.array([[0, 3, VOCABULARY - 1, -1]])}
    expected = plain_answer(plain_session(built.source), ids)["logits"]
    with bench.load(built) as loaded:
        found = loaded.run(ids)["logits"]
        with pytest.raises(AotcError) as caught:
            loaded.run({"ids": np.array([[VOCABULARY]])})
    assert caught.value.code == "AOTC-R005"
    assert 0 < np.abs(found - expected).max() < 0.3 * np.abs(expected).max()


def test_a_table_may_be_kept(bench: Workbench) -> None:
    wanted = replace(profile("int4", 0.3), keep_float32=("lookup",))
    built = bench.build(tied(), "kept", profile=wanted)
    assert change_of(built).matched["kept: profile"] == 1
    assert "GatherBlockQuantized" not in {node.op_type for node in built.nodes()}


def test_a_table_is_found_to_blame(bench: Workbench) -> None:
    """One column of it is large in every row, and nothing reads that column."""
    chance = np.random.default_rng(7)
    table = chance.standard_normal((VOCABULARY, WIDTH)).astype(np.float32)
    table[:, :: WIDTH // 2] = 1000
    weights = chance.standard_normal((WIDTH, WIDTH)).astype(np.float32)
    mask = np.ones(WIDTH, np.float32)
    mask[:: WIDTH // 2] = 0
    constants = {"table": table, "mask": mask, "w": weights}
    model = model_of(
        [
            helper.make_node("Gather", ["table", "ids"], ["looked"], "lookup"),
            helper.make_node("Mul", ["looked", "mask"], ["masked"], "masked"),
            helper.make_node("MatMul", ["masked", "w"], ["y"], "product"),
        ],
        inputs=[helper.make_tensor_value_info("ids", TensorProto.INT64, ["time"])],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, ["time", WIDTH])],
        initializers=[numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    wanted = profile("int4", 0.2)
    journal = Journal()
    error = refusal(bench.build, model, "blamed", profile=wanted, journal=journal)
    assert error.code == "AOTC-N001"
    assert journal.blamed[0].keep_float32 == ("lookup",)
    kept = replace(wanted, keep_float32=journal.blamed[0].keep_float32)
    assert bench.build(model, "passes", profile=kept).manifest.variants[0].parity.status == "passed"


def outlying() -> onnx.ModelProto:
    """A product of activations with one channel that is large, and that no column reads.

    In integers what is in one block with it is lost.
    """
    weights = np.random.default_rng(6).standard_normal((256, 256)).astype(np.float32)
    weights[0] = 0
    scales = np.ones(256, np.float32)
    scales[0] = 1000
    nodes = [
        helper.make_node("Mul", ["x", "scales"], ["scaled"], "large"),
        helper.make_node("MatMul", ["scaled", "w"], ["y"], "product"),
    ]
    shape = ["n", 256]
    return model_of(
        nodes,
        inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        outputs=[helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        initializers=[
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(scales, "scales"),
        ],
    )


def test_products_compute_in_float32_where_integers_are_too_inexact(bench: Workbench) -> None:
    journal = Journal()
    built = bench.build(outlying(), "exact", profile=profile("int8", 0.01), journal=journal)
    assert change_of(built).options["accuracy_level"] == 0
    told = [each for each in journal.findings if each.code == "AOTC-N065"]
    assert told[0].what.startswith("int8: AOTC-N001")
    assert "accuracy_level: 0, table_bits: 8 are taken" in told[0].what
    (replaced,) = built.report.variants[0].replaced_forms
    assert replaced.form == "the quickest blocks of weights"


def test_a_level_that_is_stated_is_refused_where_it_is_too_inexact(bench: Workbench) -> None:
    journal = Journal()
    error = refusal(
        bench.build,
        outlying(),
        "stated",
        profile=profile("int8", 0.01, accuracy_level=4),
        journal=journal,
    )
    assert error.code == "AOTC-N001"
    assert not [each for each in journal.findings if each.code == "AOTC-N065"]


@pytest.mark.slow
def test_other_providers_get_what_they_are_known_to_run(bench: Workbench) -> None:
    wanted = replace(profile("int8", 0.3), providers=("cuda", "cpu"), unproven="allow")
    built = bench.build(tied(), "cuda", profile=wanted)
    options = change_of(built).options
    assert (options["accuracy_level"], options["table_bits"]) == (0, 8)
    assert "GatherBlockQuantized" not in {node.op_type for node in built.nodes()}


def test_what_may_be_tried_of_weights_alone() -> None:
    cpu = weight_settings("int4", QuantizationSpec(), ("cpu",))
    assert [(each.block_size, each.symmetric, each.accuracy_level) for each in cpu] == [
        (16, False, 4),
        (32, False, 4),
        (32, True, 4),
        (128, True, 4),
        (32, True, 0),
    ]
    assert [each.in_words() for each in cpu[1:3]] == ["32 with zero points", "32"]
    assert cpu[-1].in_words() == "32 in float32"
    stated = QuantizationSpec(block_size=64, accuracy_level=4)
    (first, second) = weight_settings("int4", stated, ("cpu",))
    assert (first.symmetric, second.symmetric) == (False, True)
    assert {each.block_size for each in (first, second)} == {64}
    assert len(weight_settings("int8", QuantizationSpec(), ("cpu",))) == 2
    (other,) = weight_settings("int8", QuantizationSpec(), ("cuda", "cpu"))
    assert (other.block_size, other.symmetric, other.accuracy_level) == (32, True, 0)
