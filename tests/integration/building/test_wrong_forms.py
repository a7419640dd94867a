"""Forms of a variant that compute wrongly are replaced by another, and it is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from third_party_models import MISSING, MODELS
from workbench import Built, Workbench, assert_agree, plain_answer, plain_session, tolerance_of

from aotc.base.errors import AotcError
from aotc.spec.precision import ParitySpec, Tolerance
from aotc.spec.profile import Fallback, Profile, VariantSpec
from aotc.spec.profile_files import load_profile

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"
WIDTH = 16


def strict(**fields: Any) -> Profile:
    """`edge`, with tolerances that the rounding of fused quantized kernels exceeds."""
    parity = ParitySpec(quantized=Tolerance(atol=1e-6, rtol=1e-5), random_shapes=0)
    return replace(load_profile("edge"), parity=parity, **fields)


def rounding() -> onnx.ModelProto:
    """Two quantized layers, whose fused form rounds each output once more."""
    chance = np.random.default_rng(0)
    constants: dict[str, Any] = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "ys": np.float32(0.07),
    }
    nodes, value = [], "x"
    for index in range(2):
        constants[f"w{index}"] = chance.integers(-60, 60, (WIDTH, WIDTH)).astype(np.int8)
        scale = "s" if index == 0 else "ys"
        names = [f"{name}{index}" for name in "qdvmor"]
        q, d, v, m, o, r = names
        nodes += [
            helper.make_node("QuantizeLinear", [value, scale, "z"], [q]),
            helper.make_node("DequantizeLinear", [q, scale, "z"], [d]),
            helper.make_node("DequantizeLinear", [f"w{index}", "ws", "wz"], [v]),
            helper.make_node("MatMul", [d, v], [m]),
            helper.make_node("QuantizeLinear", [m, "ys", "z"], [o]),
            helper.make_node("DequantizeLinear", [o, "ys", "z"], [r]),
        ]
        value = r
    nodes.append(helper.make_node("Identity", [value], ["y"]))
    return graph_of(nodes, constants)


def graph_of(nodes: list[onnx.NodeProto], constants: dict[str, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def agrees(built: Built, bench: Workbench, variant: str) -> None:
    inputs = built.inputs({"n": 3})
    with bench.load(built, variant) as loaded:
        found = loaded.run(inputs)
    expected = plain_answer(plain_session(built.source), inputs)
    assert_agree(expected, found, tolerance_of(built, variant))


@pytest.fixture(scope="module")
def mobilenet(bench: Workbench) -> Built:
    if MISSING:
        pytest.skip(MISSING)
    tolerance = Tolerance(atol=1e-3, rtol=1e-2)
    profile = replace(
        load_profile("server-cpu"), parity=ParitySpec(quantized=tolerance, random_shapes=0)
    )
    return bench.build(
        MODELS / "mobilenet_qdq_int8.onnx", "mobilenet", profile=profile, dims={"batch": 1}
    )


def test_a_fused_form_gives_way_to_a_lower_level(mobilenet: Built) -> None:
    for variant in mobilenet.manifest.variants:
        assert variant.session.optimization == "basic"
        assert variant.parity.status == "passed"
    texts = [
        f"{finding.where}: {finding.what}"
        for finding in mobilenet.manifest.findings
        if finding.code == "AOTC-O003"
    ]
    steps = ("level all: AOTC-N001", "level extended: AOTC-N001")
    for name in ("native", "portable"):
        lines = [line for line in texts if line.startswith(f"variant {name}: ")]
        assert [
            line.partition(": ")[2][: len(step)] for line, step in zip(lines, steps, strict=True)
        ] == list(steps)
        assert "level basic is taken" in lines[-1]


def test_what_the_change_costs_is_measured_and_stands_in_the_evidence(mobilenet: Built) -> None:
    for variant in mobilenet.report.variants:
        first, second = variant.replaced_forms
        assert (first.form, second.form) == ("level all", "level extended")
        assert "exceeds" in first.reason or "N001" in first.reason
        assert first.slowdown is not None
        assert second.slowdown is None
    costs = [
        finding.what for finding in mobilenet.report.findings if "times as long" in finding.what
    ]
    assert len(costs) == 2
    # Times depend on the machine, so the payload contains none.
    assert not [finding for finding in mobilenet.manifest.findings if "times" in finding.what]


def test_a_stated_level_is_not_lowered(bench: Workbench) -> None:
    profile = strict(variants=(VariantSpec(name="portable", optimization="extended"),))
    if not is_wrong_when_fused(bench):
        pytest.skip("this CPU's fused kernels round as the unfused ones do")
    with pytest.raises(AotcError) as caught:
        bench.build(rounding(), "stated", profile=profile)
    assert caught.value.code == "AOTC-N001"
    assert not (bench.folder / "stated.aotc").exists()


def is_wrong_when_fused(bench: Workbench) -> bool:
    """Whether plain ONNX Runtime differs from itself without fusions."""
    path = bench.save(rounding(), "asked")
    inputs = {"x": np.random.default_rng(1).standard_normal((64, WIDTH)).astype(np.float32)}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    fused = ort.InferenceSession(str(path), options, providers=[CPU])
    (answer,) = fused.run(["y"], inputs)
    return not np.allclose(answer, plain_answer(plain_session(path), inputs)["y"], atol=1e-5)


def test_tuning_knows_lower_levels(bench: Workbench) -> None:
    built = bench.build(rounding(), "tuned", profile=strict(), tune=True)
    assert built.report.tuning[0].passed


def wide() -> onnx.ModelProto:
    """Products of integers beyond 32 bits, which OpenVINO's CPU device computes in 32."""
    chance = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="first"),
        helper.make_node("Relu", ["m"], ["r"], name="positive"),
        helper.make_node("Cast", ["r"], ["i"], name="whole", to=TensorProto.INT64),
        helper.make_node("Mul", ["i", "large"], ["l"], name="wide"),
        helper.make_node("Cast", ["l"], ["f"], name="back", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "small"], ["s"], name="scaled"),
        helper.make_node("Add", ["s", "r"], ["a"], name="sum"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="second"),
        helper.make_node("Sigmoid", ["b"], ["y"], name="last"),
    ]
    return graph_of(
        nodes,
        {
            "w": chance.standard_normal((WIDTH, WIDTH)).astype(np.float32),
            "large": np.int64(5_000_000_000),
            "small": np.float32(1e-10),
        },
    )


