"""Store the weights of matrix products as their transposes, for kernels that read both along K.

On NVIDIA GPUs with compute capability 9.0, cuBLAS multiplies float32 in TF32 faster if both
operands lie along the summed axis: `FusedMatMul` with `transB` takes weights so.  In half precision
it makes no difference (ADR 34).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import record
from aotc.graph.passes.base import Pass
from aotc.graph.view import every_node
from aotc.spec.providers import MICROSOFT

if TYPE_CHECKING:
    import onnx

    Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]


_FLOAT: Final = 1
_MATRIX: Final = 2


@record
class TransposeWeights(Pass):
    """Products of the main graph with a constant float32 matrix that nothing else reads.

    `read` returns the values of a tensor, which may be external.
    """

    name = "transpose-weights"

    read: Read

    def options(self) -> dict[str, object]:
        """None."""
        return {}

    def apply(self, model: onnx.ModelProto) -> None:
        import onnx

        weights = {tensor.name: tensor for tensor in model.graph.initializer}
        products = products_with_weights(model)
        done = set()
        for node in products:
            tensor = weights[node.input[1]]
            if tensor.name not in done:
                done.add(tensor.name)
                values = np.ascontiguousarray(self.read(tensor).T)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
            node.op_type, node.domain = "FusedMatMul", MICROSOFT
            node.attribute.append(onnx.helper.make_attribute("transB", 1))
        if products and all(item.domain != MICROSOFT for item in model.opset_import):
            model.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))

    def ensures(self, model: onnx.ModelProto) -> str:
        left = products_with_weights(model)
        return f"{left[0].name} is left" if left else ""


def products_with_weights(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """`MatMul` of a value with a float32 matrix that only such products read, and only there."""
    graph = model.graph
    matrices = {
        tensor.name
        for tensor in graph.initializer
        if tensor.data_type == _FLOAT and len(tensor.dims) == _MATRIX
    }
    matrices -= {value.name for value in (*graph.input, *graph.output)}
    found = [
        node
        for node in graph.node
        if node.op_type == "MatMul" and not node.domain and node.input[1] in matrices
    ]
    reads = Counter(name for node in every_node(model) for name in node.input)
    own = Counter(node.input[1] for node in found)
    return [node for node in found if reads[node.input[1]] == own[node.input[1]]]
