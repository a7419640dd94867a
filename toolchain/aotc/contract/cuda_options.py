"""What a profile says of CUDA: how graphs are rewritten for it, and which sizes are captured."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from aotc.contract.codec.parsing import Bounds
from aotc.records import record

# Operators whose outputs have sizes that depend on values: ONNX Runtime tries to capture them, and
# fails in a way that may leave the device unusable for the process.
SIZED_BY_VALUES: Final = frozenset(
    {"NonZero", "Compress", "Unique", "NonMaxSuppression", "StringSplit"}
)

Fusion = Literal["auto", "none"]
Layout = Literal["auto", "nhwc", "nchw"]
Search = Literal["repeatable", "exhaustive"]
Attention = Literal["auto", "without-cudnn"]
Capture = Literal["none", "sizes", "calls"]
RefusedCapture = Literal["fail", "run"]


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
    refused: Annotated[
        RefusedCapture,
        "if ONNX Runtime refuses to capture (control flow, nodes on the CPU): fail, or run without",
    ] = "fail"


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
    search: Annotated[
        Search,
        "of convolution algorithms: repeatable takes cuDNN's heuristic; exhaustive measures them "
        "at warm-up, which may choose and round differently each time",
    ] = "repeatable"
    attention: Annotated[
        Attention,
        "kernels of fused attention: auto is ONNX Runtime's choice, which in half precision from "
        "compute capability 9.0 on is cuDNN, planned anew at each new size; without-cudnn takes "
        "those that need no plan",
    ] = "auto"
    graphs: GraphOptions = GraphOptions()
