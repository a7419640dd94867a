"""Fix named free dims of the graph inputs to one size.

With static shapes ONNX Runtime folds the nodes that compute shapes.
Cases: a dim with a name; a dim with neither name nor size, addressed as `INPUT.INDEX`.
Outputs and inner values with a fixed dim get its size too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass

if TYPE_CHECKING:
    import onnx


@record
class FixDims(Pass):
    """`sizes`: size by dim name."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    name = "fix-dims"

    def apply(self, model: onnx.ModelProto) -> None:
        for value in model.graph.input:
            for index, dim in enumerate(value.type.tensor_type.shape.dim):
                label = dim.dim_param if dim.dim_param not in ("", "?") else f"{value.name}.{index}"
                fixed = dim.HasField("dim_value") and dim.dim_value >= 0
                if not fixed and label in self.sizes:
                    dim.dim_value = self.sizes[label]
        for value in (*model.graph.output, *model.graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in self.sizes:
                    dim.dim_value = self.sizes[dim.dim_param]

    def ensures(self, model: onnx.ModelProto) -> str:
        left = [
            dim.dim_param
            for value in model.graph.input
            for dim in value.type.tensor_type.shape.dim
            if dim.dim_param in self.sizes
        ]
        return f"still free: {left}" if left else ""