def openvino(**fields: Any) -> Profile:
    parity = ParitySpec(random_shapes=0)
    return replace(load_profile("edge-openvino"), parity=parity, **fields)


@pytest.fixture(scope="module")
def openvino_build(bench: Workbench) -> Built:
    return bench.build(wide(), "wide", profile=openvino(), dims={"n": 3})


@pytest.mark.openvino
def test_the_node_to_blame_goes_to_the_next_provider(openvino_build: Built) -> None:
    (variant,) = openvino_build.manifest.variants
    placed = {node.op: node.provider for node in variant.placement.nodes}
    assert placed["Mul"] == CPU
    assert variant.partitioning is not None
    shares = {provider.provider: provider.nodes for provider in variant.partitioning.providers}
    assert shares == {OPENVINO: 8, CPU: 1}
    assert openvino_build.finding("AOTC-P013") == (
        f"variant portable: {OPENVINO} computes other results than the CPU (value y); "
        "left to the next provider: 1 node (wide)"
    )
    (refused,) = (refusal for refusal in variant.partitioning.refusals if refusal.node == "wide")
    assert refused.reason.startswith("computes other results than the CPU")


@pytest.mark.openvino
def test_the_rest_of_the_partition_is_right(openvino_build: Built, bench: Workbench) -> None:
    agrees(openvino_build, bench, "portable")
    (form,) = openvino_build.report.variants[0].replaced_forms
    assert (form.form, form.provider) == ("1 node (wide)", OPENVINO)
    assert "AOTC-N001" in form.reason
    assert form.slowdown is not None


@pytest.mark.openvino
def test_without_a_next_provider_the_first_refusal_stands(bench: Workbench) -> None:
    profile = openvino(providers=("openvino",), fallback=Fallback(policy="fail"))
    with pytest.raises(AotcError) as caught:
        bench.build(wide(), "nowhere", profile=profile, dims={"n": 3})
    assert caught.value.code == "AOTC-N001"
    assert [error.code for error in caught.value.also] == ["AOTC-P001"]
    assert not (bench.folder / "nowhere.aotc").exists()


def fused_alone() -> onnx.ModelProto:
    """A normalization in bfloat16: there is a kernel for all of it, and not for its parts."""
    ml_dtypes = pytest.importorskip("ml_dtypes")

    def constant(name: str, value: Any) -> onnx.TensorProto:
        return numpy_helper.from_array(np.asarray(value, dtype=ml_dtypes.bfloat16), name)

    graph = helper.make_graph(
        [
            helper.make_node("ReduceMean", ["x"], ["m"], axes=[-1]),
            helper.make_node("Sub", ["x", "m"], ["d"]),
            helper.make_node("Pow", ["d", "two"], ["p"]),
            helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1]),
            helper.make_node("Add", ["v", "least"], ["e"]),
            helper.make_node("Sqrt", ["e"], ["s"]),
            helper.make_node("Div", ["d", "s"], ["n"]),
            helper.make_node("Mul", ["n", "scale"], ["w"]),
            helper.make_node("Add", ["w", "bias"], ["y"]),
        ],
        "normalized",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["n", 4])],
        [
            constant("two", 2.0),
            constant("least", 1e-5),
            constant("scale", np.ones(4)),
            constant("bias", np.zeros(4)),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_runs_only_once_it_is_fused_is_built(bench: Workbench) -> None:
    source = fused_alone()
    with pytest.raises(Exception, match="Could not find an implementation"):
        plain_session(bench.save(source, "bare"))
    built = bench.build(source, "fused")
    assert built.finding("AOTC-O010") == (
        "reference: the reference is the model at level basic: below it ONNX Runtime lacks kernels"
    )
    with bench.load(built) as loaded:
        assert loaded.run(built.inputs({"n": 3}))["y"].shape == (3, 4)
