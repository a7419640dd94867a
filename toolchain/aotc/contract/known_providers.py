"""The execution providers that have a backend here, one row each, as data.

What backends, host probe, option vetting, checks, provenance and bill of materials must know of a
provider stands in its row, and is read from there; what its backend alone needs stands in the
backend's file.  It imports nothing that a row names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aotc.errors import install_extra
from aotc.records import field, record

# ONNX Runtime's own, which takes what no other does.
CPU: Final = "CPUExecutionProvider"


@record
class RuntimeWheel:
    """A distribution of ONNX Runtime; `providers` are built in, by ORT's names, best first."""

    distribution: str
    providers: tuple[str, ...]


@record
class PluginPackage:
    """The distribution of a plugin, which ONNX Runtime registers.

    `package`: the Python package that holds its libraries.  `cpu_vendor`: of the CPUs that it
    offers a device for, as /proc/cpuinfo spells it; an installed plugin is no provider on others.
    Empty: any.
    """

    distribution: str
    package: str
    cpu_vendor: str = ""


@record
class DeviceProperties:
    """The form of an option that is JSON: properties of one device.

    `software` is whose configuration it is, for messages.
    """

    software: str
    device: str
    properties: frozenset[str]


@record
class KnownProvider:
    """One execution provider: `name` in profiles, `ort_name` everywhere else.

    `backend` is `module:class`, imported when asked for.  `options` are those that its backend
    writes, so that an artifact may hold them; with a form where the value has one.  `compilers`
    are distributions that it compiles with, beside the plugin that runs what was compiled.
    `mend_missing` says what to do where ONNX Runtime's wheel lacks it (of a plugin that is missing
    its distribution is told), `mend_idle` where its plugin offers no device; empty: what holds for
    any provider.
    """

    name: str
    ort_name: str
    backend: str
    options: Mapping[str, DeviceProperties | None] = field(default_factory=dict)
    plugin: PluginPackage | None = None
    compilers: tuple[str, ...] = ()
    mend_missing: str = ""
    mend_idle: str = ""

    @property
    def distributions(self) -> tuple[str, ...]:
        """All that decide what it compiles and computes, beside ONNX Runtime's own."""
        return (*((self.plugin.distribution,) if self.plugin else ()), *self.compilers)


RUNTIME_WHEELS: Final = (
    RuntimeWheel(distribution="onnxruntime", providers=(CPU,)),
    RuntimeWheel(
        distribution="onnxruntime-gpu",
        providers=("TensorrtExecutionProvider", "CUDAExecutionProvider", CPU),
    ),
)
# Installed together they break each other.
RUNTIMES: Final = tuple(wheel.distribution for wheel in RUNTIME_WHEELS)

KNOWN_PROVIDERS: Final = (
    KnownProvider(
        name="cpu",
        ort_name=CPU,
        backend="aotc.backends.cpu:CpuBackend",
        mend_missing=f"{install_extra('cpu')}.",
    ),
    KnownProvider(
        name="cuda",
        ort_name="CUDAExecutionProvider",
        backend="aotc.backends.cuda:CudaBackend",
        options={"cudnn_conv_algo_search": None, "use_tf32": None},
        mend_missing=f"{install_extra('gpu')}, in place of the extra cpu.",
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
        mend_idle="Of CPUs, OpenVINO serves Intel's only: load it on such a host, "
        "or build it for this one with a profile such as edge.",
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
    ),
)
BY_NAME: Final[Mapping[str, KnownProvider]] = {row.name: row for row in KNOWN_PROVIDERS}
BY_ORT_NAME: Final[Mapping[str, KnownProvider]] = {row.ort_name: row for row in KNOWN_PROVIDERS}
# Packages of the plugins, by distribution.
PLUGIN_PACKAGES: Final[Mapping[str, PluginPackage]] = {
    row.plugin.distribution: row.plugin for row in KNOWN_PROVIDERS if row.plugin
}
