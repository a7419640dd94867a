"""Tables of embeddings in integers: rows are looked up as they are stored, and then scaled."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from aotc.passes.quantize.integers import Scheme, add_constant, quantized
from aotc.passes.quantize.scoped_constants import (
    drop_unread,
    replace_nodes,
    scopes_of,
)

if TYPE_CHECKING:
    import onnx

_ROWS: Final = Scheme("uint8", "int8", True, False)


def quantize_tables(model: onnx.ModelProto, chosen: Collection[str]) -> None:
    """Quantize the constant tables of the `chosen` Gather nodes, of shape [rows, columns].

    Each row has a scale.
    """
    import onnx

    make = onnx.helper.make_node
    for scope in scopes_of(model.graph):
        made = {}
        for node in scope.graph.node:
            if node.op_type != "Gather" or node.name not in chosen:
                continue
            table, places, output = node.input[0], node.input[1], node.output[0]
            found = scope.constant(table)
            assert found is not None
            tensor, holder = found
            values = onnx.numpy_helper.to_array(tensor)
            rows = quantized(values, _ROWS, 0)
            add_constant(holder, f"{table}_rows", rows.values)
            add_constant(holder, f"{table}_row_scales", rows.scale.reshape(-1, 1))
            integers, cast, scale = (f"{output}_{what}" for what in ("rows", "float", "scales"))
            to = onnx.TensorProto.FLOAT
            made[node.name] = [
                make("Gather", [f"{table}_rows", places], [integers], node.name, axis=0),
                make("Gather", [f"{table}_row_scales", places], [scale], f"{node.name}_s", axis=0),
                make("Cast", [integers], [cast], f"{node.name}_cast", to=to),
                make("Mul", [cast, scale], [output], f"{node.name}_scaled"),
            ]
        replace_nodes(scope.graph, made)
    drop_unread(model)
