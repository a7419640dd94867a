"""Which value of a variant is which value of its source.

Rewrites keep the names of the values that they still compute.  Kernels for integers and for other
layouts of images give theirs other names: they are found by the quantizer's endings, and by the
names of nodes, which ONNX Runtime keeps or derives from them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aotc.blaming.layouts import BLOCKED_DOMAIN, Layout, layouts
from aotc.blaming.quantized_values import scales, without_ending
from aotc.graphs.source_nodes import SourceOrder, shared_values
from aotc.partitioning.graph import captured_values, op_of, subgraphs_of
from aotc.records import record

if TYPE_CHECKING:
    import onnx

# ONNX Runtime's endings of names that are used again, and of nodes for channels in blocks, which
# have the name of a value.
_AGAIN: Final = re.compile(r"_token_\d+$")
_BLOCKED: Final = "_nchwc"
# What may have been fused into the node before it, which keeps its name.
_ACTIVATIONS: Final = frozenset(
    {"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"}
)


@record(kw_only=False)
class Place:
    """Where a variant has a value of its source.

    If it has it in integers, `scale` and `zero_point` name constants of the variant.
    """

    value: str
    scale: str = ""
    zero_point: str = ""
    layout: Layout | None = None


@record
class MatchedValue:
    """A value of the source, and where the variant has it.

    `reads` are the matched values of the source on which it depends directly, and `covers` the
    nodes between.
    """

    name: str
    node: str
    op: str
    place: Place
    variant_node: str
    reads: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()


def matched_values(
    source: onnx.ModelProto, variant: onnx.ModelProto
) -> tuple[tuple[MatchedValue, ...], int]:
    """The values that nodes of both main graphs make, in the source's order; how many are not.

    What is inside of control flow is not seen, and counts as not matched.  Constants do not count.
    """
    renamed = _Renamed(source.graph, variant.graph)
    found = {
        **renamed.by_node(),
        **renamed.by_ending(),
        **{name: Place(name) for name in shared_values(source.graph, variant.graph)},
        **renamed.quantized_at_once(),
    }
    makers = {name: node.name for node in variant.graph.node for name in node.output if name}
    way = SourceOrder(source.graph)
    matched: list[MatchedValue] = []
    unmatched = 0
    for node in source.graph.node:
        unmatched += _inner_values(node)
        if node.op_type == "Constant":
            continue
        for name in node.output:
            if not name:
                continue
            if name not in found:
                unmatched += 1
                continue
            covers, reads = way.behind((name,), found)
            matched.append(
                MatchedValue(
                    name=name,
                    node=node.name,
                    op=op_of(node),
                    place=found[name],
                    variant_node=makers.get(name) or makers[found[name].value],
                    reads=reads,
                    covers=covers,
                )
            )
    return tuple(matched), unmatched


def _inner_values(node: onnx.NodeProto) -> int:
    """How many values nodes inside of a node's subgraphs make."""
    count = 0
    for attribute in node.attribute:
        for subgraph in subgraphs_of(attribute):
            for inner in subgraph.node:
                count += sum(map(bool, inner.output)) + _inner_values(inner)
    return count


class _Renamed:
    """Values of a source that its variant has under other names."""

    def __init__(self, source: onnx.GraphProto, variant: onnx.GraphProto) -> None:
        self.variant = variant
        self.makers = {name: node for node in source.node for name in node.output if name}
        self.nodes = {node.name: node for node in source.node}
        self.names = {_AGAIN.sub("", node.name) for node in variant.node}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in source.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.scales = scales(variant)
        self.layouts = layouts(variant)

    def by_ending(self) -> dict[str, Place]:
        """Quantized and dequantized values that have the name of the source's, and an ending."""
        quantized: dict[str, Place] = {}
        plain: dict[str, Place] = {}
        for node in self.variant.node:
            for value in node.output:
                stem = without_ending(value)
                if stem == value or stem not in self.makers:
                    continue
                if value in self.scales:
                    quantized.setdefault(stem, self._place(value))
                elif node.op_type == "DequantizeLinear":
                    plain.setdefault(stem, self._place(value))
        return {**plain, **quantized}

    def by_node(self) -> dict[str, Place]:
        """Values of nodes that have the name of the source's, in integers or another layout."""
        found: dict[str, Place] = {}
        for node in self.variant.node:
            if not node.output or not node.output[0]:
                continue
            value = node.output[0]
            if value not in self.scales and value not in self.layouts:
                continue
            if node.domain == BLOCKED_DOMAIN and node.name.removesuffix(_BLOCKED) in self.makers:
                start = node.name.removesuffix(_BLOCKED)
            elif node.op_type != "QuantizeLinear" and (own := self._own(node)) is not None:
                start = own.output[0]
            else:
                continue
            found[self._with_fused(start, node)] = self._place(value)
        return found

    def quantized_at_once(self) -> dict[str, Place]:
        """By value that only QuantizeLinear reads: what that makes of it.

        Quantizers drop a Relu whose effect the bounds of the integers have as well, so that the
        value itself is another one than in the source.
        """
        others = {value.name for value in self.variant.output}
        found: dict[str, Place] = {}
        for node in self.variant.node:
            if node.op_type == "QuantizeLinear" and node.output[0] in self.scales:
                found.setdefault(node.input[0], self._place(node.output[0]))
                continue
            others.update(node.input)
            for attribute in node.attribute:
                for subgraph in subgraphs_of(attribute):
                    others |= captured_values(subgraph)
        return {name: place for name, place in found.items() if name not in others}

    def _place(self, value: str) -> Place:
        scale, zero_point = self.scales.get(value, ("", ""))
        return Place(value, scale, zero_point, self.layouts.get(value))

    def _own(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The source's node that a node of the variant is named after."""
        return self.nodes.get(node.name) or self.nodes.get(_AGAIN.sub("", node.name))

    def _with_fused(self, value: str, node: onnx.NodeProto) -> str:
        """The value that a node makes which began as the one that makes `value`."""
        fusible: set[str] = set()
        if "Conv" in node.op_type:
            # Its weights have taken it in.
            fusible.add("BatchNormalization")
        if node.op_type.startswith(("QLinear", "QGemm")) or _has_activation(node):
            fusible |= _ACTIVATIONS
        if node.domain == BLOCKED_DOMAIN and len(node.input) > 3 and node.input[3]:
            fusible.add("Add")
        return last_fused(value, self.makers, self.readers, fusible, self.names)


def _has_activation(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "activation" for attribute in node.attribute)


def last_fused(
    value: str,
    makers: Mapping[str, onnx.NodeProto],
    readers: Mapping[str, Sequence[onnx.NodeProto]],
    fusible: set[str],
    names: set[str],
) -> str:
    """The last value after `value`, each the only thing read of the one before by a fused node.

    Each kind in `fusible` is fused once; nodes in `names` are still there.
    """
    left = set(fusible)
    if value in makers and makers[value].op_type in _ACTIVATIONS:
        left -= _ACTIVATIONS
    while True:
        after = readers.get(value, ())
        if len(after) != 1 or after[0].op_type not in left or after[0].name in names:
            return value
        left -= _ACTIVATIONS if after[0].op_type in _ACTIVATIONS else {after[0].op_type}
        value = after[0].output[0]
