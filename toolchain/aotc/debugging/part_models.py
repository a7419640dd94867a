"""Parts of a variant as models of their own, beside the source's nodes that they stand for.

Both take the source's values at their inputs and give the source's value at their output, so that
they can be fed alike: what a variant has in integers, in half precision or in another layout is
converted inside of its part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx.external_data_helper import load_external_data_for_tensor

from aotc.blaming.layouts import BLOCKED_DOMAIN
from aotc.blaming.matched_values import MatchedValue, Place
from aotc.engine.values import Data
from aotc.graphs.source_nodes import read_values
from aotc.passes.base import rename_captured
from aotc.records import record


@record(kw_only=False)
class Cut:
    """Nodes of a main graph that make one value, in order, and the values that they are given."""

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]


def cut(graph: onnx.GraphProto, value: str, stops: Collection[str]) -> Cut:
    """The nodes between `stops`, or the graph's inputs, and `value`."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    given = {info.name for info in graph.input}
    given -= {tensor.name for tensor in graph.initializer}
    found: set[int] = set()
    inputs: dict[str, None] = {}
    pending = [value]
    while pending:
        name = pending.pop()
        if name in given or (name in stops and name != value):
            inputs[name] = None
            continue
        index = makers.get(name)
        if index is None or index in found:
            continue
        found.add(index)
        pending += reversed(read_values(graph.node[index]))
    return Cut(tuple(graph.node[index] for index in sorted(found)), tuple(inputs))


class PartModel:
    """A model that is made of some nodes of another, with constants in the model itself."""

    def __init__(self, model: onnx.ModelProto, weights: Path, nodes: Sequence[onnx.NodeProto]):
        self._source = model
        self._weights = weights
        self.model = onnx.ModelProto(ir_version=model.ir_version)
        self.model.opset_import.extend(model.opset_import)
        self.model.functions.extend(model.functions)
        self.model.graph.name = "part"
        self._nodes = [_copy(node) for node in nodes]
        self._before: list[onnx.NodeProto] = []
        self._after: list[onnx.NodeProto] = []

    def given(self, name: str, data: Data, place: Place | None, kind: str) -> None:
        """Add the input `name` with the type of `data`; the nodes read it as the variant has it.

        `kind` is the variant's element type in ONNX Runtime's word, such as `float16`.
        """
        self.model.graph.input.append(_info(name, data))
        inner = place.value if place is not None else name
        steps = _conversions(data, place, kind)
        if not steps:
            if inner != name:
                self._rename(inner, name)
            return
        if inner == name:
            inner = f"{name}/converted"
            self._rename(name, inner)
        self._convert(self._before, name, steps, inner)

    def gives(self, name: str, data: Data, place: Place, kind: str) -> None:
        """Make the value at `place` the output `name`, with the type of `data`."""
        self.model.graph.output.append(_info(name, data))
        steps = _back(data, place, kind)
        inner = place.value
        if not steps:
            if inner != name:
                self._rename(inner, name)
            return
        if inner == name:
            inner = f"{name}/unconverted"
            self._rename(name, inner)
        self._convert(self._after, inner, steps, name)

    def finished(self) -> onnx.ModelProto:
        """The model, with the constants that its nodes read."""
        nodes = [*self._before, *self._nodes, *self._after]
        self.model.graph.node.extend(nodes)
        read = {name for node in nodes for name in read_values(node)}
        for tensor in self._source.graph.initializer:
            if tensor.name in read:
                kept = _copy(tensor)
                if kept.data_location == onnx.TensorProto.EXTERNAL:
                    load_external_data_for_tensor(kept, str(self._weights))
                    kept.data_location = onnx.TensorProto.DEFAULT
                    del kept.external_data[:]
                self.model.graph.initializer.append(kept)
        self.model.graph.sparse_initializer.extend(
            tensor for tensor in self._source.graph.sparse_initializer if tensor.values.name in read
        )
        return self.model

    def _rename(self, name: str, wanted: str) -> None:
        for node in self._nodes:
            for values in (node.input, node.output):
                for at, found in enumerate(values):
                    if found == name:
                        values[at] = wanted
            rename_captured(node, {name: wanted})

    def _convert(
        self,
        nodes: list[onnx.NodeProto],
        name: str,
        steps: Sequence[tuple[str, str, tuple[str, ...], Mapping[str, Any]]],
        wanted: str,
    ) -> None:
        for at, (op, domain, extra, attributes) in enumerate(steps):
            made = wanted if at == len(steps) - 1 else f"{wanted}/step{at}"
            nodes.append(
                onnx.helper.make_node(op, [name, *extra], [made], domain=domain, **attributes)
            )
            name = made


_Step = tuple[str, str, tuple[str, ...], Mapping[str, Any]]
_FLOATS = ("float", "double", "float16", "bfloat16")


def _conversions(data: Data, place: Place | None, kind: str) -> list[_Step]:
    """Steps from the source's value to the variant's."""
    if place is None:
        return []
    rank = len(data.shape)
    steps: list[_Step] = []
    if place.layout == "channels-last" and rank > 2:
        steps.append(("Transpose", "", (), {"perm": [0, *range(2, rank), 1]}))
    if place.scale:
        extra = (place.scale, *((place.zero_point,) if place.zero_point else ()))
        steps.append(("QuantizeLinear", "", extra, {}))
    elif kind in _FLOATS and kind != _kind(data):
        steps.append(("Cast", "", (), {"to": _onnx_type(kind)}))
    if place.layout == "blocked" and rank == 4:
        steps.append(("ReorderInput", BLOCKED_DOMAIN, (), {}))
    return steps


def _back(data: Data, place: Place, kind: str) -> list[_Step]:
    """Steps from the variant's value to the source's."""
    rank = len(data.shape)
    steps: list[_Step] = []
    if place.layout == "blocked" and rank == 4:
        steps.append(("ReorderOutput", BLOCKED_DOMAIN, (), {"channels": int(data.shape[1])}))
    if place.scale:
        extra = (place.scale, *((place.zero_point,) if place.zero_point else ()))
        steps.append(("DequantizeLinear", "", extra, {}))
    elif kind in _FLOATS and kind != _kind(data):
        steps.append(("Cast", "", (), {"to": _onnx_type(_kind(data))}))
    if place.layout == "channels-last" and rank > 2:
        steps.append(("Transpose", "", (), {"perm": [0, rank - 1, *range(1, rank - 1)]}))
    return steps


def _info(name: str, data: Data) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, _onnx_type(_kind(data)), list(data.shape))


def _kind(data: Data) -> str:
    """ONNX Runtime's word for the element type of an array."""
    name = "string" if data.dtype.kind in "OUS" else str(data.dtype.name)
    return {"float32": "float", "float64": "double"}.get(name, name)


def _onnx_type(kind: str) -> int:
    return int(onnx.TensorProto.DataType.Value(kind.upper()))


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def stops_of(
    matched: Sequence[MatchedValue], inner: Collection[str]
) -> tuple[set[str], dict[str, MatchedValue]]:
    """Names of the source's values at which parts end, and by the variant's names: whose they are.

    Those of `inner` are inside.
    """
    outside = [value for value in matched if value.name not in inner]
    return {value.name for value in outside}, {value.place.value: value for value in outside}
