"""Remove initializers from the graph inputs.

Up to IR version 3 every initializer had to be a graph input as well; later that means that a caller
may override it, which prevents constant folding.  Cases: IR 3 (raised to 4, which allows
initializers that are not inputs); an overridable initializer in IR 4 and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.passes.base import Pass

if TYPE_CHECKING:
    import onnx


@record
class ConstantInputs(Pass):
    """Make initializers constants."""

    name = "constant-inputs"

    def apply(self, model: onnx.ModelProto) -> None:
        constant = {tensor.name for tensor in model.graph.initializer}
        kept = [value for value in model.graph.input if value.name not in constant]
        if len(kept) < len(model.graph.input):
            del model.graph.input[:]
            model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)

    def ensures(self, model: onnx.ModelProto) -> str:
        constant = {tensor.name for tensor in model.graph.initializer}
        remaining = constant & {value.name for value in model.graph.input}
        return f"still inputs: {sorted(remaining)[:3]}" if remaining else ""
