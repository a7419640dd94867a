"""Compute in float64 what is computed in float32: the exact side of a comparison.

Inputs and outputs keep their types.  What ONNX Runtime's CPU has no float64 kernel for stays in
float32 between casts, as do control flow, quantized operators and what is random.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aotc.backends.kernels.kernel_claims import claim_by_kernels
from aotc.backends.kernels.table import KernelTable
from aotc.backends.kernels.type_names import stated_types
from aotc.contract.known_providers import CPU
from aotc.partitioning.graph import subgraphs_of
from aotc.passes.base import Pass
from aotc.passes.half_precision import retype, what_is_untyped
from aotc.passes.half_precision.slots import FLOAT
from aotc.passes.half_precision.typed_graph import typed_graph
from aotc.records import field, record

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from aotc.passes.half_precision import Read

_TENSOR: Final = "tensor(double)"
# What the first draw differs by type; the others have a kernel that refuses to run.
_KEPT: Final = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormalLike", "RandomUniformLike"}
    | {"GRU", "LSTM"}
)
# Each round keeps more nodes, and most need one.
_MAX_ROUNDS: Final = 8


class _Double:
    """float64, as the rewrite asks for it."""

    name = "float64"
    tensor_name = _TENSOR
    onnx_type = 11

    def tensor(self, values: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
        """A tensor of `values` in float64."""
        import numpy as np
        import onnx

        return onnx.numpy_helper.from_array(values.astype(np.float64), name)


@record
class DoubleTwin(Pass):
    """Change a model whose values all have types; `kept` are names of nodes that stay in float32.

    `read` returns the values of a tensor, which may be external.  Without it only types are
    changed, which is enough to ask which kernels there are.
    """

    name = "float64-twin"

    kept: frozenset[str] = field(default_factory=frozenset)
    read: Read | None = None

    def options(self) -> dict[str, object]:
        """None: what is kept follows from the kernels."""
        return {}

    def requires(self, model: onnx.ModelProto) -> str:
        return what_is_untyped(model.graph)

    def apply(self, model: onnx.ModelProto) -> None:
        flow = {node.name for node in model.graph.node if any(map(subgraphs_of, node.attribute))}
        graph = typed_graph(model, _TENSOR, CPU)
        retype(graph, _Double(), CPU, self.kept | flow, self.read)


def without_float64(model: onnx.ModelProto) -> dict[str, str]:
    """Operators of the nodes that read or make float32 and cannot change, by node.

    The names of nodes are unique, and all values have types.
    """
    import onnx

    graph = typed_graph(model, _TENSOR, CPU)
    kept = {
        node.name: node.op_type
        for index, node in enumerate(graph.nodes)
        if graph.touches_float(index)
        and node.op_type != "Constant"
        and (not graph.slots[index] or node.op_type in _KEPT)
    }
    changing = {node.name: node.op_type for node in graph.nodes if node.name not in kept}
    for _ in range(_MAX_ROUNDS):
        trial = onnx.ModelProto()
        trial.CopyFrom(model)
        DoubleTwin(kept=frozenset(kept)).apply(trial)
        # In float32 ONNX Runtime may replace an operator by others that it has; then it is kept.
        claims = claim_by_kernels(trial, CPU, KernelTable.load(), lambda node: "")
        refused = {name: changing[name] for name, _ in claims.refusals if name in changing}
        refused = {name: op for name, op in refused.items() if name not in kept}
        if not refused:
            break
        kept.update(refused)
    return kept


def changes_nothing(model: onnx.ModelProto) -> bool:
    """Whether no value of the model is float32."""
    return FLOAT not in stated_types(model.graph).values()
