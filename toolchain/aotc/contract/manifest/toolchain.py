"""The software that built an artifact, and the passes that ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from aotc.contract.codec.parsing import Json
from aotc.contract.target import Plugin
from aotc.records import field, record

# The pass of that name counts in `matched` under names that begin so, why it kept nodes.
HALF_PRECISION: Final = "half-precision"
# The name of the pass that quantizes.
QUANTIZE: Final = "quantize"
# Weights are stored in half precision, and all is computed in float32.
STORED_IN_HALF: Final = "store-in-half"
KEPT: Final = "kept: "
# The distributions whose rules fuse graphs for CUDA, and that by which blocks are quantized.
FUSING: Final = ("onnxscript", "onnx-ir")
_BLOCKS: Final = ("onnx-ir",)


@record
class PassRecord:
    """One pass that ran, with its options and its effect."""

    name: str
    options: Mapping[str, Json] = field(default_factory=dict)
    nodes_before: int
    nodes_after: int
    matched: Annotated[Mapping[str, int], "what it found, by name of the pattern"] = field(
        default_factory=dict
    )
    kept: Annotated[tuple[str, ...], "nodes that it left as they were, although it applies"] = ()

    @property
    def fused(self) -> bool:
        """Whether it fused something for CUDA, by rules of the libraries `FUSING`."""
        return self.name.startswith("fuse-") and bool(self.matched)

    @property
    def libraries(self) -> tuple[str, ...]:
        """The distributions that decided what it wrote, beside those of every build."""
        if self.fused:
            return FUSING
        in_blocks = self.name == QUANTIZE and self.options.get("form") == "weights"
        return _BLOCKS if in_blocks else ()


@record
class Toolchain:
    """Versions of the software that built the artifact."""

    aotc: str
    python: str
    onnx: str
    onnxruntime: str
    onnxruntime_build: str = ""
    numpy: str = ""
    onnxscript: Annotated[str, "only if a graph was fused for CUDA"] = ""
    onnx_ir: Annotated[
        str, "only if a graph was fused for CUDA, or weights quantized in blocks"
    ] = ""
    plugins: tuple[Plugin, ...] = ()
