"""Execution providers as a table of one row each, and the options that an artifact may hold.

A row holds what backends, host probe, option checks, compatibility checks, provenance and bill of
materials need to know about a provider; what only its backend needs is in the backend's file.  This
module imports nothing that a row names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal

from aotc.base.errors import install_extra
from aotc.base.records import field, record
from aotc.spec.codec import Bounds, Json, ParseError, Problem
from aotc.spec.json import strict_json

# ONNX Runtime's own provider, which runs what no other provider takes.
CPU: Final = "CPUExecutionProvider"

# What `cuda` in a profile is about.
CUDA: Final = "cuda"

STANDARD: Final = ("", "ai.onnx")
"""Both spellings of the ONNX standard's domain."""
MICROSOFT: Final = "com.microsoft"
"""ONNX Runtime's domain."""
EP_CONTEXT: Final = "EPContext"
"""The operator in ONNX Runtime's domain that replaces nodes which a provider compiled."""

# The folder of the variant's weights, or a file in it.
_IN_WEIGHTS = re.compile(r"\$\{weights\}(/[A-Za-z0-9_][A-Za-z0-9._-]*)?")
_PATH_PART = re.compile(r"[/\\\x00]|\$\{|\A\.{1,2}\Z")

# ONNX Runtime takes no longer values.
MAX_VALUE_BYTES: Final = 8192
# For one operator.
MAX_THREADS: Final = 1024

# Session config entries of ONNX Runtime that a manifest may hold: they change how a session
# computes, and do not name files.
MANIFEST_KEYS: Final = frozenset(
    {
        "mlas.disable_kleidiai",
        "mlas.enable_gemm_fastmath_arm64_bfloat16",
        "mlas.qnbit.force_fp32",
        "mlas.use_lut_gemm",
        "optimization.disable_specified_optimizers",
        "optimization.enable_cast_chain_elimination",
        "optimization.enable_gelu_approximation",
        "session.disable_aot_function_inlining",
        "session.disable_cpu_ep_fallback",
        "session.disable_double_qdq_remover",
        "session.disable_prepacking",
        "session.disable_quant_qdq",
        "session.dynamic_block_base",
        "session.enable_quant_qdq_cleanup",
        "session.graph_optimizations_loop_level",
        "session.inter_op.allow_spinning",
        "session.intra_op.allow_spinning",
        "session.qdq_matmulnbits_accuracy_level",
        "session.qdqisint8allowed",
        "session.set_denormal_as_zero",
        "session.use_device_allocator_for_initializers",
        "session.use_env_allocators",
        "session.x64quantprecision",
    }
)

# Operators whose outputs have sizes that depend on values: ONNX Runtime tries to capture them, and
# fails in a way that may leave the device unusable for the process.
SIZED_BY_VALUES: Final = frozenset(
    {"NonZero", "Compress", "Unique", "NonMaxSuppression", "StringSplit"}
)


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
    that a node of it may return before its device has computed.  `runtimes` are the minor versions
    of ONNX Runtime that it was tried with, oldest first: CONTRIBUTING.md says how the next is taken
    in.
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
    runtimes: tuple[tuple[int, int], ...] = ()

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


