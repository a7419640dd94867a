"""The execution providers that have a backend, as a table with one row each.

A row holds what backends, host probe, option checks, compatibility checks, provenance and bill of
materials need to know about a provider; what only its backend needs is in the backend's file.  This
module imports nothing that a row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.errors import install_extra
from aotc.records import field, record

# ONNX Runtime's own provider, which runs what no other provider takes.
CPU: Final = "CPUExecutionProvider"


@record
class RuntimeWheel:
    """A distribution of ONNX Runtime.

    `providers` are those built into it, as ORT names them, fastest first.
    """

    distribution: str
    providers: tuple[str, ...]


@record
class PluginPackage:
    """The distribution of a provider plugin, which ONNX Runtime registers.

    `registered` is false for libraries that a provider in ONNX Runtime's own wheel needs: they are
    required like a plugin, and registered with nothing.
    `package` is the Python package that holds its libraries.  `cpu_vendor` is the vendor of the
    CPUs that it supports, as /proc/cpuinfo spells it; on other CPUs it offers no device.  Empty if
    it supports any.
    """

    distribution: str
    package: str
    cpu_vendor: str = ""
    registered: bool = True


@record
class DeviceProperties:
    """The form of a provider option whose value is JSON: properties of one device.

    `software` names what the option configures, for messages; `properties` are the allowed ones.
    """

    software: str
    device: str
    properties: frozenset[str]


@record
class KnownProvider:
    """One execution provider: `name` in profiles, `ort_name` everywhere else.

    `backend` is `module:class`, imported on first use.  `options` are the provider options that its
    backend writes, and so an artifact may hold, with the form of values that have one.  `compilers`
    are the distributions that it compiles with, in addition to the plugin that runs the result.
    `fix_missing` says what to do if ONNX Runtime's wheel does not have the provider; for a missing
    plugin, messages name its distribution instead.  `fix_idle` says what to do if its plugin offers
    no device.  If they are empty, the fix for any provider is used.  `graph_option` is the provider
    option with which its sessions capture CUDA graphs; empty if they cannot.  `asynchronous` means
    that a node of it may return before its device has computed.
    """

    name: str
    ort_name: str
    backend: str
    options: Mapping[str, DeviceProperties | None] = field(default_factory=dict)
    plugin: PluginPackage | None = None
    compilers: tuple[str, ...] = ()
    fix_missing: str = ""
    fix_idle: str = ""
    graph_option: str = ""
    asynchronous: bool = False

    @property
    def distributions(self) -> tuple[str, ...]:
        """The distributions that decide what it compiles and computes, except ONNX Runtime's."""
        return (*((self.plugin.distribution,) if self.plugin else ()), *self.compilers)


RUNTIME_WHEELS: Final = (
    RuntimeWheel(distribution="onnxruntime", providers=(CPU,)),
    RuntimeWheel(
        distribution="onnxruntime-gpu",
        providers=("TensorrtExecutionProvider", "CUDAExecutionProvider", CPU),
    ),
)
# They break each other if installed together.
RUNTIMES: Final = tuple(wheel.distribution for wheel in RUNTIME_WHEELS)

# What `cuda` in a profile is about.
CUDA: Final = "cuda"

KNOWN_PROVIDERS: Final = (
    KnownProvider(
        name="cpu",
        ort_name=CPU,
        backend="aotc.backends.cpu:CpuBackend",
        fix_missing=f"{install_extra('cpu')}.",
    ),
    KnownProvider(
        name="cuda",
        ort_name="CUDAExecutionProvider",
        backend="aotc.backends.cuda:CudaBackend",
        options=dict.fromkeys(
            (
                "cudnn_conv_algo_search",
                "enable_cuda_graph",
                "fuse_conv_bias",
                "prefer_nhwc",
                "sdpa_kernel",
                "use_tf32",
            )
        ),
        fix_missing=f"{install_extra('gpu')}, in place of the extra cpu.",
        graph_option="enable_cuda_graph",
        asynchronous=True,
    ),
    KnownProvider(
        name="openvino",
        ort_name="OpenVINOExecutionProvider",
        backend="aotc.backends.openvino:OpenVinoBackend",
        options={
            "load_config": DeviceProperties(
                software="OpenVINO",
                device="CPU",
                properties=frozenset(
                    {
                        "CACHE_MODE",
                        "INFERENCE_NUM_THREADS",
                        "INFERENCE_PRECISION_HINT",
                        "WEIGHTS_PATH",
                    }
                ),
            )
        },
        plugin=PluginPackage(
            distribution="onnxruntime-ep-openvino",
            package="onnxruntime_ep_openvino",
            cpu_vendor="GenuineIntel",
        ),
        fix_idle="Of CPUs, OpenVINO serves Intel's only: load it on such a host, "
        "or build it for this one with a profile such as edge.",
    ),
    KnownProvider(
        name="tensorrt",
        ort_name="TensorrtExecutionProvider",
        backend="aotc.backends.tensorrt:TensorRtBackend",
        options={"trt_bf16_enable": None, "trt_fp16_enable": None, "trt_op_types_to_exclude": None},
        plugin=PluginPackage(
            distribution="tensorrt-cu13-libs", package="tensorrt_libs", registered=False
        ),
        fix_missing=f"{install_extra('gpu')}, in place of the extra cpu.",
        fix_idle=f"{install_extra('gpu')}, in place of the extra cpu.",
        asynchronous=True,
    ),
    KnownProvider(
        name="tensorrt_rtx",
        ort_name="NvTensorRTRTXExecutionProvider",
        backend="aotc.backends.tensorrt_rtx:TensorRtRtxBackend",
        options={"nv_op_types_to_exclude": None},
        plugin=PluginPackage(
            distribution="onnxruntime-ep-nv-tensorrt-rtx-cu13",
            package="onnxruntime_ep_nv_tensorrt_rtx",
        ),
        compilers=("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs"),
        asynchronous=True,
    ),
)
BY_NAME: Final[Mapping[str, KnownProvider]] = {row.name: row for row in KNOWN_PROVIDERS}
BY_ORT_NAME: Final[Mapping[str, KnownProvider]] = {row.ort_name: row for row in KNOWN_PROVIDERS}
# Plugins by distribution.
PLUGIN_PACKAGES: Final[Mapping[str, PluginPackage]] = {
    row.plugin.distribution: row.plugin for row in KNOWN_PROVIDERS if row.plugin
}
# The provider whose sessions capture CUDA graphs, and its option for that.
CAPTURING: Final = next(row for row in KNOWN_PROVIDERS if row.graph_option)
GRAPH_OPTION: Final = CAPTURING.graph_option
# Providers of whose nodes a profile may time the launch instead of the computation.
ASYNCHRONOUS: Final = frozenset(row.ort_name for row in KNOWN_PROVIDERS if row.asynchronous)
