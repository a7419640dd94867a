"""ONNX Runtime's CUDA execution provider, predicted from its kernel table.

ONNX Runtime decides what runs there when the session is created; a build needs no GPU.  What the
provider refuses despite having a kernel is in `refusal_of_provider`.  ONNX Runtime leaves nodes
that compute shapes to the CPU: they are only noted, as rewrites at load change which nodes these
are.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, ClassVar, Final

from aotc.base.errors import AotcError, install_extra
from aotc.base.records import replace
from aotc.base.text import size
from aotc.graph.kernels import KernelTable, claim_by_kernels, prefers_cpu
from aotc.graph.view import every_node, has_subgraphs, shape_nodes
from aotc.host.nvidia import DRIVER_MIN, missing_gpu
from aotc.providers.base import (
    ANY_USE,
    UNCAPTURED,
    WRONG,
    Backend,
    Capability,
    ClaimRequest,
    Claims,
    GivenUp,
    Refusal,
    SessionUse,
    installed_version,
    is_convolution,
)
from aotc.providers.ort import import_onnxruntime, ort_errors
from aotc.spec.precision import Precision, QuantizedForm, WantedPrecision
from aotc.spec.providers import (
    ARENA_GROWTH,
    ARENA_LIMIT,
    BY_NAME,
    EXACTLY,
    GRAPH_OPTION,
    MICROSOFT,
    RUNTIME_WHEELS,
    SIZED_BY_VALUES,
    STANDARD,
    ArenaOptions,
    Attention,
    CudaOptions,
    Rates,
    Search,
)
from aotc.spec.target import Target
from aotc.spec.variant import (
    NO_REQUIREMENTS,
    Optimization,
    PassRecord,
    Requirements,
    SessionSpec,
)

if TYPE_CHECKING:
    import onnx


_KNOWN: Final = BY_NAME["cuda"]
# The CUDA version for which the wheels of onnxruntime-gpu are built.
_CUDA_MAJOR: Final = 13

# By default ONNX Runtime measures convolution algorithms at load, and may pick a different one each
# time, which rounds differently; the heuristic only depends on sizes.
_SEARCHES: Final[Mapping[Search, str]] = {"heuristic": "HEURISTIC", "exhaustive": "EXHAUSTIVE"}
# Bits of ONNX Runtime's AttentionBackend: flash 1, efficient 2, TensorRT's fused 4, flash 32 and
# cross 64, unfused 16, decoder 512.  These are its defaults but for cuDNN's, 8.
_ATTENTION: Final[Mapping[Attention, Mapping[str, str]]] = {
    "auto": {},
    "without-cudnn": {"sdpa_kernel": str(1 | 2 | 4 | 16 | 32 | 64 | 512)},
}
# Tensor cores read channels last; only then is the bias added in the convolution's own kernel.
_CHANNELS_LAST: Final = {"prefer_nhwc": "1", "fuse_conv_bias": "1"}
(_WHEEL,) = (w.distribution for w in RUNTIME_WHEELS if _KNOWN.ort_name in w.providers)
_REPLACED: Final = " ".join(w.distribution for w in RUNTIME_WHEELS if w.distribution != _WHEEL)
# How many threads read external weights into page-locked memory; with 0 they are mapped and copied.
_READERS: Final = "external_data_loader_reading_threads"
# Page-locking its two buffers of 64 MiB takes ONNX Runtime 75 ms, which pays for more than this.
_PINNED_FROM_BYTES: Final = 1 << 30
_MAX_NAMED = 5
# Every pattern of fusion has one of these, or stands in a graph that is worth looking at for it.
_FUSED: Final = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "Attention",
        "Erf",
        "Gelu",
        "LayerNormalization",
        "NonZero",
        "RMSNormalization",
        "Softmax",
        "Sqrt",
        "Tanh",
    }
)
# ONNX Runtime fails in cuDNN on some of these with channels last.
_TRANSPOSED: Final = "ConvTranspose"
# With fewer, as in a vision transformer that only cuts patches so, transposes cost what is gained.
_FEWEST: Final = 4
_LEFT_TO_CPU = (
    "{count} of these nodes compute shapes, which ONNX Runtime prefers on the CPU: {names}"
)

# The activations of cuDNN, in order, for both directions.
_ACTIVATIONS = {
    "LSTM": ("sigmoid", "tanh", "tanh", "sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh", "sigmoid", "tanh"),
    "RNN": ("tanh", "tanh"),
}
_PEEPHOLES = 7


class CudaBackend(Backend):
    """CUDA on any NVIDIA GPU; nothing is compiled ahead of time for it."""

    name = _KNOWN.name
    ort_name = _KNOWN.ort_name
    device: ClassVar[str] = "gpu"
    precisions: ClassVar[tuple[Precision, ...]] = ("keep", "tf32", "float16", "bfloat16")
    quicker_precisions: ClassVar[tuple[Precision, ...]] = ("float16", "bfloat16", "tf32")
    # Products with 8-bit activations have no kernel for the types of the other forms.
    quantized: ClassVar[Mapping[WantedPrecision, tuple[QuantizedForm, ...]]] = {
        "int8": ("weights",),
        "int4": ("weights",),
    }
    half_by_types: ClassVar[bool] = True
    # A data-center GPU in float32 on PCIe 4; a transfer costs a synchronization.
    rates: ClassVar[Rates] = Rates(
        flops=2e13, bytes=1e12, transfer_bytes=2e10, transfer_seconds=1e-5
    )

    def probe(self) -> Capability:
        """Always available, as a prediction only needs the table; `runs` is about the GPU."""
        why_not, fix = _missing_for_sessions()
        return self.capability(version=installed_version(_WHEEL), why_not=why_not, fix=fix)

    def claim(self, request: ClaimRequest) -> Claims:
        """The nodes that the table has a kernel for, on any target, without a GPU."""
        import onnx

        return claim_of(onnx.load(request.model, load_external_data=False))

    def predict(self, model: onnx.ModelProto) -> Claims | None:
        """By the kernel table."""
        return claim_of(model)

    def session(
        self, optimization: Optimization, precision: Precision = "keep", use: SessionUse = ANY_USE
    ) -> SessionSpec:
        """Full float32 for `keep`; TF32, which is ONNX Runtime's default, for all others.

        Without TF32, cuDNN has no tensor cores for convolutions in half precision either.  Nodes
        that stay in float32 there mostly need its range, which TF32 has.  Convolution algorithms
        are the same at every load unless the variant allows a search.  `attention` is of the fused
        operators; without `sdpa_kernel`, ONNX Runtime prefers cuDNN where it is stable.
        """
        options = {
            "use_tf32": "0" if precision == "keep" else "1",
            "cudnn_conv_algo_search": _SEARCHES[use.cuda.conv_algo_search],
            **_ATTENTION[use.cuda.attention],
        }
        options |= _arena(use.cuda.memory)
        last = use.cuda.layout == "auto" and is_convolutional(use.operators)
        if last or use.cuda.layout == "nhwc":
            options |= _CHANNELS_LAST
        return SessionSpec(optimization=optimization, provider_options={self.ort_name: options})

    def fuses(self, options: CudaOptions) -> bool:
        """Unless the profile says not to."""
        return options.fusion == "auto"

    def fuse(
        self, model: onnx.ModelProto, weights: Path
    ) -> tuple[onnx.ModelProto, tuple[PassRecord, ...]]:
        """Attention, normalizations, integers and others, as operators that it has kernels for."""
        if not any(node.op_type in _FUSED for node in model.graph.node):
            return model, ()
        try:
            from aotc.graph.passes.fuse_for_cuda import fuse
        except ImportError as error:
            raise AotcError(
                "AOTC-O011",
                "fusion for CUDA needs a package that is not installed",
                expected="onnxscript",
                found=str(error),
                fix=f"{install_extra('gpu')}, or set 'cuda: {{fusion: none}}' in the profile.",
            ) from None
        # The library reports each pattern that it does not match, and shapes it cannot infer.
        logging.getLogger("onnxscript").setLevel(logging.CRITICAL)
        logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)
        return fuse(model, weights, self.ort_name)

    def gives_up(self, refusal: AotcError, use: SessionUse) -> GivenUp | None:
        """Channels last, then fusion, then captured graphs, where the profile leaves them to it.

        The layout first: where a graph has both, fusion gains more.  But first of all, one session
        for several sizes, as that costs memory alone; where that is too little, graphs.
        """
        own, wrong = use.cuda, refusal.code in WRONG
        crowded = refusal.code == "AOTC-M004" and use.apart
        uncaptured = refusal.code in UNCAPTURED and bool(use.captured)
        why = f"{refusal.code} {refusal.what}"
        shared = own.graphs.sessions == "auto" and not use.apart
        if uncaptured and refusal.code == "AOTC-P015" and shared:
            # One more runs what is not captured.
            more = use.captured * use.weights_bytes
            return GivenUp(
                options=replace(own, graphs=replace(own.graphs, sessions="each")),
                choice="one session for all captured sizes",
                code="AOTC-P015",
                what=f"{refusal.what}; each captured size has a session of its own, with "
                f"{size(more)} of weights in all beside the first copy on the device",
            )
        if (wrong or uncaptured) and own.layout == "auto" and is_convolutional(use.operators):
            return GivenUp(
                options=replace(own, layout="nchw"),
                choice="channels last on CUDA",
                code="AOTC-O013",
                what=f"channels come first for {concerned(refusal, use, is_convolution)}: {why}",
            )
        if wrong and use.fused and self.fuses(own):
            return GivenUp(
                options=replace(own, fusion="none"),
                choice="fusion for CUDA",
                code="AOTC-O012",
                what=f"not fused into {concerned(refusal, use, _is_fused)}: {why}",
            )
        if (uncaptured or (crowded and use.captured)) and own.graphs.on_refusal == "run":
            return GivenUp(
                options=replace(own, graphs=replace(own.graphs, capture="none")),
                choice="CUDA graphs",
                code="AOTC-P015" if crowded else refusal.code,
                what=f"no CUDA graphs are captured: {_why_uncaptured(refusal)}",
            )
        return None

    def capturing(
        self, session: SessionSpec, model: onnx.ModelProto, placed: Mapping[str, str]
    ) -> tuple[SessionSpec, str]:
        """With its option, unless ONNX Runtime would refuse it, or fail.

        That refuses a node with a subgraph, and values that are copied between the GPU and the CPU.
        Nodes on the CPU that compute shapes do no harm: their values are read there.
        """
        if obstacles := uncapturable(model, placed):
            return session, _listed([f"{name} ({why})" for name, why in obstacles.items()])
        own = {**session.provider_options.get(self.ort_name, {}), GRAPH_OPTION: "1"}
        options = {**session.provider_options, self.ort_name: own}
        return replace(session, provider_options=options), ""

    def steadier(self, session: SessionSpec) -> Mapping[str, SessionSpec]:
        """With convolution algorithms that are not searched for; no kernel depends on threads."""
        options = session.provider_options.get(self.ort_name, {})
        repeatable = {"cudnn_conv_algo_search": _SEARCHES["heuristic"]}
        if options.get("cudnn_conv_algo_search") == _SEARCHES["heuristic"]:
            return {}
        changed = {**session.provider_options, self.ort_name: {**options, **repeatable}}
        return {"cuda: {conv_algo_search: heuristic}": replace(session, provider_options=changed)}

    def with_weights(self, options: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Weights of less than a GiB are copied as they are mapped.

        Measured at creating a session on an H100, from the page cache (ADR 56).
        """
        if _bytes_in(folder) >= _PINNED_FROM_BYTES:
            return dict(options)
        return {**options, _READERS: "0"}

    def prepare(self) -> None:
        """Load NVIDIA's libraries from their Python packages, if installed, and the provider's."""
        _preload()

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """CUDA and its driver; any compute capability, as nothing is compiled."""
        return replace(
            NO_REQUIREMENTS, cuda_major=_CUDA_MAJOR, nvidia_driver_min=DRIVER_MIN[_CUDA_MAJOR]
        )

    def fingerprint(self) -> str:
        """The versions of the kernel table and of onnxruntime-gpu, if it is installed."""
        table = f"kernels {KernelTable.load(CudaBackend.ort_name).version}"
        installed = installed_version(_WHEEL)
        return f"{_WHEEL} {installed}; {table}" if installed else table


