"""Provider options of an artifact: all that backends write, and none that holds a path."""

from __future__ import annotations

import itertools

import pytest

from aotc.base.records import replace
from aotc.providers.base import ANY_USE, BACKENDS, Backend, SessionUse
from aotc.providers.openvino import OpenVinoBackend
from aotc.spec.codec import ParseError, decode
from aotc.spec.profile import PluginSpec
from aotc.spec.profile_files import load_profile, stated_profile
from aotc.spec.providers import (
    BY_NAME,
    BY_ORT_NAME,
    ArenaOptions,
    CudaOptions,
    option_problem,
)

LIMITED = CudaOptions(memory=ArenaOptions(limit_bytes=1 << 30, growth="exact"))
WITH_CONVOLUTIONS = SessionUse(operators=("Conv",) * 4, cuda=LIMITED)
# What only captured graphs and measurements on a GPU ask for.
NOT_BY_DEFAULT = {"enable_cuda_graph", "sdpa_kernel"}
OPENVINO = "OpenVINOExecutionProvider"


def written_options(backend: Backend) -> list[dict[str, str]]:
    """Provider options of a backend for every precision and use, with and without what is added."""
    found = []
    for precision, use in itertools.product(backend.precisions, (ANY_USE, WITH_CONVOLUTIONS)):
        session = backend.session("all", precision, use)
        options = dict(session.provider_options.get(backend.ort_name, {}))
        found += [
            options,
            backend.with_threads(options, 3),
            backend.options_excluding(options, ["Add", "Softmax"]),
            backend.with_threads(backend.options_excluding(options, ["Add"]), 1),
        ]
    return found


def test_an_artifact_may_hold_what_backends_write_and_nothing_else() -> None:
    assert {BACKENDS.load(name)().ort_name for name in BACKENDS.names()} == set(BY_ORT_NAME)
    for name in BACKENDS.names():
        backend: Backend = BACKENDS.load(name)()
        # A stage adds it to what the backend writes.
        names: set[str] = {BY_NAME[name].graph_option} - {""}
        for options in written_options(backend):
            names |= options.keys()
            for key, value in options.items():
                assert option_problem(backend.ort_name, key, value, plugin=False) == ""
        assert names | NOT_BY_DEFAULT >= set(BY_ORT_NAME[backend.ort_name].options)


def test_an_artifact_may_hold_what_compiled_parts_of_openvino_need() -> None:
    """As `OpenVinoBackend.compile` states it; the integration tests build such artifacts."""
    from aotc.providers.openvino import _config

    form = BY_ORT_NAME[OPENVINO].options["load_config"]
    assert form is not None
    entries = {"CACHE_MODE": "OPTIMIZE_SIZE", "WEIGHTS_PATH": "${weights}/weights.bin"}
    for precision in OpenVinoBackend.precisions:
        options = {"load_config": _config(precision, entries)}
        more = OpenVinoBackend().with_threads(options, 2)["load_config"]
        assert all(name in more for name in form.properties)
        assert option_problem(OPENVINO, "load_config", more, plugin=True) == ""


@pytest.mark.parametrize(
    ("provider", "key", "value"),
    [
        ("TensorrtExecutionProvider", "trt_extra_plugin_lib_paths", "evil.so"),
        ("TensorrtExecutionProvider", "device_id", "0"),
        ("CPUExecutionProvider", "use_arena", "1"),
        ("CUDAExecutionProvider", "user_compute_stream", "140737488355328"),
        ("CUDAExecutionProvider", "use_tf32", "/1"),
        ("NvTensorRTRTXExecutionProvider", "nv_runtime_cache_path", "cache"),
        (OPENVINO, "cache_dir", "cache"),
        (OPENVINO, "load_config", '{"CPU":{"CACHE_DIR":"cache"}}'),
        (OPENVINO, "load_config", '{"GPU":{"INFERENCE_PRECISION_HINT":"f32"}}'),
        (OPENVINO, "load_config", '{"CPU":{},"GPU":{"CONFIG_FILE":"x.xml"}}'),
        (OPENVINO, "load_config", '{"CPU":{"CACHE_MODE":"a"},"CPU":{"CACHE_DIR":"b"}}'),
        (OPENVINO, "load_config", '{"CPU":{"WEIGHTS_PATH":"/etc/passwd"}}'),
        (OPENVINO, "load_config", '{"CPU":{"WEIGHTS_PATH":"${weights}/../../x"}}'),
        (OPENVINO, "load_config", '{"CPU":{"WEIGHTS_PATH":{"a":"/etc/passwd"}}}'),
        (OPENVINO, "load_config", '{"CPU":{"CACHE_MODE":"\\u002fetc"}}'),
        (OPENVINO, "load_config", "/etc/openvino.json"),
        (OPENVINO, "load_config", '{"CPU":' * 2000),
    ],
)
def test_what_no_backend_writes_is_refused(provider: str, key: str, value: str) -> None:
    assert option_problem(provider, key, value, plugin=False) != ""


@pytest.mark.parametrize(
    "value",
    ["/tmp/evil.so", "..", ".", "../x", "a/b", "C:\\evil.dll", "a\0", "${home}", "${weights}/../x",
     "${weights}/..", "${weights}/a/b", "x:${weights}/a"],
)  # fmt: skip
def test_an_option_of_a_custom_plugin_may_not_hold_a_path(value: str) -> None:
    assert option_problem("AcmeExecutionProvider", "any", value, plugin=True) != ""
    stated = {"provider": "AcmeExecutionProvider", "library": "a.so", "options": {"any": value}}
    with pytest.raises(ParseError, match=r"options\.any"):
        decode(PluginSpec, stated)


@pytest.mark.parametrize("value", ["", "high", "1", "0.5", "a,b;c=d", "..5", "${weights}/k.bin"])
def test_other_options_of_a_custom_plugin_are_accepted(value: str) -> None:
    assert option_problem("AcmeExecutionProvider", "any", value, plugin=True) == ""
    # Without a plugin that the variant requires, it is a provider that ONNX Runtime was built with.
    assert option_problem("AcmeExecutionProvider", "any", value, plugin=False) != ""


def test_an_arena_that_says_nothing_is_in_no_manifest() -> None:
    """Ids of what was built before there were arenas, and budgets of the device, stay."""
    plain = load_profile("server-cuda")
    stated = stated_profile(plain)
    assert "memory" not in stated["cuda"]
    assert not {"concurrency", "device_memory_bytes"} & stated["budgets"].keys()
    changed = replace(
        plain,
        cuda=replace(plain.cuda, memory=LIMITED.memory),
        budgets=replace(plain.budgets, concurrency=4, device_memory_bytes=1 << 30),
    )
    stated = stated_profile(changed)
    assert stated["cuda"]["memory"]["limit_bytes"] == 1 << 30
    assert stated["budgets"]["concurrency"] == 4
