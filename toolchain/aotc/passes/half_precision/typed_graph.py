"""A main graph as half precision sees it: types, producers, consumers and slots of its values."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from aotc.backends.kernels.type_names import stated_types, subgraphs
from aotc.contract.operator_domains import STANDARD
from aotc.partitioning.graph import captured_values
from aotc.passes.half_precision.slots import FLOAT, Slots, slots_of
from aotc.records import field, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnx

# They move numbers and compute none.
MOVING: Final = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Identity",
        "Pad",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
        "Where",
    }
)


@record(frozen=False)
class TypedGraph:
    """The nodes of a main graph by position, and who makes and reads each float32 value."""

    model: onnx.ModelProto
    types: Mapping[str, str]
    slots: Sequence[Slots]
    producer: Mapping[str, int]
    readers: Mapping[str, Sequence[int]]
    constants: Mapping[str, onnx.TensorProto]
    outputs: frozenset[str]
    captured: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes in order."""
        return self.model.graph.node

    def is_float(self, name: str) -> bool:
        """Whether a value is a tensor of float32."""
        return self.types.get(name) == FLOAT

    def touches_float(self, index: int) -> bool:
        """Whether a node reads or makes float32, itself or in its subgraphs."""
        node = self.nodes[index]
        names = (*node.input, *node.output, *self.captured.get(index, ()))
        return any(self.is_float(name) for name in names)


def typed_graph(model: onnx.ModelProto, half: str, ep: str) -> TypedGraph:
    """Describe the main graph of `model`, which states the types of all values."""
    types = stated_types(model.graph)
    opsets = {
        "" if entry.domain in STANDARD else entry.domain: entry.version
        for entry in model.opset_import
    }
    readers: dict[str, list[int]] = defaultdict(list)
    producer: dict[str, int] = {}
    captured: dict[int, frozenset[str]] = {}
    slots = []
    # Before IR version 4, initializers are defaults of inputs.
    given = {value.name for value in model.graph.input}
    for index, node in enumerate(model.graph.node):
        inner = frozenset(captured_names(node))
        if inner:
            captured[index] = inner
        for name in dict.fromkeys((*node.input, *sorted(inner))):
            if name:
                readers[name].append(index)
        for name in node.output:
            producer[name] = index
        has_bodies = any(True for _ in subgraphs(node))
        slots.append(Slots() if has_bodies else slots_of(node, types, opsets, half, ep))
    return TypedGraph(
        model=model,
        types=types,
        slots=slots,
        producer=producer,
        readers=readers,
        constants={
            tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in given
        },
        outputs=frozenset(value.name for value in model.graph.output),
        captured=captured,
    )


def captured_names(node: onnx.NodeProto) -> Iterator[str]:
    """The outer values that the subgraphs of a node read."""
    for _, graph in subgraphs(node):
        yield from captured_values(graph)


def lift_constants(model: onnx.ModelProto) -> None:
    """Turn the main graph's `Constant` nodes of float32 into initializers."""
    import onnx

    kept = []
    for node in model.graph.node:
        found = _constant(node) if node.op_type == "Constant" else None
        if found is None:
            kept.append(node)
            continue
        found.name = node.output[0]
        model.graph.initializer.append(found)
    if len(kept) < len(model.graph.node):
        model.ir_version = max(model.ir_version, onnx.Version.IR_VERSION_2017_11_3 + 1)
        del model.graph.node[:]
        model.graph.node.extend(kept)


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    import numpy as np
    import onnx

    for attribute in node.attribute:
        if attribute.name == "value" and attribute.t.data_type == onnx.TensorProto.FLOAT:
            made = onnx.TensorProto()
            made.CopyFrom(attribute.t)
            return made
        if attribute.name in ("value_float", "value_floats"):
            single = attribute.name == "value_float"
            values = attribute.f if single else list(attribute.floats)
            return onnx.numpy_helper.from_array(np.array(values, np.float32))
    return None