def _arena(memory: ArenaOptions) -> dict[str, str]:
    """The options of the arena; none where ONNX Runtime's defaults are wanted.

    The limit of a plan is known only when the variant has run.
    """
    bounded = memory.shrink or memory.limit_bytes == "plan"
    exact = memory.growth == "exact" or (memory.growth == "auto" and bounded)
    options = {ARENA_GROWTH: EXACTLY} if exact else {}
    if isinstance(memory.limit_bytes, int):
        options[ARENA_LIMIT] = str(memory.limit_bytes)
    return options


def _why_uncaptured(refusal: AotcError) -> str:
    """Without what differs from build to build: at which replay a graph crashes, bytes left."""
    return refusal.found if refusal.code == "AOTC-P014" else refusal.what


def is_convolutional(operators: Iterable[str]) -> bool:
    """Whether nodes of these operators are four convolutions or more, and none is transposed."""
    found = list(operators)
    transposed = any(operator.rpartition("::")[2] == _TRANSPOSED for operator in found)
    return sum(map(is_convolution, found)) >= _FEWEST and not transposed


def _is_fused(operator: str) -> bool:
    """Of ONNX Runtime's own operators, to which fusion rewrites."""
    return operator.startswith(f"{MICROSOFT}::") and not is_convolution(operator)


