"""Weights of products in blocks of 4- or 8-bit integers: `com.microsoft::MatMulNBits`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from aotc.passes.base import walk_graphs, walk_nodes
from aotc.passes.quantize.scoped_constants import drop_unread

if TYPE_CHECKING:
    import onnx


def quantize_blocks(
    model: onnx.ModelProto, chosen: Collection[str], bits: int, block_size: int
) -> None:
    """Quantize the `chosen` MatMul nodes; `block_size` weights along the summed axis share a scale.

    Raises `ImportError` where a library of the quantizer is not installed.
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    if not chosen:
        return
    left = [node.name for node in walk_nodes(model) if node.name not in chosen]
    quantizer = MatMulNBitsQuantizer(
        model, bits=bits, block_size=block_size, is_symmetric=True, nodes_to_exclude=left
    )
    quantizer.process()
    # Products that share weights have them quantized once each, under the same names.
    for graph in walk_graphs(model):
        seen: set[str] = set()
        for index, tensor in reversed(list(enumerate(graph.initializer))):
            if tensor.name in seen:
                del graph.initializer[index]
            seen.add(tensor.name)
    drop_unread(model)
