"""Classic TensorRT without NVIDIA's library: the refusal, the options, what a host must have."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from aotc.base.errors import AotcError
from aotc.base.records import replace
from aotc.host.probe import probe
from aotc.providers.base import BACKENDS, CompileRequest
from aotc.providers.named_backends import backends_of
from aotc.providers.tensorrt import TensorRtBackend, cache_options, profile_options
from aotc.spec.profile_files import load_profile
from aotc.spec.providers import BY_NAME, RUNTIME_WHEELS, option_problem
from aotc.spec.target import Target
from aotc.trust.checks.providers import ExecutionProviders

BACKEND = TensorRtBackend()
TENSORRT = "TensorrtExecutionProvider"
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
TARGET = Target(schema="aotc.target/1", name="server")

without_library = pytest.mark.skipif(
    BACKEND.probe().available, reason="NVIDIA's TensorRT library is here"
)


def graph_of(*inputs: onnx.ValueInfoProto, name: str = "sum") -> onnx.GraphProto:
    """All inputs are added up."""
    node = helper.make_node("Sum", [value.name for value in inputs], ["y"], name)
    return helper.make_graph([node], "g", list(inputs), [helper.make_empty_tensor_value_info("y")])


def info(name: str, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, FLOAT, dims)


def request(**shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> CompileRequest:
    return CompileRequest(
        model=Path("part.onnx"), weights=Path(), stem="part", target=TARGET, shapes=shapes
    )


# The refusal.


@without_library
def test_without_the_library_it_is_not_available() -> None:
    found = BACKEND.probe()
    assert (found.available, found.runs) == (False, False)
    assert "libnvinfer.so.10" in found.reason
    assert 'pip install "tensorrt-cu13-libs>=10,<11"' in found.fix
    assert "server-cuda" in found.fix


@without_library
def test_a_profile_with_it_is_refused_with_that_fix() -> None:
    profile = load_profile("server-tensorrt")
    assert profile.providers == ("tensorrt", "cuda", "cpu")
    with pytest.raises(AotcError) as caught:
        backends_of(profile.providers, profile)
    error = caught.value
    assert (error.code, error.exit_status, error.where) == ("AOTC-P004", 3, "providers")
    assert "libnvinfer.so.10" in error.found
    assert "tensorrt-cu13-libs" in error.fix


@without_library
def test_it_has_no_fingerprint_without_the_library() -> None:
    with pytest.raises(AotcError) as caught:
        BACKEND.fingerprint()
    assert caught.value.code == "AOTC-I019"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder like that of NVIDIA's distribution, its library an empty file."""
    package = tmp_path / "tensorrt_libs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "libnvinfer.so.10").touch()
    (tmp_path / "tensorrt_cu13_libs-10.14.1.48.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    probe.cache_clear()
    yield package
    monkeypatch.undo()
    importlib.invalidate_caches()
    probe.cache_clear()


def test_the_library_alone_is_not_enough(installed: Path) -> None:
    """It is only looked for: an empty file would not load."""
    found = BACKEND.probe()
    wheel = next(wheel.distribution for wheel in RUNTIME_WHEELS if TENSORRT in wheel.providers)
    assert not found.available
    assert wheel in found.reason or "no NVIDIA GPU" in found.reason
    (installed / "libnvinfer.so.10").rename(installed / "libnvinfer.so.11")
    assert "libnvinfer.so.10" in BACKEND.probe().reason


def test_the_library_is_no_provider_by_itself(installed: Path) -> None:
    """A host lists it with its version; only ONNX Runtime's wheel has the provider."""
    host = probe(gpus=False)
    (found,) = (plugin for plugin in host.plugins if plugin.provider == TENSORRT)
    assert (found.name, found.version) == ("tensorrt-cu13-libs", "10.14.1.48")
    built_in = {
        name for wheel in RUNTIME_WHEELS for name in wheel.providers
        if wheel.distribution == "onnxruntime-gpu"
    }  # fmt: skip
    assert host.providers is not None
    assert host.providers.count(TENSORRT) == (1 if built_in <= set(host.providers) else 0)


def test_a_host_without_the_library_is_refused_before_a_session() -> None:
    """Its onnxruntime-gpu names the provider; an engine also wants TensorRT, in its version."""
    needs = BACKEND.needs(TARGET)
    (library,) = needs.plugins
    needs = replace(needs, plugins=(replace(library, version="10.14.1.48"),))
    host = replace(
        TARGET,
        onnxruntime="1.31.1",
        providers=(TENSORRT, "CUDAExecutionProvider", "CPUExecutionProvider"),
        probed=True,
    )
    (refusal,) = ExecutionProviders().run(needs, host)
    assert refusal.code == "AOTC-C006"
    assert getattr(refusal, "fix", "") == 'pip install "tensorrt-cu13-libs==10.14.1.48"'
    assert (needs.cuda_major, needs.nvidia_driver_min) == (13, "580.65.06")


# The options.


def test_the_profile_of_an_engine_is_made_of_our_shapes() -> None:
    graph = graph_of(info("tokens", "batch", "length"), info("fixed", 1, 8), info("x", "batch", 8))
    options = profile_options(
        graph,
        request(
            tokens=((1, 8), (4, 64), (8, 512)),
            fixed=((1, 8), (1, 8), (1, 8)),
            x=((1, 8), (4, 8), (8, 8)),
        ),
    )
    assert options == {
        "trt_profile_min_shapes": "tokens:1x8,x:1x8",
        "trt_profile_opt_shapes": "tokens:4x64,x:4x8",
        "trt_profile_max_shapes": "tokens:8x512,x:8x8",
    }


def test_fixed_sizes_need_no_profile() -> None:
    assert profile_options(graph_of(info("x", 1, 8)), request()) == {}


@pytest.mark.parametrize("name", ["x", "x:0", "a,b"])
def test_an_input_that_the_option_cannot_state(name: str) -> None:
    """The message names the nodes that read it, so that they are left to another provider."""
    shapes = {} if name == "x" else {name: ((1, 8), (1, 8), (2, 8))}
    with pytest.raises(AotcError) as caught:
        profile_options(graph_of(info(name, "batch", 8)), request(**shapes))
    error = caught.value
    assert (error.code, error.where) == ("AOTC-P005", "part")
    assert "nodes 'sum'" in error.found


def test_all_that_it_writes_stays_in_the_working_directory() -> None:
    options = cache_options("part")
    places = {key: value for key, value in options.items() if key.endswith(("_path", "_prefix"))}
    assert set(places) == {
        "trt_engine_cache_path",
        "trt_engine_cache_prefix",
        "trt_ep_context_file_path",
        "trt_timing_cache_path",
    }
    for value in places.values():
        assert not Path(value).is_absolute()
        assert ".." not in Path(value).parts


@pytest.mark.parametrize(
    ("precision", "options"),
    [
        ("keep", {}),
        ("tf32", {}),
        ("float16", {TENSORRT: {"trt_fp16_enable": "1"}}),
        ("bfloat16", {TENSORRT: {"trt_bf16_enable": "1"}}),
    ],
)
def test_a_precision_is_an_option(precision: str, options: dict[str, dict[str, str]]) -> None:
    session = BACKEND.session("all", precision)  # type: ignore[arg-type]
    assert dict(session.provider_options) == options
    for key, value in options.get(TENSORRT, {}).items():
        assert option_problem(TENSORRT, key, value, plugin=False) == ""


def test_an_artifact_may_not_hold_options_that_name_files() -> None:
    for key, value in {**cache_options("part"), "trt_extra_plugin_lib_paths": "evil.so"}.items():
        assert "must not have" in option_problem(TENSORRT, key, value, plugin=False)


def test_operators_of_other_providers_are_excluded() -> None:
    stated = BACKEND.options_excluding({"trt_fp16_enable": "1"}, {"Unique", "NonZero"})
    assert stated == {"trt_fp16_enable": "1", "trt_op_types_to_exclude": "NonZero,Unique"}
    key = "trt_op_types_to_exclude"
    assert option_problem(TENSORRT, key, stated[key], plugin=False) == ""


@without_library
def test_a_failure_of_the_provider_is_told_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime here lacks the provider or its library: nothing else takes the partition."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    graph = graph_of(info("x", 1, 8))
    graph.output[0].type.CopyFrom(info("y", 1, 8).type)
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "part.onnx")
    with pytest.raises(AotcError) as caught:
        BACKEND.compile(replace(request(), model=Path("part.onnx")))
    assert (caught.value.code, caught.value.where) == ("AOTC-P005", "part")
    assert caught.value.found
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["part.onnx"]


