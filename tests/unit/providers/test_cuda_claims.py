"""Predictions for CUDA: real networks, control flow, functions, unknown types."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import model_parts
import numpy as np
import onnx
import pytest
from model_parts import info
from onnx import TensorProto, helper, numpy_helper
from third_party_models import MODELS, needs_models

from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.view import every_node
from aotc.host.nvidia import missing_gpu
from aotc.providers.base import BACKENDS, ClaimRequest, Claims, SessionUse
from aotc.providers.cuda import CudaBackend, claim_of, refusal_of_provider
from aotc.spec.precision import Precision
from aotc.spec.providers import CudaOptions, Layout, option_problem
from aotc.spec.target import Target

# ONNX Runtime's own domain, and one of functions.
model_of = partial(model_parts.model_of, opset=20, domains=("own", "com.microsoft"))

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64
TARGET = Target(schema="aotc.target/1", name="any", os="linux", architecture="x86_64")
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


REAL = [*sorted(LIGHT.glob("*.onnx")), *sorted(MODELS.glob("*.onnx"))]


def load_named(path: Path) -> onnx.ModelProto:
    model = onnx.load(path, load_external_data=False)
    run_passes(model, [NameNodes()])
    return model


def alone(node: onnx.NodeProto, opset: int, kind: int = FLOAT) -> Claims:
    """Claims on a single node whose inputs all have one type."""
    node.name = "n"
    inputs = [info(name, None, kind) for name in dict.fromkeys(node.input) if name]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    return claim_of(model_of([node], inputs, outputs, opset=opset))


def reasons(claims: Claims) -> dict[str, str]:
    return {refusal.node: refusal.reason for refusal in claims.refusals}


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_every_node_of_a_real_model_is_claimed_or_refused(path: Path) -> None:
    model = load_named(path)
    claims = claim_of(model)
    names = {node.name for node in every_node(model)}
    assert names >= claims.nodes | reasons(claims).keys()
    assert not claims.nodes & reasons(claims).keys()
    functions = {node.name for function in model.functions for node in function.node}
    assert names - functions == claims.nodes | reasons(claims).keys()
    assert claims.how == "predicted"
    assert all(reasons(claims).values())


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_the_light_networks_run_whole(path: Path) -> None:
    assert claim_of(load_named(path)).refusals == ()


@needs_models
def test_third_party_models() -> None:
    quantized = claim_of(load_named(MODELS / "mobilenet_qdq_int8.onnx"))
    assert set(reasons(quantized).values()) == {
        "CUDA has no kernel of DequantizeLinear-10 for int32 as T (it has: int8, uint8)"
    }
    trees = claim_of(load_named(MODELS / "xgboost_onnxmltools.onnx"))
    assert trees.nodes == frozenset()
    voice = load_named(MODELS / "silero_vad_v6.onnx")
    subgraphs = {node.name for node in every_node(voice)} - {node.name for node in voice.graph.node}
    assert subgraphs and subgraphs <= claim_of(voice).nodes
    streamed = claim_of(load_named(MODELS / "gtcrn_stream.onnx"))
    assert any("compute shapes, which ONNX Runtime prefers" in note for note in streamed.notes)


def test_a_claim_reads_the_file_alone(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    model = model_of(nodes, [info("x", [1, 64])], [info("y", [1, 64])], initializers=[weight])
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    request = ClaimRequest(model=path, weights=tmp_path, target=TARGET)
    backend = BACKENDS.load("cuda")()
    assert backend.claim(request).nodes == {"product"}


def test_newer_versions_and_other_types_are_refused() -> None:
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    assert alone(pool, 21, HALF).refusals == ()
    assert "MaxPool-22" in reasons(alone(pool, 22, HALF))["n"]
    rectify = helper.make_node("Relu", ["x"], ["y"])
    assert reasons(alone(rectify, 22, TensorProto.INT32)) == {
        "n": "CUDA has no kernel of Relu-14 for int32 as T "
        "(it has: bfloat16, double, float, float16)"
    }
    custom = helper.make_node("Fancy", ["x"], ["y"], domain="own")
    assert reasons(alone(custom, 20)) == {"n": "CUDA has no kernel of own::Fancy"}


def test_types_follow_through_operators_of_onnx_runtime() -> None:
    """Shape inference knows none of them; their signatures in the table do."""
    nodes = [
        helper.make_node("FastGelu", ["x"], ["a"], name="gelu", domain="com.microsoft"),
        helper.make_node("Elu", ["a"], ["y"], name="elu"),
    ]
    for kind, refused in ((FLOAT, set()), (TensorProto.BFLOAT16, {"elu"})):
        inputs = [info("x", [1, 2, 4, 4], kind)]
        claims = claim_of(model_of(nodes, inputs, [helper.make_empty_tensor_value_info("y")]))
        assert reasons(claims).keys() == refused
        assert claims.notes == ()


def test_unknown_types_refuse_nothing_and_are_told() -> None:
    nodes = [
        helper.make_node("Fancy", ["x"], ["a"], name="fancy", domain="own"),
        helper.make_node("Exp", ["a"], ["y"], name="exp"),
    ]
    output = helper.make_empty_tensor_value_info("y")
    claims = claim_of(model_of(nodes, [info("x", [1])], [output]))
    assert claims.nodes == {"exp"}
    assert claims.notes == ("types are unknown at exp: assumed to have a kernel",)


def test_subgraphs_of_control_flow() -> None:
    then = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["t"], name="exp")], "then", [], [info("t", [2, 2])]
    )
    other = helper.make_graph(
        [helper.make_node("Celu", ["x"], ["e"], name="celu")], "else", [], [info("e", [2, 2])]
    )
    node = helper.make_node("If", ["c"], ["y"], name="if", then_branch=then, else_branch=other)
    inputs = [info("x", [2, 2]), info("c", [], TensorProto.BOOL)]
    claims = claim_of(model_of([node], inputs, [info("y", [2, 2])]))
    assert claims.nodes == {"if", "exp"}
    assert reasons(claims) == {"celu": "CUDA has no kernel of Celu"}


def test_functions_are_what_is_in_them() -> None:
    def call(inner: str) -> Claims:
        nodes = [helper.make_node(inner, ["a"], ["b"], name="inner")]
        function = helper.make_function(
            "own", "Wrapped", ["a"], ["b"], nodes, [helper.make_opsetid("", 20)]
        )
        outer = [helper.make_node("Wrapped", ["x"], ["y"], name="call", domain="own")]
        ends = [info("x", [2])], [info("y", [2])]
        return claim_of(model_of(outer, *ends, functions=(function,)))

    assert call("Exp").nodes == {"call"}
    assert reasons(call("Celu")) == {"call": "within Wrapped: CUDA has no kernel of Celu"}


def test_operators_that_onnx_defines_by_others() -> None:
    """Neither provider has a kernel of them, so that ONNX Runtime expands them."""
    assert alone(helper.make_node("Mish", ["x"], ["y"]), 22).nodes == {"n"}
    assert alone(helper.make_node("Swish", ["x"], ["y"]), 24).nodes == {"n"}
    # The CPU has a kernel, and takes it as it is.
    assert reasons(alone(helper.make_node("Celu", ["x"], ["y"]), 20))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (helper.make_node("LSTM", [*"xwrb", "", *"ihp"], ["y"]), "CUDA has no LSTM with peepholes"),
        (helper.make_node("LSTM", ["x", "w", "r"], ["y"], clip=1.0), "CUDA has no LSTM with clip"),
        (
            helper.make_node("RNN", ["x", "w", "r"], ["y"], activations=["Relu"]),
            "CUDA has no RNN with activations relu",
        ),
        (
            helper.make_node("GRU", ["x", "w", "r"], ["y"]),
            "CUDA has no GRU without linear_before_reset",
        ),
        (
            helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=[0, 0, 1, 1]),
            "CUDA has no ConvTranspose with asymmetric pads",
        ),
        (
            helper.make_node("ConvTranspose", ["x", "w"], ["y"], auto_pad="SAME_UPPER"),
            "CUDA has no ConvTranspose with auto_pad SAME_UPPER",
        ),
        (
            helper.make_node("ArgMax", ["x"], ["y"], select_last_index=1),
            "CUDA has no ArgMax with select_last_index",
        ),
    ],
)  # fmt: skip
def test_what_the_provider_leaves_although_it_has_a_kernel(
    node: onnx.NodeProto, reason: str
) -> None:
    assert refusal_of_provider(node) == reason
    assert reasons(alone(node, 20)) == {"n": reason}


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("LSTM", ["x", "w", "r"], ["y"], activations=["Sigmoid", "Tanh", "Tanh"]),
        helper.make_node("GRU", ["x", "w", "r"], ["y"], linear_before_reset=1),
        helper.make_node("ConvTranspose", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("ArgMax", ["x"], ["y"]),
    ],
)
def test_what_the_provider_runs(node: onnx.NodeProto) -> None:
    assert refusal_of_provider(node) == ""


def test_shape_nodes_are_noted_and_claimed() -> None:
    weights = [
        numpy_helper.from_array(np.array(item), name) for name, item in (("0", 0), ("-1", [-1]))
    ]
    weights.append(numpy_helper.from_array(np.array([0]), "axis"))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], name="shape"),
        helper.make_node("Gather", ["s", "0"], ["b"], name="gather"),
        helper.make_node("Unsqueeze", ["b", "axis"], ["u"], name="unsqueeze"),
        helper.make_node("Concat", ["u", "-1"], ["c"], name="concat", axis=0),
        helper.make_node("Reshape", ["x", "c"], ["y"], name="reshape"),
    ]
    ends = [info("x", ["n", 2, 2])], [info("y", ["n", 4])]
    claims = claim_of(model_of(nodes, *ends, initializers=weights))
    assert claims.nodes == {"shape", "gather", "unsqueeze", "concat", "reshape"}
    assert claims.notes == (
        "3 of these nodes compute shapes, which ONNX Runtime prefers on the CPU: "
        "gather, unsqueeze, concat",
    )


def test_the_session_says_how_exact_it_is() -> None:
    backend = CudaBackend()
    exact = backend.session("all")
    assert exact.optimization == "all"
    assert exact.provider_options["CUDAExecutionProvider"]["use_tf32"] == "0"


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_tensor_cores_are_used_unless_float32_is_kept(precision: Precision) -> None:
    """Without `use_tf32`, cuDNN takes no tensor cores in half precision either."""
    (options,) = CudaBackend().session("basic", precision).provider_options.values()
    assert options["use_tf32"] == "1"


@pytest.mark.parametrize(
    ("layout", "convolutions", "channels_last"),
    [("auto", True, True), ("auto", False, False), ("nhwc", False, True), ("nchw", True, False)],
)
def test_convolutions_get_channels_last(
    layout: Layout, convolutions: bool, channels_last: bool
) -> None:
    use = SessionUse(cuda=CudaOptions(layout=layout), operators=("Conv",) * (4 * convolutions))
    (options,) = CudaBackend().session("all", "tf32", use).provider_options.values()
    assert options["cudnn_conv_algo_search"] == "HEURISTIC"
    assert ("prefer_nhwc" in options, "fuse_conv_bias" in options) == (channels_last,) * 2


@pytest.mark.parametrize("precision", CudaBackend.precisions)
def test_convolutions_are_searched_only_where_the_profile_says_so(precision: Precision) -> None:
    use = SessionUse(cuda=CudaOptions(conv_algo_search="exhaustive"), operators=("Conv",) * 4)
    (options,) = CudaBackend().session("all", precision, use).provider_options.values()
    assert options["cudnn_conv_algo_search"] == "EXHAUSTIVE"


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_attention_is_kept_from_cudnn_only_where_the_profile_says_so(precision: Precision) -> None:
    use = SessionUse(cuda=CudaOptions(attention="without-cudnn"))
    (options,) = CudaBackend().session("all", precision, use).provider_options.values()
    assert int(options["sdpa_kernel"]) & 8 == 0
    assert int(options["sdpa_kernel"]) & 1
    (options,) = CudaBackend().session("all", precision).provider_options.values()
    assert "sdpa_kernel" not in options


def test_probe_and_fingerprint_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CudaBackend()
    found = backend.probe()
    assert found.available and found.ort_name == "CUDAExecutionProvider"
    assert found.runs == (found.why_not == "") == (found.fix == "")
    # What a machine lacks comes before what could be installed.
    assert found.why_not.startswith(missing_gpu())
    try:
        installed = version("onnxruntime-gpu")
    except PackageNotFoundError:
        monkeypatch.setattr("aotc.providers.cuda.missing_gpu", lambda: "")
        with_gpu = backend.probe()
        assert with_gpu.why_not == "onnxruntime-gpu is not installed"
        assert with_gpu.fix.startswith("pip uninstall onnxruntime, whose files it would share;")
        assert "[gpu]" in with_gpu.fix
        assert backend.fingerprint() == "kernels 1.31.1"
    else:
        assert backend.fingerprint() == f"onnxruntime-gpu {installed}; kernels 1.31.1"


def test_needs_cuda_and_its_driver() -> None:
    needs = CudaBackend().needs(TARGET)
    assert (needs.cuda_major, needs.nvidia_driver_min) == (13, "580.65.06")
    assert needs.compute_capabilities == ()


def test_weights_are_mapped_unless_they_pay_for_page_locked_memory(tmp_path: Path) -> None:
    cuda, options = CudaBackend(), {"use_tf32": "1"}
    readers = "external_data_loader_reading_threads"
    (tmp_path / "weights.bin").write_bytes(b"w" * 100)
    assert cuda.with_weights(options, tmp_path) == {**options, readers: "0"}
    assert cuda.with_weights(options, tmp_path / "none") == {**options, readers: "0"}
    # Of many files none is large; sparse, they take no room.
    for number in range(2):
        with (tmp_path / f"more{number}.bin").open("wb") as file:
            file.truncate(1 << 29)
    assert cuda.with_weights(options, tmp_path) == options
    assert options == {"use_tf32": "1"}


def test_how_weights_are_read_is_not_for_artifacts() -> None:
    problem = option_problem(
        CudaBackend.ort_name, "external_data_loader_reading_threads", "0", plugin=False
    )
    assert problem
