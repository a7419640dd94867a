"""Store weights in float16 or bfloat16 that are computed with in float32.

ONNX Runtime's CPU has few kernels for half precision, and casts before and after each.  So only the
stored weights change: a cast makes each one float32 again, which ONNX Runtime folds when it loads
the graph, at any level but `disable`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from aotc.base.records import field, record
from aotc.graph.passes.base import Pass, all_names, cast_node, free_name, set_nodes, walk_graphs
from aotc.precision.half_types import HALF_TYPES, HalfName
from aotc.spec.variant import STORED_IN_HALF

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

    from aotc.precision.half_conversion import Read


_FLOAT: Final = 1
# A cast takes about as many bytes as a smaller weight would save.
MIN_BYTES: Final = 1024

# A graph, as its place in `walk_graphs`, and the name of its initializer: two bodies
# may both have one of that name.
Weight = tuple[int, str]


@record
class StoreInHalf(Pass):
    """Change weights of the main graph and of bodies; `kept` are those that stay.

    `read` returns the values of a tensor, which may be external.  Raises `RuntimeError` for one
    that the type does not hold: `kept` has to name it.
    """

    name = STORED_IN_HALF

    to: HalfName
    read: Read
    kept: frozenset[Weight] = field(default_factory=frozenset)
    # Weights are cast by nodes, and stay where they are: for graphs that are run once.
    cast_constants: bool = False

    def options(self) -> dict[str, object]:
        """The type, and that of what is computed; what is kept stands in the record beside it."""
        return {"to": self.to, "computed_in": "float32"}

    def apply(self, model: onnx.ModelProto) -> None:
        half = HALF_TYPES[self.to]
        used = all_names(model)
        # Bodies are found after the nodes around them are replaced by copies.
        for at, graph in enumerate(walk_graphs(model)):
            casts = []
            for tensor in list(large_weights(graph)):
                if (at, tensor.name) in self.kept:
                    continue
                stored = free_name(f"{tensor.name}_{self.to}", used)
                casts.append(cast_node(stored, tensor.name, _FLOAT, used))
                if self.cast_constants:
                    full = free_name(f"{tensor.name}_float32", used)
                    casts.insert(-1, cast_node(full, stored, half.onnx_type, used))
                    tensor.name = full
                else:
                    values = self.read(tensor)
                    if not half.holds(values):
                        raise RuntimeError(f"{self.to} does not hold the values of {tensor.name}")
                    tensor.CopyFrom(half.tensor(values, stored))
            set_nodes(graph, [*casts, *graph.node])


def large_weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The float32 initializers of one graph that are worth a cast; no defaults of inputs."""
    given = {value.name for value in graph.input}
    for tensor in graph.initializer:
        size = 4 * math.prod(tensor.dims)
        if tensor.data_type == _FLOAT and size >= MIN_BYTES and tensor.name not in given:
            yield tensor