def test_an_engine_is_for_the_gpu_of_this_host() -> None:
    target = replace(TARGET, compute_capabilities=("5.0",))
    with pytest.raises(AotcError) as caught:
        BACKEND.compile(replace(request(), target=target))
    assert (caught.value.code, caught.value.found) == ("AOTC-P010", "5.0")


# What it is expected to take.


def test_claims_are_predicted_by_rule() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Unique", ["a"], ["b"], "unique"),
        helper.make_node("FastGelu", ["a"], ["c"], "gelu", domain="com.microsoft"),
        helper.make_node("Cast", ["a"], ["d"], "widen", to=DOUBLE),
    ]
    wide = helper.make_tensor_value_info("d", DOUBLE, [1, 8])
    graph = helper.make_graph(nodes, "g", [info("x", 1, 8)], [info("b", "n"), wide])
    claims = BACKEND.predict(helper.make_model(graph))
    assert (claims.how, claims.nodes) == ("predicted", {"relu"})
    reasons = {refusal.node: refusal.reason for refusal in claims.refusals}
    assert reasons == {
        "unique": "TensorRT's parser has no importer of Unique",
        "gelu": "TensorRT's parser knows no operators of com.microsoft",
        "widen": "TensorRT has no float64: 'd'",
    }


def test_its_row_and_its_file_agree() -> None:
    row = BY_NAME["tensorrt"]
    assert isinstance(BACKENDS.load("tensorrt")(), TensorRtBackend)
    assert row.plugin is not None and not row.plugin.registered
    assert BACKEND.library() is None