def concerned(refusal: AotcError, use: SessionUse, concerns: Callable[[str], bool]) -> str:
    """The nodes whose operators something `concerns`, as a phrase: those that a refusal names.

    If it names none, the first of them and how many there are.
    """
    named = zip(use.names, use.operators, strict=False)
    nodes = [name for name, operator in named if concerns(operator)]
    words = {
        word.rstrip(".:")
        for each in refusal.every()
        for text in (each.what, each.where, each.found)
        for word in re.split(r"[\s'\"`(),;]+", text)
    }
    if told := [name for name in nodes if name in words]:
        return f"{len(nodes)} nodes, of which the refusal names {_listed(told)}"
    return _listed(nodes) or "its nodes"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def uncapturable(model: onnx.ModelProto, placed: Mapping[str, str]) -> dict[str, str]:
    """The nodes that prevent a capture, each with the reason."""
    shapes = shape_nodes(model)
    found = {}
    for node in every_node(model):
        if has_subgraphs(node):
            found[node.name] = f"{node.op_type} is control flow"
        elif not node.domain and node.op_type in SIZED_BY_VALUES:
            found[node.name] = f"the size of {node.op_type} depends on values"
        elif (
            node.name not in shapes
            and (provider := placed.get(node.name, "")) != CudaBackend.ort_name
        ):
            found[node.name] = f"{node.op_type} is on {provider or 'no provider'}"
    return found


