"""ONNX Runtime's CUDA execution provider, predicted from its kernel table.

Where it runs is decided by ONNX Runtime when the session is created; a build needs no GPU and asks
none.  What the provider refuses although it has a kernel stands in `refusal_of_provider`.  Nodes
that compute shapes it leaves to the CPU of its own accord: they are only noted, as rewrites at load
change which they are.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from aotc.backends.base import Backend, Capability, ClaimRequest, Claims, Rates, Refusal
from aotc.backends.kernels import KernelTable, claim_by_kernels, prefers_cpu
from aotc.backends.onnxruntime_import import import_onnxruntime
from aotc.contract.known_providers import BY_NAME, RUNTIME_WHEELS
from aotc.contract.manifest.requirements import NO_REQUIREMENTS, Requirements
from aotc.contract.manifest.variant import Optimization, SessionSpec
from aotc.contract.operator_domains import STANDARD
from aotc.contract.profile_terms import Precision
from aotc.contract.target import Target
from aotc.errors import AotcError
from aotc.host.nvidia import DRIVER_MIN, missing_gpu
from aotc.records import replace

if TYPE_CHECKING:
    import onnx

_KNOWN: Final = BY_NAME["cuda"]
# The wheels of onnxruntime-gpu are built for this CUDA.
_CUDA_MAJOR: Final = 13

# ONNX Runtime's default measures convolution algorithms at load, and may take another one, which
# rounds otherwise, each time; the heuristic goes by sizes alone.
_REPEATABLE = {"cudnn_conv_algo_search": "HEURISTIC"}
(_WHEEL,) = (w.distribution for w in RUNTIME_WHEELS if _KNOWN.ort_name in w.providers)
_NAMED = 5
_LEFT_TO_CPU = (
    "{count} of these nodes compute shapes, which ONNX Runtime prefers on the CPU: {names}"
)

# Activations that cuDNN has, in order, for both directions.
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
    precisions: ClassVar[tuple[Precision, ...]] = ("keep", "tf32")
    # A data-centre GPU in float32 on PCIe 4; a transfer costs a synchronisation.
    rates: ClassVar[Rates] = Rates(
        flops=2e13, bytes=1e12, transfer_bytes=2e10, transfer_seconds=1e-5
    )

    def probe(self) -> Capability:
        """Always available, as a prediction needs the table alone; `runs` asks for a GPU."""
        why_not = _why_not()
        return Capability(
            name=self.name,
            ort_name=self.ort_name,
            available=True,
            version=_installed_version(),
            runs=not why_not,
            why_not=why_not,
        )

    def claim(self, request: ClaimRequest) -> Claims:
        """The nodes that the table has a kernel for, on any target: no GPU is asked."""
        import onnx

        return claim_of(onnx.load(request.model, load_external_data=False))

    def predict(self, model: onnx.ModelProto) -> Claims | None:
        """By the kernel table."""
        return claim_of(model)

    def session(self, optimization: Optimization, precision: Precision = "keep") -> SessionSpec:
        """Float32 in full unless `precision` is tf32, which is ONNX Runtime's default.

        With `keep`, convolution algorithms are those of every other load, too.
        """
        faster = precision == "tf32"
        options = {"use_tf32": "1"} if faster else {"use_tf32": "0", **_REPEATABLE}
        return SessionSpec(optimization=optimization, provider_options={self.ort_name: options})

    def prepare(self) -> None:
        """Load NVIDIA's libraries of the Python packages, where they come from there."""
        _preload()

    def needs(self, target: Target, precision: Precision = "keep") -> Requirements:
        """CUDA and its driver; compute capabilities are not limited, as nothing is compiled."""
        return replace(
            NO_REQUIREMENTS, cuda_major=_CUDA_MAJOR, nvidia_driver_min=DRIVER_MIN[_CUDA_MAJOR]
        )

    def fingerprint(self) -> str:
        """The version of onnxruntime-gpu, where it is installed, and that of the kernel table."""
        table = f"kernels {KernelTable.load().version}"
        installed = _installed_version()
        return f"{_WHEEL} {installed}; {table}" if installed else table


def claim_of(model: onnx.ModelProto) -> Claims:
    """What CUDA would run of a model in memory, whose external data is not read."""
    found = claim_by_kernels(model, CudaBackend.ort_name, KernelTable.load(), refusal_of_provider)
    notes = found.notes
    if left := prefers_cpu(model.graph, found.nodes):
        names = ", ".join(left[:_NAMED]) + (", ..." if len(left) > _NAMED else "")
        notes = (*notes, _LEFT_TO_CPU.format(count=len(left), names=names))
    return Claims(
        nodes=found.nodes,
        refusals=tuple(Refusal(node=node, reason=reason) for node, reason in found.refusals),
        how="predicted",
        notes=notes,
    )


def refusal_of_provider(node: onnx.NodeProto) -> str:
    """Why CUDA leaves a node that it has a kernel for to the CPU; empty where it does not.

    The rules are those of `CUDAExecutionProvider::GetCapability`.
    """
    if node.domain not in STANDARD:
        return ""
    attributes = {each.name: each for each in node.attribute}
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
        names = [one.decode().lower() for one in attributes["activations"].strings]
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


@cache
def _preload() -> None:
    """What is missing shows when the session is created; ORT's function prints it, to no use."""
    preload = getattr(import_onnxruntime(), "preload_dlls", None)
    if preload is not None:
        with contextlib.redirect_stdout(io.StringIO()):
            preload()


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(_WHEEL)
    except PackageNotFoundError:
        return ""


def _why_not() -> str:
    """What keeps sessions with CUDA from being created here; empty where nothing does."""
    try:
        built_in = CudaBackend.ort_name in import_onnxruntime().get_available_providers()
    except AotcError as error:
        return error.line()
    if not built_in:
        return f"{_WHEEL} is not installed"
    return missing_gpu()