KNOWN_PROVIDERS: Final = (
    KnownProvider(
        name="cpu",
        ort_name=CPU,
        backend="aotc.providers.cpu:CpuBackend",
        fix_missing=f"{install_extra('cpu')}.",
        runtimes=((1, 31), (1, 32)),
    ),
    KnownProvider(
        name="cuda",
        ort_name="CUDAExecutionProvider",
        backend="aotc.providers.cuda:CudaBackend",
        options=dict.fromkeys(
            (
                "arena_extend_strategy",
                "cudnn_conv_algo_search",
                "enable_cuda_graph",
                "fuse_conv_bias",
                "gpu_mem_limit",
                "prefer_nhwc",
                "sdpa_kernel",
                "use_tf32",
            )
        ),
        fix_missing=f"{install_extra('gpu')}, in place of the extra cpu.",
        graph_option="enable_cuda_graph",
        asynchronous=True,
        runtimes=((1, 31),),
    ),
    KnownProvider(
        name="openvino",
        ort_name="OpenVINOExecutionProvider",
        backend="aotc.providers.openvino:OpenVinoBackend",
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
        runtimes=((1, 31), (1, 32)),
    ),
    KnownProvider(
        name="tensorrt",
        ort_name="TensorrtExecutionProvider",
        backend="aotc.providers.tensorrt:TensorRtBackend",
        options={"trt_bf16_enable": None, "trt_fp16_enable": None, "trt_op_types_to_exclude": None},
        plugin=PluginPackage(
            distribution="tensorrt-cu13-libs", package="tensorrt_libs", registered=False
        ),
        fix_missing=f"{install_extra('gpu')}, in place of the extra cpu.",
        fix_idle=f"{install_extra('gpu')}, in place of the extra cpu.",
        asynchronous=True,
        runtimes=((1, 31),),
    ),
    KnownProvider(
        name="tensorrt_rtx",
        ort_name="NvTensorRTRTXExecutionProvider",
        backend="aotc.providers.tensorrt_rtx:TensorRtRtxBackend",
        options={"nv_op_types_to_exclude": None},
        plugin=PluginPackage(
            distribution="onnxruntime-ep-nv-tensorrt-rtx-cu13",
            package="onnxruntime_ep_nv_tensorrt_rtx",
        ),
        compilers=("tensorrt-rtx-cu13-bindings", "tensorrt-rtx-cu13-libs"),
        asynchronous=True,
        # Of its hosts, those that have CUDA too have no newer wheel.
        runtimes=((1, 31),),
    ),
)
BY_NAME: Final[Mapping[str, KnownProvider]] = {row.name: row for row in KNOWN_PROVIDERS}
BY_ORT_NAME: Final[Mapping[str, KnownProvider]] = {row.ort_name: row for row in KNOWN_PROVIDERS}
# Minor versions of ONNX Runtime that aotc builds and runs on.
RUNTIME_MINORS: Final = BY_ORT_NAME[CPU].runtimes
# Plugins by distribution.
PLUGIN_PACKAGES: Final[Mapping[str, PluginPackage]] = {
    row.plugin.distribution: row.plugin for row in KNOWN_PROVIDERS if row.plugin
}
# The provider whose sessions capture CUDA graphs, and its option for that.
CAPTURING: Final = next(row for row in KNOWN_PROVIDERS if row.graph_option)
GRAPH_OPTION: Final = CAPTURING.graph_option
ARENA_LIMIT: Final = "gpu_mem_limit"
ARENA_GROWTH: Final = "arena_extend_strategy"
"""Its options of the memory that a session has there; it grows by doubling, or `EXACTLY`."""
EXACTLY: Final = "kSameAsRequested"
# Providers of whose nodes a profile may time the launch instead of the computation.
ASYNCHRONOUS: Final = frozenset(row.ort_name for row in KNOWN_PROVIDERS if row.asynchronous)


