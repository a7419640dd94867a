"""Passes after ONNX Runtime's optimizer: its casts, and the layout of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import record
from aotc.graph.passes.base import Pass, set_nodes
from aotc.graph.view import every_graph, every_node
from aotc.spec.providers import MICROSOFT

if TYPE_CHECKING:
    import onnx

    Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]


# Remove the casts to float32 that ONNX Runtime's optimizer inserts for its CPU provider.
#
# Where its CPU has no half-precision kernel, ONNX Runtime computes in float32 and writes the casts
# into the graph that it saves.  For a provider with such a kernel they cost time and memory, and
# the
# float32 between them is not the model's precision.
# Rule: ONNX Runtime names the float32 twin of a value X `InsertedPrecisionFreeCast_X`, and the cast
# between the two like its output.


_PREFIX: Final = "InsertedPrecisionFreeCast_"


@record
class DropInsertedCasts(Pass):
    """Remove inserted casts; without options.  A graph without such casts stays unchanged."""

    name = "drop-inserted-casts"

    def apply(self, model: onnx.ModelProto) -> None:
        twins = {
            node.output[0]: node.input[0]
            for node in every_node(model)
            if _is_inserted(node) and not node.input[0].startswith(_PREFIX)
        }
        for graph in every_graph(model):
            _remove_casts(graph, twins)

    def ensures(self, model: onnx.ModelProto) -> str:
        return "casts are left" if has_inserted_casts(model) else ""


def has_inserted_casts(model: onnx.ModelProto) -> bool:
    """Whether ONNX Runtime inserted casts into the graph or one of its subgraphs.

    A cast may have been merged with one of the model's; the names of its values show it.
    """
    return any(
        name.startswith(_PREFIX)
        for node in every_node(model)
        for name in (*node.input, *node.output)
    )


def types_agree(model: onnx.ModelProto, source: onnx.ModelProto) -> bool:
    """Whether values have the same types as in `source`, and each operator accepts them.

    They may not if ONNX Runtime merged one of its casts with one of the model's, all of which must
    still exist or be folded to constants.  Types are as inferred by ONNX, which knows no operators
    of other domains; values of one graph only are not compared.
    """
    import onnx

    remaining = {node.name for node in every_node(model)}
    folded = {tensor.name for tensor in model.graph.initializer}
    for node in every_node(source):
        if node.op_type == "Cast" and node.name not in remaining and node.output[0] not in folded:
            return False
    try:
        found = _types(model, strict=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return False
    expected = _types(source, strict=False)
    return all(expected.get(name, kind) == kind for name, kind in found.items())


def _types(model: onnx.ModelProto, *, strict: bool) -> dict[str, int]:
    """Element types of the main graph's values; raises what ONNX's inference raises."""
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    graph = onnx.shape_inference.infer_shapes(bare, check_type=strict, strict_mode=strict).graph
    return {value.name: value.type.tensor_type.elem_type for value in graph.value_info}


def _is_inserted(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and node.name.startswith(_PREFIX)


def _remove_casts(graph: onnx.GraphProto, twins: dict[str, str]) -> None:
    kept = [node for node in graph.node if not _is_inserted(node)]
    for node in kept:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name.startswith(_PREFIX):
                    names[index] = twins.get(name, name.removeprefix(_PREFIX))
    set_nodes(graph, kept)
    infos = [info for info in graph.value_info if not info.name.startswith(_PREFIX)]
    del graph.value_info[:]
    graph.value_info.extend(infos)


# Store the weights of matrix products as their transposes, for kernels that read both along K.
#
# On NVIDIA GPUs with compute capability 9.0, cuBLAS multiplies float32 in TF32 faster if both
# operands lie along the summed axis: `FusedMatMul` with `transB` takes weights so.  In half
# precision
# it makes no difference (ADR 34).


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
