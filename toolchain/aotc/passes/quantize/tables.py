"""Tables of embeddings in integers: rows are looked up as they are stored, and then scaled."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from aotc.passes.quantize.integers import Array, Scheme, add_constant, quantized
from aotc.passes.quantize.scoped_constants import (
    MICROSOFT,
    drop_unread,
    replace_nodes,
    require_domain,
    scopes_of,
)

if TYPE_CHECKING:
    import onnx

_ROWS: Final = Scheme("uint8", "int8", True, False)
# Makes two signed 4-bit integers unsigned: 8 is subtracted where no zero point is given.
_SIGNS: Final = np.uint8(0x88)


def quantize_tables(
    model: onnx.ModelProto, chosen: Collection[str], bits: int, block_size: int
) -> None:
    """Quantize the constant tables of the `chosen` Gather nodes, of shape [rows, columns].

    In 8 bits each row has a scale; in 4 bits, `block_size` columns of a row share one.
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
            if bits == 4:
                packed, scales = _blocks(values, block_size)
                inputs = [
                    add_constant(holder, f"{table}_blocks", packed),
                    places,
                    add_constant(holder, f"{table}_block_scales", scales),
                ]
                lookup = make(
                    "GatherBlockQuantized",
                    inputs,
                    [output],
                    node.name,
                    domain=MICROSOFT,
                    bits=4,
                    block_size=block_size,
                    gather_axis=0,
                    quantize_axis=1,
                )
                made[node.name] = [lookup]
                require_domain(model, MICROSOFT)
                continue
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


def _blocks(values: Array, block_size: int) -> tuple[Array, Array]:
    """Two 4-bit integers a byte, the first in the lower half, and the scales [rows, blocks]."""
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantizer

    packed, scales, _ = DefaultWeightOnlyQuantizer.quantize_ndarray(values, 1, block_size, True)
    return packed.reshape(len(values), -1) ^ _SIGNS, scales