def runtime_range(
    providers: Iterable[str], built: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first and the last minor version of ONNX Runtime that what `built` made runs on.

    A later one reads what an earlier wrote, which was tried with these; an earlier one need not.
    Where a provider's own wheel lags behind, its hosts have that.  What was not tried runs on the
    version that built it alone.
    """
    tried = [known.runtimes if (known := BY_ORT_NAME.get(name)) else () for name in providers]
    if built not in RUNTIME_MINORS or not all(tried):
        return built, built
    last = min(minors[-1] for minors in tried)
    return min(built, last), last


# Provider options that an artifact may ask for: they change how a provider computes.
#
# Some options of ONNX Runtime's providers name libraries to load, or files to write. So for a
# provider with a backend, an artifact may have the options that the backend writes, and for a
# plugin of the user, any option whose value does not name another file.


def option_problem(provider: str, key: str, value: str, *, plugin: bool) -> str:
    """Why an artifact must not have a provider option, as a phrase; empty if it may.

    `plugin` says that the variant gets the provider from a plugin.
    """
    known = BY_ORT_NAME.get(provider)
    if known is None and not plugin:
        return f"is an option of {provider}, which is neither known nor a plugin"
    if known is None:
        return _value_problem(value)
    if key not in known.options:
        return "is an option that an artifact must not have"
    form = known.options[key]
    return _value_problem(value) if form is None else _config_problem(value, form)


def _value_problem(value: str) -> str:
    if _IN_WEIGHTS.fullmatch(value) or not _PATH_PART.search(value):
        return ""
    return "names a path outside ${weights}/, which an option must not do"


def _config_problem(text: str, form: DeviceProperties) -> str:
    try:
        config: Json = strict_json(text.encode("utf-8"), limit=1 << 16)
    except ParseError as error:
        return f"is not a configuration of {form.software}: {error.problems[0]}"
    if (
        not isinstance(config, dict)
        or set(config) != {form.device}
        or not isinstance(config[form.device], dict)
    ):
        return f"is not a configuration of {form.software}'s {form.device} device only"
    for name, value in config[form.device].items():
        if name not in form.properties:
            return f"holds {name!r}, a property that an artifact must not have"
        if not isinstance(value, str | int):
            return f"holds {name!r}, which is neither text nor an integer"
        if isinstance(value, str) and (problem := _value_problem(value)):
            return f"holds {name!r}, which {problem}"
    return ""


@record
class Rates:
    """Rough speeds of a device per second, to weigh a partition against its transfers."""

    flops: float
    bytes: float
    transfer_bytes: float
    transfer_seconds: float


# What a profile says of CUDA: how graphs are rewritten for it, and which sizes are captured.


Fusion = Literal["auto", "none"]
Layout = Literal["auto", "nhwc", "nchw"]
Search = Literal["heuristic", "exhaustive"]
Attention = Literal["auto", "without-cudnn"]
Growth = Literal["auto", "doubling", "exact"]
Capture = Literal["none", "sizes", "calls"]
RefusedCapture = Literal["fail", "run"]
WantedSessions = Literal["auto", "one", "each"]


@record
class GraphOptions:
    """CUDA graphs: which sizes are captured, how many are kept, and what if one is refused."""

    capture: Annotated[
        Capture,
        "none; sizes: those of the profile (its buckets, or the optimal ones), at warm-up; calls: "
        "these and further sizes, at their first call",
    ] = "none"
    static: Annotated[
        bool,
        "buckets get static variants all the same, each with its own copy of prepared weights and "
        "one captured size",
    ] = False
    max_count: Annotated[
        int, Bounds(1, 1024), "captured sizes that are kept; the least used is dropped"
    ] = 32
    max_bytes: Annotated[
        int, Bounds(0, 2**53 - 1), "of inputs and outputs of captured sizes, on the device"
    ] = 8 << 30
    on_refusal: Annotated[
        RefusedCapture,
        "if ONNX Runtime refuses to capture (control flow, nodes on the CPU): fail, or run without",
    ] = "fail"
    sessions: Annotated[
        WantedSessions,
        "of captured sizes: one for all of them; each: one for each size, with its own copy of the "
        "weights; auto: each for graphs with convolutions whose calls have several sizes, and "
        "where a build finds that graphs crash or differ beside others; else one",
    ] = "auto"


@record
class ArenaOptions:
    """The memory on the GPU that each session takes for its weights and calls, and keeps."""

    limit_bytes: Annotated[
        int | Literal["plan"] | None,
        Bounds(1, 2**53 - 1),
        "what it may grow to; a call that needs more is refused (AOTC-R058). plan: what the plan "
        "of a build on a GPU says of the largest sizes, with budgets.concurrency calls at once, "
        "and a tenth above. Unset: all that the device has",
    ] = None
    growth: Annotated[
        Growth,
        "how it grows. doubling: each step is at least twice the one before, ONNX Runtime's "
        "default; exact: by what is asked for; auto: exact if it shrinks or has the limit of a "
        "plan, else doubling",
    ] = "auto"
    shrink: Annotated[
        bool,
        "at the end of each call, give back what no call uses; the next call takes it again, which "
        "costs time. Not beside captured graphs",
    ] = False


@record
class CudaOptions:
    """How a variant uses CUDA; without effect for variants on other providers."""

    fusion: Annotated[
        Fusion, "whether attention, normalizations and activations are fused for its kernels"
    ] = "auto"
    layout: Annotated[
        Layout,
        "of images inside the provider; auto is NHWC for graphs with four convolutions or more, of "
        "which none is transposed",
    ] = "auto"
    conv_algo_search: Annotated[
        Search,
        "of convolution algorithms: heuristic is cuDNN's choice, the same each time; exhaustive "
        "measures them at warm-up, which may choose and round differently each time",
    ] = "heuristic"
    attention: Annotated[
        Attention,
        "kernels of fused attention: auto is ONNX Runtime's choice, which in half precision from "
        "compute capability 9.0 on is cuDNN, planned anew at each new size; without-cudnn takes "
        "those that need no plan",
    ] = "auto"
    graphs: GraphOptions = GraphOptions()
    memory: ArenaOptions = ArenaOptions()

    def problems(self) -> list[Problem]:
        """AOTC-M020: a graph keeps the addresses that it was captured with."""
        if self.memory.shrink and self.graphs.capture != "none":
            text = "captured graphs keep the memory that shrinking would give back"
            return [Problem("memory.shrink", text, "AOTC-M020")]
        return []
