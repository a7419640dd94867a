"""Convert a model to an older operator set, node by node, where that keeps the meaning.

A newer opset can cost a kernel: an execution provider with a kernel for the operator's older
version only leaves the node to the CPU.  Most new versions of an operator merely allow more types.
Cases: the older schema has everything that the node uses (nothing changes, except that attributes
which it lacks are dropped at their default); the onnx package's version converter has an adapter
(the node is replaced by its result); neither (the model is not converted, and `obstacles` says
why).  Nodes of subgraphs and of functions are converted too.  External data stays external.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, MutableSequence
from typing import TYPE_CHECKING

from aotc.contract.operator_domains import STANDARD
from aotc.passes.base import Pass, walk_nodes
from aotc.passes.convert_opset.adapter import converted_node
from aotc.passes.convert_opset.known_values import Values, without_weights
from aotc.passes.convert_opset.meaning import missing_in_target, required_by_target
from aotc.records import record

if TYPE_CHECKING:
    import onnx

    # Protobuf's containers, changed in place.
    Nodes = MutableSequence[onnx.NodeProto]

LOWEST = 13
_MAX_LISTED = 5


@record
class ConvertOpset(Pass):
    """`to`: the opset version of the ONNX standard, at most the model's own."""

    to: int

    name = "convert-opset"

    def requires(self, model: onnx.ModelProto) -> str:
        return "; ".join(obstacles(model, self.to)[:_MAX_LISTED])

    def apply(self, model: onnx.ModelProto) -> None:
        _convert(model, self.to)

    def ensures(self, model: onnx.ModelProto) -> str:
        names = [node.name for node in walk_nodes(model)]
        if opset_of(model) != self.to:
            return f"the opset is {opset_of(model)}"
        return "" if len(set(names)) == len(names) else "names are not unique"


def opset_of(model: onnx.ModelProto | onnx.FunctionProto) -> int:
    """The imported opset version of the ONNX standard; 0 if none is imported."""
    return max(
        (opset.version for opset in model.opset_import if opset.domain in STANDARD), default=0
    )


def obstacles(model: onnx.ModelProto, to: int) -> tuple[str, ...]:
    """Why `model` cannot be converted to opset `to`, one text per node; empty if it can."""
    found = opset_of(model)
    if not LOWEST <= to <= found:
        return (f"opset {to} is not within {LOWEST}..{found}",)
    return _convert(without_weights(model), to)


def choose_opset(
    model: onnx.ModelProto, count_refused: Callable[[onnx.ModelProto], int], lowest: int = LOWEST
) -> int | None:
    """The older opset with the fewest refused nodes, the highest such one; None: keep the opset.

    `count_refused` returns how many nodes of a model an execution provider would not run.  It gets
    copies whose large initializers have no data.  `model` is not changed.
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
    """Convert in place; if it returns obstacles, `model` is converted only in part."""
    values = Values(model)
    used_names = {node.name for node in walk_nodes(model)}
    problems: list[str] = []
    for nodes, opset in _node_lists(model):
        if opset <= to:
            continue
        converted: list[onnx.NodeProto] = []
        replaced = False
        for node in nodes:
            replacements, problem = _convert_node(node, opset, to, values)
            replaced |= replacements is not None
            converted += (
                [node]
                if replacements is None
                else _with_unique_names(replacements, node, used_names)
            )
            problems += [f"{node.name}: {problem}"] if problem else []
        if replaced:
            kept = [copy.deepcopy(node) for node in converted]
            del nodes[:]
            nodes.extend(kept)
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        for entry in imports:
            if entry.domain in STANDARD:
                entry.version = min(entry.version, to)
    return tuple(problems) or _type_troubles(model)


def _node_lists(model: onnx.ModelProto) -> Iterator[tuple[Nodes, int]]:
    """Every list of nodes with its opset; those of subgraphs before the node that holds them."""
    yield from _with_subgraphs(model.graph.node, opset_of(model))
    for function in model.functions:
        yield from _with_subgraphs(function.node, opset_of(function))


def _with_subgraphs(nodes: Nodes, opset: int) -> Iterator[tuple[Nodes, int]]:
    for node in nodes:
        for attribute in node.attribute:
            for subgraph in (
                *([attribute.g] if attribute.HasField("g") else []),
                *attribute.graphs,
            ):
                yield from _with_subgraphs(subgraph.node, opset)
    yield nodes, opset


def _convert_node(
    node: onnx.NodeProto, opset: int, to: int, values: Values
) -> tuple[list[onnx.NodeProto] | None, str]:
    """The replacement of `node` at opset `to` (None: it stays), and what prevents conversion."""
    import onnx

    if node.domain not in STANDARD:
        return None, ""
    try:
        source = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return None, f"{node.op_type} is not an operator of opset {opset}"
    try:
        target = onnx.defs.get_schema(node.op_type, to)
    except onnx.defs.SchemaError:
        return None, f"opset {to} has no {node.op_type}"
    if source.since_version == target.since_version:
        return None, ""
    if missing := missing_in_target(node, source, target):
        return None, f"{node.op_type}-{target.since_version} has {missing}"
    if asked := required_by_target(node, source, target):
        replacements = converted_node(node, opset, to, values)
        return (
            replacements,
            f"{node.op_type}-{target.since_version} {asked}" if replacements is None else "",
        )
    kept = [
        copy.deepcopy(attribute)
        for attribute in node.attribute
        if attribute.name in target.attributes
    ]
    if len(kept) < len(node.attribute):
        del node.attribute[:]
        node.attribute.extend(kept)
    return None, ""


def _with_unique_names(
    new_nodes: list[onnx.NodeProto], node: onnx.NodeProto, used_names: set[str]
) -> list[onnx.NodeProto]:
    """Give new nodes unique names; the one with the first output keeps the replaced one's name."""
    for index, replacement in enumerate(new_nodes):
        if node.output[0] in replacement.output:
            replacement.name = node.name
            continue
        stem = f"{node.name}_opset"
        number = next(n for n in itertools.count(index) if f"{stem}_{n}" not in used_names)
        replacement.name = f"{stem}_{number}"
        used_names.add(replacement.name)
    return new_nodes


def _type_troubles(model: onnx.ModelProto) -> tuple[str, ...]:
    """The first type that the operators of the model's opset do not allow, or nothing."""
    import onnx

    try:
        onnx.shape_inference.infer_shapes(without_weights(model), check_type=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        return (str(error).strip().partition("\n")[0],)
    return ()
