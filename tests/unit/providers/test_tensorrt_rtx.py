"""TensorRT for RTX: what it claims and refuses, and real engines, without a GPU."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import model_parts
import numpy as np
import onnx
import pytest
from model_parts import constant, info
from onnx import TensorProto, helper, numpy_helper
from third_party_models import MODELS, needs_models

from aotc.base.errors import AotcError
from aotc.graph.passes.base import run_passes
from aotc.graph.passes.on_import import NameNodes
from aotc.graph.view import every_node
from aotc.precision.half_conversion import HalfName, HalfPrecision
from aotc.providers.base import BACKENDS, ClaimRequest, Claims, CompileRequest, Payload
from aotc.providers.tensorrt_rtx import TensorRtRtxBackend
from aotc.spec.precision import Precision
from aotc.spec.providers import BY_ORT_NAME
from aotc.spec.target import Gpu, Target

node = partial(model_parts.node, name="{op}_{output}")

pytestmark = pytest.mark.rtx

BACKEND = TensorRtRtxBackend()
FLOAT, DOUBLE, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.DOUBLE,
    TensorProto.INT64,
    TensorProto.BOOL,
)
CAPABILITIES = ("8.6", "8.9", "12.0")
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
Shapes = Mapping[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]


def target(*capabilities: str) -> Target:
    return Target(schema="aotc.target/1", name="pc", compute_capabilities=capabilities)


def typed_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """A model with the types of all values, and with those of `W` and `double` that are read."""
    weights = [
        constant("W", np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)),
        constant("double", 2.5),
    ]
    read = {item for one in nodes for item in one.input}
    kept = [tensor for tensor in weights if tensor.name in read]
    model = model_parts.model_of(nodes, inputs, outputs, kept, opset=17, ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def claim(model: onnx.ModelProto, folder: Path) -> Claims:
    path = folder / "claimed.onnx"
    onnx.save(model, path)
    claims = BACKEND.claim(ClaimRequest(model=path, weights=folder, target=target()))
    names = {inner.name for inner in every_node(model)}
    assert claims.nodes | {item.node for item in claims.refusals} == names
    assert not claims.nodes & {item.node for item in claims.refusals}
    assert claims.how == "observed"
    return claims


def compile_here(
    model: onnx.ModelProto,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    shapes: Shapes | None = None,
    capabilities: Sequence[str] = CAPABILITIES,
    precision: Precision = "keep",
) -> tuple[Payload, bytes]:
    path = folder / "part.onnx"
    onnx.save(model, path)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    monkeypatch.chdir(work)
    payload = BACKEND.compile(
        CompileRequest(
            model=path,
            weights=folder,
            stem="part-0",
            target=target(*capabilities),
            precision=precision,
            shapes=shapes or {},
        )
    )
    assert sorted(item.name for item in work.iterdir()) == sorted(payload.files)
    return payload, (work / payload.files[0]).read_bytes()


def divided() -> onnx.ModelProto:
    """Two parts that TensorRT accepts, and between them an operator that it lacks."""
    return typed_model(
        [
            node("MatMul", "x W", "a"),
            node("Relu", "a", "b"),
            node("Unique", "b", "u"),
            node("ReduceSum", "u", "s", keepdims=0),
            node("Mul", "b s", "c"),
            node("MatMul", "c W", "d"),
        ],
        [info("x", ["batch", 8])],
        [info("d", ["batch", 8])],
    )


def matmul(name: str = "x", rows: int | str = "batch") -> onnx.ModelProto:
    return typed_model(
        [node("MatMul", f"{name} W", "a"), node("Relu", "a", "y")],
        [info(name, [rows, 8])],
        [info("y", [rows, 8])],
    )


BATCHES: Shapes = {"x": ((1, 8), (4, 8), (64, 8))}


def test_it_is_registered_and_builds_without_a_gpu() -> None:
    assert isinstance(BACKENDS.load("tensorrt_rtx")(), TensorRtRtxBackend)
    assert BY_ORT_NAME[BACKEND.ort_name].name == BACKEND.name
    capability = BACKEND.probe()
    assert capability.available
    assert capability.version
    assert capability.runs == (not capability.why_not)


def test_the_probe_loads_no_library_of_tensorrt() -> None:
    text = (
        "import sys; from aotc.providers.tensorrt_rtx import TensorRtRtxBackend as B;"
        "b = B(); b.probe(); b.fingerprint();"
        "sys.exit(any(name.startswith('tensorrt') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


def test_a_refused_operator_in_the_middle_is_named_with_the_parsers_words(tmp_path: Path) -> None:
    claims = claim(divided(), tmp_path)
    (refusal,) = claims.refusals
    assert refusal.node == "unique_u"
    assert "the parser refuses Unique (UNSUPPORTED_NODE, checkUnique)" in refusal.reason
    assert "\n" not in refusal.reason


def test_what_stands_behind_a_refused_node_is_asked_anew(tmp_path: Path) -> None:
    nodes = [*divided().graph.node, node("Unique", "d", "v"), node("Relu", "v", "w")]
    model = typed_model(nodes, [info("x", ["batch", 8])], [info("w", [None])])
    claims = claim(model, tmp_path)
    assert {item.node for item in claims.refusals} == {"unique_u", "unique_v"}


def branches(then: str, other: str) -> onnx.NodeProto:
    def subgraph(op: str, name: str) -> onnx.GraphProto:
        made = node(op, "x", f"{name}_out")
        return helper.make_graph([made], name, [], [info(f"{name}_out", [None, 8])])

    return node(
        "If", "c", "z", then_branch=subgraph(then, "one"), else_branch=subgraph(other, "two")
    )


def test_control_flow_is_claimed_with_its_bodies(tmp_path: Path) -> None:
    inputs = [info("x", ["batch", 8]), info("c", [], BOOL)]
    model = typed_model([branches("Relu", "Sigmoid")], inputs, [info("z", [None, 8])])
    assert claim(model, tmp_path).nodes == {"if_z", "relu_one_out", "sigmoid_two_out"}


def test_control_flow_with_a_refused_body_is_refused_whole(tmp_path: Path) -> None:
    inputs = [info("x", ["batch", 8]), info("c", [], BOOL)]
    graph = helper.make_graph(
        [node("Unique", "x", "flat"), node("Relu", "flat", "one_out")],
        "one",
        [],
        [info("one_out", [None])],
    )
    other = helper.make_graph(
        [node("Size", "x", "n"), node("Cast", "n", "f", to=FLOAT), node("Reshape", "f i", "r")],
        "two",
        [],
        [info("r", [None])],
        [numpy_helper.from_array(np.array([1]), "i")],
    )
    made = [
        node("If", "c", "z", then_branch=graph, else_branch=other),
        node("Relu", "x", "y"),
    ]
    model = typed_model(made, inputs, [info("z", [None]), info("y", ["batch", 8])])
    claims = claim(model, tmp_path)
    assert claims.nodes == {"relu_y"}
    reasons = {item.node: item.reason for item in claims.refusals}
    assert "Unique" in reasons["if_z"]
    assert reasons["relu_one_out"].startswith("an engine cannot stand inside of 'if_z'")


def test_float64_is_refused_where_tensorrt_would_compute_in_float32(tmp_path: Path) -> None:
    model = typed_model(
        [
            node("Cast", "x", "wide", to=DOUBLE),
            node("Add", "wide double", "sum"),
            node("Cast", "sum", "y", to=FLOAT),
            node("Relu", "y", "z"),
        ],
        [info("x", [2, 8])],
        [info("z", [2, 8])],
    )
    claims = claim(model, tmp_path)
    assert claims.nodes == {"relu_z"}
    assert all("of type double" in item.reason for item in claims.refusals)


def test_nothing_is_claimed_of_a_model_with_inputs_that_the_plugin_refuses(tmp_path: Path) -> None:
    model = typed_model(
        [node("Cast", "x", "a", to=FLOAT), node("Relu", "a", "y")],
        [info("x", [2, 8], DOUBLE)],
        [info("y", [2, 8])],
    )
    claims = claim(model, tmp_path)
    assert not claims.nodes
    assert all("'x', which is of type double" in item.reason for item in claims.refusals)


def test_nothing_is_claimed_of_a_model_with_such_a_body(tmp_path: Path) -> None:
    def subgraph(name: str) -> onnx.GraphProto:
        made = node("Cast", "x", f"{name}_out", to=DOUBLE)
        return helper.make_graph([made], name, [], [info(f"{name}_out", [2, 8], DOUBLE)])

    model = typed_model(
        [
            node("If", "c", "z", then_branch=subgraph("one"), else_branch=subgraph("two")),
            node("Relu", "x", "y"),
            node("Cast", "z", "w", to=FLOAT),
        ],
        [info("x", [2, 8]), info("c", [], BOOL)],
        [info("y", [2, 8]), info("w", [2, 8])],
    )
    claims = claim(model, tmp_path)
    assert not claims.nodes
    assert all("_out', which is of type double" in item.reason for item in claims.refusals)


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_networks_are_claimed_entirely(path: Path, tmp_path: Path) -> None:
    model = onnx.load(path)
    run_passes(model, [NameNodes()])
    claims = claim(onnx.shape_inference.infer_shapes(model), tmp_path)
    assert not claims.refusals
    assert len(claims.nodes) == len(model.graph.node)


@needs_models
@pytest.mark.parametrize(
    "name", ["basic_pitch_nmp", "magika_v3_3", "mobilenet_qdq_int8", "tiny_gpt2_past_genai"]
)
def test_real_models_are_claimed_but_for_what_has_a_reason(name: str, tmp_path: Path) -> None:
    model = onnx.load(MODELS / f"{name}.onnx")
    run_passes(model, [NameNodes()])
    claims = claim(onnx.shape_inference.infer_shapes(model), tmp_path)
    assert claims.nodes
    assert all(item.reason for item in claims.refusals)
    whole = {"basic_pitch_nmp", "magika_v3_3"}
    assert bool(claims.refusals) == (name not in whole)


def test_a_network_becomes_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = [item for item in LIGHT if item.stem == "light_squeezenet"]
    payload, engine = compile_here(onnx.load(path), tmp_path, monkeypatch)
    assert payload.files == ("part-0.engine",)
    assert payload.attributes["ep_cache_context"] == "part-0.engine"
    assert payload.attributes["embed_mode"] == payload.attributes["main_context"] == 0
    assert payload.attributes["hardware_architecture"] == "8.6,8.9,12.0"
    assert len(engine) > 1_000_000
    # The plugin asks whether a GPU can run it by these bytes.
    assert bytes.fromhex(payload.compatibility) == engine[:64]
    assert str(tmp_path).encode() not in engine


def test_equal_requests_give_equal_bytes_in_fresh_processes(tmp_path: Path) -> None:
    onnx.save(matmul(), tmp_path / "part.onnx")
    text = (
        "import sys; from pathlib import Path;"
        "from aotc.providers.base import CompileRequest;"
        "from aotc.providers.tensorrt_rtx import TensorRtRtxBackend;"
        "from aotc.spec.target import Target;"
        "host = Target(schema='aotc.target/1', name='pc',"
        " compute_capabilities=('8.9', '8.6') if sys.argv[2] == '0' else ('8.6', '8.9', '8.9'));"
        "part = Path(sys.argv[1]) / 'part.onnx';"
        "TensorRtRtxBackend().compile(CompileRequest(model=part, weights=part.parent,"
        " stem='part', target=host, shapes={'x': ((1, 8), (4, 8), (64, 8))}))"
    )
    digests = set()
    for run in range(2):
        folder = tmp_path / f"run{run}"
        folder.mkdir()
        command = [sys.executable, "-c", text, str(tmp_path), str(run)]
        subprocess.run(command, check=True, cwd=folder)
        digests.add(hashlib.sha256((folder / "part.engine").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_precision_and_capabilities_are_in_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine(precision: str, *capabilities: str) -> bytes:
        folder = tmp_path / f"{precision}{len(capabilities)}"
        folder.mkdir()
        args = (matmul(), folder, monkeypatch, BATCHES, capabilities, precision)
        return compile_here(*args)[1]

    kept = engine("keep", "8.6", "8.9")
    assert engine("tf32", "8.6", "8.9") != kept
    assert engine("keep", "8.9")[:64] != kept[:64]


def test_dims_that_nobody_states_get_a_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = typed_model(
        [node("ReduceSum", "u", "s", keepdims=0), node("Mul", "x s", "y")],
        [info("u", [None]), info("x", ["batch", 8])],
        [info("y", ["batch", 8])],
    )
    _, engine = compile_here(model, tmp_path, monkeypatch, BATCHES)
    assert engine


def test_weights_are_read_from_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engine(scale: float) -> bytes:
        folder = tmp_path / str(scale)
        (folder / "weights").mkdir(parents=True)
        model = matmul()
        array = numpy_helper.to_array(model.graph.initializer[0]) * np.float32(scale)
        (folder / "weights/weights.bin").write_bytes(array.tobytes())
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", "weights.bin"), ("length", str(array.nbytes))):
            tensor.external_data.add(key=key, value=text)
        (folder / "part.onnx").write_bytes(model.SerializeToString())
        request = ClaimRequest(
            model=folder / "part.onnx", weights=folder / "weights", target=target()
        )
        assert len(BACKEND.claim(request).nodes) == 2
        monkeypatch.chdir(folder)
        BACKEND.compile(
            CompileRequest(
                model=folder / "part.onnx",
                weights=folder / "weights",
                stem="part",
                target=target("8.9"),
                shapes=BATCHES,
            )
        )
        return (folder / "part.engine").read_bytes()

    assert engine(1.0) != engine(2.0)


def test_the_partitions_of_a_divided_model_compile_and_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = typed_model(
        [node("MatMul", "x W", "a"), node("Relu", "a", "b")],
        [info("x", ["batch", 8])],
        [info("b", ["batch", 8])],
    )
    tail = typed_model(
        [
            node("ReduceSum", "u", "s", keepdims=0),
            node("Mul", "b s", "c"),
            node("MatMul", "c W", "d"),
        ],
        [info("u", [None]), info("b", ["batch", 8])],
        [info("d", ["batch", 8])],
    )
    payloads = []
    for index, (part, shapes) in enumerate(((head, BATCHES), (tail, {"b": BATCHES["x"]}))):
        folder = tmp_path / str(index)
        folder.mkdir()
        payloads.append(compile_here(part, folder, monkeypatch, shapes)[0])
    assert payloads[0].compatibility != payloads[1].compatibility
    joined = BACKEND.join(payloads, tmp_path, "tensorrt_rtx")
    assert {item.compatibility for item in joined} == {payloads[0].compatibility}
    assert [item.files for item in joined] == [item.files for item in payloads]


def test_unknown_compute_capabilities_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AotcError) as caught:
        compile_here(matmul(), tmp_path, monkeypatch, BATCHES, ("8.9", "9.0"))
    assert caught.value.code == "AOTC-P010"
    assert "9.0" in caught.value.what
    assert "8.9" in caught.value.expected.split(", ")


def test_no_compute_capability_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AotcError) as caught:
        compile_here(matmul(), tmp_path, monkeypatch, BATCHES, ())
    assert caught.value.code == "AOTC-P010"


def test_a_shape_that_comes_from_outside_is_refused_with_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = typed_model(
        [node("Relu", "x", "a"), node("Reshape", "a s", "y")],
        [info("x", [2, 8]), info("s", [2], INT64)],
        [info("y", [None, None])],
    )
    with pytest.raises(AotcError) as caught:
        compile_here(model, tmp_path, monkeypatch)
    assert caught.value.code == "AOTC-P005"
    assert "'reshape_y'" in caught.value.found
    assert "relu_a" not in caught.value.found


def test_shapes_that_fit_no_input_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong: Shapes = {"x": ((1, 7), (4, 7), (64, 7))}
    with pytest.raises(AotcError) as caught:
        compile_here(matmul(), tmp_path, monkeypatch, wrong)
    assert caught.value.code == "AOTC-P005"
    assert caught.value.found


def test_a_type_that_tensorrt_changes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = typed_model(
        [node("Relu", "x", "y")], [info("x", [2, 8], DOUBLE)], [info("y", [2, 8], DOUBLE)]
    )
    with pytest.raises(AotcError) as caught:
        compile_here(model, tmp_path, monkeypatch)
    assert caught.value.code == "AOTC-P005"
    assert "'relu_y'" in caught.value.found


def test_an_operator_that_the_parser_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AotcError) as caught:
        compile_here(divided(), tmp_path, monkeypatch, BATCHES)
    assert caught.value.code == "AOTC-P005"
    assert "'unique_u'" in caught.value.found


def test_a_host_needs_the_plugin_and_the_gpu() -> None:
    needs = BACKEND.needs(target("12.0", "8.9"))
    assert needs.compute_capabilities == ("8.9", "12.0")
    assert needs.cuda_major == 13
    (plugin,) = needs.plugins
    assert plugin.provider == BACKEND.ort_name
    assert plugin.name == "onnxruntime-ep-nv-tensorrt-rtx-cu13"
    if BACKEND.probe().version.startswith("1.7.1."):
        assert plugin.version == "0.5.0"
    gpu = Gpu(name="GeForce", compute_capability="8.6")
    described = Target(schema="aotc.target/1", name="pc", gpus=(gpu, gpu))
    assert BACKEND.needs(described).compute_capabilities == ("8.6",)


def test_the_fingerprint_holds_version_and_digest() -> None:
    text = BACKEND.fingerprint()
    assert text == TensorRtRtxBackend().fingerprint()
    assert BACKEND.probe().version in text


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_engines_compute_in_the_types_of_a_half_graph(
    to: HalfName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks are strongly typed: the parser takes the graph as it is, casts included."""
    model = matmul()
    rewrite = HalfPrecision(to=to, ep=BACKEND.ort_name, read=numpy_helper.to_array)
    run_passes(model, (rewrite,))
    assert claim(model, tmp_path).refusals == ()
    shapes = {"x": ((1, 8), (2, 8), (4, 8))}
    _, engine = compile_here(model, tmp_path, monkeypatch, shapes, precision=to)
    (full, _), (tf32, _) = (
        (compile_here(matmul(), tmp_path, monkeypatch, shapes, precision=one)[1], one)
        for one in ("keep", "tf32")
    )
    assert engine not in (full, tf32)


def test_other_precisions_are_refused() -> None:
    assert BACKEND.session("all", "tf32").provider_options == {}
    with pytest.raises(AotcError) as caught:
        BACKEND.session("all", "int8")
    assert caught.value.code == "AOTC-N008"