def claim_of(model: onnx.ModelProto) -> Claims:
    """What CUDA would run of a model in memory; external data is not read."""
    table = KernelTable.load(CudaBackend.ort_name)
    found = claim_by_kernels(model, CudaBackend.ort_name, table, refusal_of_provider)
    notes = found.notes
    if on_cpu := prefers_cpu(model.graph, found.nodes):
        names = ", ".join(on_cpu[:_MAX_NAMED]) + (", ..." if len(on_cpu) > _MAX_NAMED else "")
        notes = (*notes, _LEFT_TO_CPU.format(count=len(on_cpu), names=names))
    return Claims(
        nodes=found.nodes,
        refusals=tuple(Refusal(node=node, reason=reason) for node, reason in found.refusals),
        how="predicted",
        notes=notes,
    )


def refusal_of_provider(node: onnx.NodeProto) -> str:
    """Why CUDA leaves a node to the CPU although it has a kernel; "" if it does not.

    The rules are those of `CUDAExecutionProvider::GetCapability`.
    """
    if node.domain not in STANDARD:
        return ""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type in _ACTIVATIONS:
        return _refused_recurrence(node, attributes)
    if node.op_type == "ConvTranspose":
        return _refused_padding(attributes)
    if node.op_type in ("ArgMax", "ArgMin") and _integer(attributes, "select_last_index"):
        return f"CUDA has no {node.op_type} with select_last_index"
    return ""


