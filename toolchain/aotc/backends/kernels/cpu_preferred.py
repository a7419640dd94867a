"""Nodes that ONNX Runtime keeps on the CPU although the GPU has kernels: they compute shapes.

For nodes that only read values in CPU memory, small constants and graph inputs, the CPU is cheaper
than a copy and a launch.  The rule is that of `GetCpuPreferredNodes` in ONNX Runtime's
`core/framework/fallback_cpu_capability.cc`; which inputs and outputs of CUDA kernels are in CPU
memory is not in the kernel table and is listed here, as far as known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from aotc.backends.kernels.type_names import stated_types, subgraphs

if TYPE_CHECKING:
    import onnx

_OUTPUTS_ON_CPU = frozenset({"Shape", "Size"})
# Indices of inputs that the GPU's own kernel reads from CPU memory.
_INPUTS_ON_CPU: Mapping[str, frozenset[int]] = {
    "ConstantOfShape": frozenset({0}),
    "Expand": frozenset({1}),
    "If": frozenset({0}),
    "Loop": frozenset({0, 1}),
    "OneHot": frozenset({1}),
    "Pad": frozenset({1, 2}),
    "Range": frozenset({0, 1, 2}),
    "Reshape": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Split": frozenset({1}),
    "Squeeze": frozenset({1}),
    "Tile": frozenset({1}),
    "TopK": frozenset({1}),
    "Unsqueeze": frozenset({1}),
}
_MAX_CONSTANT = 100  # elements
_NARROW_FLOATS = ("tensor(float16)", "tensor(bfloat16)", "tensor(float8")


def prefers_cpu(graph: onnx.GraphProto, claimed: Collection[str]) -> tuple[str, ...]:
    """Names of `claimed` nodes, also in subgraphs, that are likely to run on the CPU."""
    return tuple(_preferred_nodes(graph, claimed, frozenset()))


def _preferred_nodes(
    graph: onnx.GraphProto, claimed: Collection[str], outer: frozenset[str]
) -> list[str]:
    types = stated_types(graph)
    anywhere = outer | {value.name for value in graph.input} | set(_small_constants(graph))
    on_cpu: set[str] = set()
    found: list[str] = []
    for node in graph.node:
        for _, subgraph in subgraphs(node):
            found += _preferred_nodes(subgraph, claimed, outer | set(_small_constants(graph)))
        # A refused node runs on the CPU: its outputs from such values stay there.
        refused = node.name not in claimed and not on_cpu.isdisjoint(node.input)
        if refused or (node.name in claimed and node.op_type in _OUTPUTS_ON_CPU):
            on_cpu.update(name for name in node.output if name)
        elif node.name in claimed and _reads_only_cpu(node, on_cpu, anywhere, types):
            found.append(node.name)
            on_cpu.update(name for name in node.output if name)
    return found


def _reads_only_cpu(
    node: onnx.NodeProto,
    on_cpu: Collection[str],
    anywhere: Collection[str],
    types: Mapping[str, str],
) -> bool:
    wanted = _INPUTS_ON_CPU.get(node.op_type, frozenset())
    reads = False
    for index, name in enumerate(node.input):
        if types.get(name, "").startswith(_NARROW_FLOATS):
            return False
        if not name or name in anywhere:
            continue
        if name not in on_cpu or index in wanted:
            return False
        reads = True
    return reads


def _small_constants(graph: onnx.GraphProto) -> list[str]:
    small = [tensor.name for tensor in graph.initializer if math.prod(tensor.dims) <= _MAX_CONSTANT]
    for node in graph.node:
        if node.op_type == "Constant":
            dims = [attribute.t.dims for attribute in node.attribute if attribute.HasField("t")]
            if not dims or math.prod(dims[0]) <= _MAX_CONSTANT:
                small.append(node.output[0])
    return small
