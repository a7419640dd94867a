"""Operators that write an output where an input of theirs is, such as a decoder's caches.

A kernel of one of these reads of the input what the output is to keep, and where both are in one
buffer it copies nothing: ONNX Runtime's kernels of ScatterND, ScatterElements, TensorScatter and
GroupQueryAttention compare the addresses.  A second run in the same buffer, with all other inputs
unchanged, writes the same again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aotc.graph.view import attribute_of, every_graph, every_node, op_of, read_values

if TYPE_CHECKING:
    import onnx

# By operator: which outputs are written where which inputs are.
_WRITTEN: Final[Mapping[str, Mapping[int, int]]] = {
    "com.microsoft::GroupQueryAttention": {1: 3, 2: 4},
    "ScatterElements": {0: 0},
    "ScatterND": {0: 0},
    "TensorScatter": {0: 0},
}
# With another reduction a second run would add to what the first one wrote.
_REPLACES: Final = "none"
OPERATORS: Final = frozenset(_WRITTEN)


def shared_buffers(model: onnx.ModelProto) -> dict[str, str]:
    """By input of the model, the output that may have its buffer, as nothing else reads it."""
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    reads = Counter(name for node in every_node(model) for name in read_values(node))
    reads.update(value.name for graph in every_graph(model) for value in graph.output)
    found: dict[str, str] = {}
    for node in model.graph.node:
        if attribute_of(node, "reduction", _REPLACES) != _REPLACES:
            continue
        for made, read in _WRITTEN.get(op_of(node), {}).items():
            names = (node.input[read : read + 1], node.output[made : made + 1])
            source, target = ("".join(name) for name in names)
            if source in inputs and target in outputs and reads[source] == 1:
                found[source] = target
    return found