def _refused_recurrence(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> str:
    kind = node.op_type
    for name in ("activation_alpha", "activation_beta", "clip"):
        if name in attributes:
            return f"CUDA has no {kind} with {name}"
    if "activations" in attributes:
        names = [name.decode().lower() for name in attributes["activations"].strings]
        if tuple(names) != _ACTIVATIONS[kind][: len(names)]:
            return f"CUDA has no {kind} with activations {', '.join(names)}"
    if kind == "LSTM" and _integer(attributes, "input_forget"):
        return "CUDA has no LSTM with input_forget"
    if kind == "LSTM" and len(node.input) > _PEEPHOLES and node.input[_PEEPHOLES]:
        return "CUDA has no LSTM with peepholes"
    if kind == "GRU" and _integer(attributes, "linear_before_reset") != 1:
        return "CUDA has no GRU without linear_before_reset"
    return ""


def _refused_padding(attributes: Mapping[str, onnx.AttributeProto]) -> str:
    if "pads" in attributes:
        pads = attributes["pads"].ints
        rank = len(pads) // 2
        if list(pads[:rank]) != list(pads[rank:]):
            return "CUDA has no ConvTranspose with asymmetric pads"
    if "auto_pad" in attributes and attributes["auto_pad"].s.startswith(b"SAME_"):
        return f"CUDA has no ConvTranspose with auto_pad {attributes['auto_pad'].s.decode()}"
    return ""


def _integer(attributes: Mapping[str, onnx.AttributeProto], name: str) -> int:
    return attributes[name].i if name in attributes else 0


def _bytes_in(folder: Path) -> int:
    """The size of the files that lie in a folder itself; 0 if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except OSError:
        return 0


@cache
def _preload() -> None:
    """Missing libraries show when the session is created."""
    with contextlib.suppress(*ort_errors()):
        load_libraries()


def load_libraries() -> None:
    """Load NVIDIA's libraries from their Python packages, and the provider's own library.

    Raises ONNX Runtime's error, with the name of what is missing; what its own function prints
    instead is useless.
    """
    runtime = import_onnxruntime()
    preload = getattr(runtime, "preload_dlls", None)
    if isinstance(preload, FunctionType):
        _without_print(preload)()
    if CudaBackend.ort_name in runtime.get_available_providers():
        # The provider's own library is loaded for the first options that name it.
        runtime.SessionOptions().add_provider(CudaBackend.ort_name, {})


def _without_print(function: FunctionType) -> FunctionType:
    """A function that prints nothing itself, and leaves standard output to other threads."""
    own = {**function.__globals__, "print": lambda *_, **__: None}
    return FunctionType(function.__code__, own, argdefs=function.__defaults__)


def _missing_for_sessions() -> tuple[str, str]:
    """What prevents sessions with CUDA here, and its fix; nothing if nothing does."""
    if no_gpu := missing_gpu():
        return no_gpu, "Build here, and run on a machine that has one."
    try:
        built_in = CudaBackend.ort_name in import_onnxruntime().get_available_providers()
    except AotcError as error:
        return error.line(), error.fix
    if not built_in:
        fix = f"pip uninstall {_REPLACED}, whose files it would share; then {install_extra('gpu')}."
        return f"{_WHEEL} is not installed", fix
    return "", ""
