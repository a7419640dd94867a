"""Convert a model to an older operator set, node by node, where that means the same.

A newer opset can cost a kernel: an execution provider that has the operator's older version only
leaves the node to the CPU.  Most new versions of an operator merely admit more types.
Cases: the older schema has all that the node uses (nothing changes, or attributes at their default
that it lacks are dropped); the onnx package's version converter has an adapter (the node is
replaced by what it makes); neither (the model is not converted, and `obstacles` says why).
Nodes of bodies and of functions are converted too.  What is external stays external.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, MutableSequence
from typing import TYPE_CHECKING

from aotc.contract.operator_domains import STANDARD
from aotc.passes.base import Pass, walk_nodes
from aotc.passes.convert_opset.adapter import adapted
from aotc.passes.convert_opset.known_values import Values, without_weights
from aotc.passes.convert_opset.meaning import gap, lost
from aotc.records import record

if TYPE_CHECKING:
    import onnx

    # As protobuf gives them, to change in place.
    Nodes = MutableSequence[onnx.NodeProto]

LOWEST = 13
_TOLD = 5


@record
class ConvertOpset(Pass):
    """`to`: the version of the ONNX standard's operators, not above the model's own."""

    to: int

    name = "convert-opset"

    def requires(self, model: onnx.ModelProto) -> str:
        return "; ".join(obstacles(model, self.to)[:_TOLD])

    def apply(self, model: onnx.ModelProto) -> None:
        _convert(model, self.to)

    def ensures(self, model: onnx.ModelProto) -> str:
        names = [node.name for node in walk_nodes(model)]
        if opset_of(model) != self.to:
            return f"the opset is {opset_of(model)}"
        return "" if len(set(names)) == len(names) else "names are not unique"


def opset_of(model: onnx.ModelProto | onnx.FunctionProto) -> int:
    """The version of the ONNX standard's operators that is imported; 0 where none is."""
    return max((each.version for each in model.opset_import if each.domain in STANDARD), default=0)


def obstacles(model: onnx.ModelProto, to: int) -> tuple[str, ...]:
    """Why `model` cannot be converted to opset `to`, one line a node; empty where it can."""
    found = opset_of(model)
    if not LOWEST <= to <= found:
        return (f"opset {to} is not within {LOWEST}..{found}",)
    return _convert(without_weights(model), to)


def choose_opset(
    model: onnx.ModelProto, count_refused: Callable[[onnx.ModelProto], int], lowest: int = LOWEST
) -> int | None:
    """The older opset at which the fewest nodes are refused, the highest of those; None: keep.

    `count_refused` says how many nodes of a model an execution provider would not run.  It is given
    copies whose large initializers hold no data.  `model` is not changed.
    """
    light = without_weights(model)
    fewest, chosen = count_refused(light), None
    for opset in range(opset_of(model) - 1, max(lowest, LOWEST) - 1, -1):
        if fewest == 0:
            break
        trial = type(model)()
        trial.CopyFrom(light)
        if _convert(trial, opset):
            break
        refused = count_refused(trial)
        if refused < fewest:
            fewest, chosen = refused, opset
    return chosen


def _convert(model: onnx.ModelProto, to: int) -> tuple[str, ...]:
    """Convert in place; what stands against it, in which case `model` is half converted."""
    values = Values(model)
    taken = {node.name for node in walk_nodes(model)}
    troubles: list[str] = []
    for nodes, opset in _node_lists(model):
        if opset <= to:
            continue
        converted: list[onnx.NodeProto] = []
        replaced = False
        for node in nodes:
            made, trouble = _convert_node(node, opset, to, values)
            replaced |= made is not None
            converted += [node] if made is None else _named(made, node, taken)
            troubles += [f"{node.name}: {trouble}"] if trouble else []
        if replaced:
            kept = [copy.deepcopy(node) for node in converted]
            del nodes[:]
            nodes.extend(kept)
    for imports in (model.opset_import, *(each.opset_import for each in model.functions)):
        for entry in imports:
            if entry.domain in STANDARD:
                entry.version = min(entry.version, to)
    return tuple(troubles) or _type_troubles(model)


def _node_lists(model: onnx.ModelProto) -> Iterator[tuple[Nodes, int]]:
    """Every list of nodes with the opset it is written in; bodies before what holds them."""
    yield from _with_bodies(model.graph.node, opset_of(model))
    for function in model.functions:
        yield from _with_bodies(function.node, opset_of(function))


def _with_bodies(nodes: Nodes, opset: int) -> Iterator[tuple[Nodes, int]]:
    for node in nodes:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _with_bodies(body.node, opset)
    yield nodes, opset


def _convert_node(
    node: onnx.NodeProto, opset: int, to: int, values: Values
) -> tuple[list[onnx.NodeProto] | None, str]:
    """What replaces `node` at opset `to` (None: it stays), and what stands against it."""
    import onnx

    if node.domain not in STANDARD:
        return None, ""
    try:
        source = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return None, f"{node.op_type} is no operator of opset {opset}"
    try:
        target = onnx.defs.get_schema(node.op_type, to)
    except onnx.defs.SchemaError:
        return None, f"opset {to} has no {node.op_type}"
    if source.since_version == target.since_version:
        return None, ""
    if missing := lost(node, source, target):
        return None, f"{node.op_type}-{target.since_version} has {missing}"
    if asked := gap(node, source, target):
        made = adapted(node, opset, to, values)
        return made, f"{node.op_type}-{target.since_version} {asked}" if made is None else ""
    kept = [copy.deepcopy(each) for each in node.attribute if each.name in target.attributes]
    if len(kept) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)
    return None, ""


def _named(
    made: list[onnx.NodeProto], node: onnx.NodeProto, taken: set[str]
) -> list[onnx.NodeProto]:
    """Unique names: the node that makes the first output keeps the name of what it replaces."""
    for index, one in enumerate(made):
        if node.output[0] in one.output:
            one.name = node.name
            continue
        stem = f"{node.name}_opset"
        number = next(n for n in itertools.count(index) if f"{stem}_{n}" not in taken)
        one.name = f"{stem}_{number}"
        taken.add(one.name)
    return made


def _type_troubles(model: onnx.ModelProto) -> tuple[str, ...]:
    """Whether a type is not one that the operators of the model's opset admit."""
    import onnx

    try:
        onnx.shape_inference.infer_shapes(without_weights(model), check_type=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        return (str(error).strip().partition("\n")[0],)
    return ()
