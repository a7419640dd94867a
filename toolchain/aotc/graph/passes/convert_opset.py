"""Convert a model to another operator set, node by node, where that keeps the meaning.

A newer opset can cost a kernel: an execution provider with a kernel for the operator's older
version only leaves the node to the CPU.  An older one has no integers, or one scale for all of a
weight's channels.  Most new versions of an operator merely allow more types.
Cases: the other schema has everything that the node uses (nothing changes, except that attributes
which it lacks are dropped at their default); the onnx package's version converter has an adapter
(the node is replaced by its result); neither (the model is not converted, and `obstacles` says
why).  Nodes of subgraphs and of functions are converted too.  External data stays external.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from aotc.base.records import record
from aotc.graph.passes.base import Pass
from aotc.graph.types import inferred
from aotc.graph.view import (
    constant_tensors,
    declared_values,
    every_graph,
    every_node,
    has_subgraphs,
    subgraphs,
)
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

    # Protobuf's containers, changed in place.
    Nodes = MutableSequence[onnx.NodeProto]
    NodeList = list[onnx.NodeProto]
    Schema = onnx.defs.OpSchema
    Formal = onnx.defs.OpSchema.FormalParameter


LOWEST = 13
_MAX_LISTED = 5
_SMALL_ELEMENTS = 1024  # larger constants are left out of the copy
_NO_FILE = "weights-are-not-read"
# Versions that changed an operator's meaning without changing its schema.
_NEW_MEANING = frozenset({("GroupNormalization", 21), ("RoiAlign", 16)})
# The same, where the package's converter has an adapter to the newer version.
_ADAPTED_MEANING = frozenset({("Softmax", 13), ("LogSoftmax", 13), ("Hardmax", 13)})
# From this opset on, Resize has coordinates to choose from; the converter leaves the default.
_COORDINATES_SINCE = 11
# Attribute values that a version introduced.
_NEW_VALUES: Mapping[tuple[str, int], Mapping[str, frozenset[bytes]]] = {
    ("GridSample", 20): {"mode": frozenset({b"linear", b"cubic"})},
    ("Pad", 19): {"mode": frozenset({b"wrap"})},
    ("Resize", 19): {"coordinate_transformation_mode": frozenset({b"half_pixel_symmetric"})},
    ("ScatterElements", 18): {"reduction": frozenset({b"max", b"min"})},
    ("ScatterND", 18): {"reduction": frozenset({b"max", b"min"})},
}


@record
class ConvertOpset(Pass):
    """`to`: the opset version of the ONNX standard, 13 or later."""

    to: int

    name = "convert-opset"

    def requires(self, model: onnx.ModelProto) -> str:
        return "; ".join(obstacles(model, self.to)[:_MAX_LISTED])

    def apply(self, model: onnx.ModelProto) -> None:
        _convert(model, self.to)

    def ensures(self, model: onnx.ModelProto) -> str:
        names = [node.name for node in every_node(model)]
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
    if to < LOWEST:
        return (f"opset {to} is before {LOWEST}",)
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
    used_names = {node.name for node in every_node(model)}
    problems: list[str] = []
    raising = opset_of(model) < to
    for nodes, opset in _node_lists(model):
        if opset >= to if raising else opset <= to:
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
                entry.version = max(entry.version, to) if raising else min(entry.version, to)
    return tuple(problems) or _type_troubles(model)


def _node_lists(model: onnx.ModelProto) -> Iterator[tuple[Nodes, int]]:
    """Every list of nodes with its opset; those of subgraphs before the node that holds them."""
    yield from _with_subgraphs(model.graph.node, opset_of(model))
    for function in model.functions:
        yield from _with_subgraphs(function.node, opset_of(function))


def _with_subgraphs(nodes: Nodes, opset: int) -> Iterator[tuple[Nodes, int]]:
    for node in nodes:
        for subgraph in subgraphs(node):
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
    missing = missing_in_target(node, source, target)
    if missing and opset > to:
        return None, f"{node.op_type}-{target.since_version} has {missing}"
    # To a newer version, what it lacks may have become an input, which an adapter gives it.
    if asked := required_by_target(node, source, target) or (missing and f"has {missing}"):
        replacements = converted_node(node, opset, to, values)
        if replacements is not None:
            return replacements, ""
        if opset > to:
            return None, f"{node.op_type}-{target.since_version} {asked}"
        versions = f"{source.since_version} to {target.since_version}"
        return None, f"onnx cannot convert this {node.op_type} from version {versions}"
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


def converted_node(node: onnx.NodeProto, opset: int, to: int, values: Values) -> NodeList | None:
    """The node as the onnx package's version converter writes it; None if it has no adapter.

    The converter is not given a whole model, because it drops functions and stops at the first node
    without an adapter.
    """
    import onnx

    if has_subgraphs(node):
        return None
    inputs: list[onnx.ValueInfoProto] = []
    constants: list[onnx.TensorProto] = []
    for name in dict.fromkeys(name for name in node.input if name):
        tensor, info = values.constants.get(name), values.infos.get(name)
        if tensor is not None:
            constants.append(tensor)
        elif info is not None:
            inputs.append(info)
        else:
            return None
    outputs = [
        values.infos.get(name) or onnx.helper.make_empty_tensor_value_info(name)
        for name in node.output
        if name
    ]
    single_node_model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "node", inputs, outputs, constants),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
    )
    try:
        graph = onnx.version_converter.convert_version(single_node_model, to).graph
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError):
        return None
    if [value.name for value in graph.output] != [value.name for value in outputs]:
        return None
    outer = {*node.input, *node.output}
    replacements = _inlined(graph, node, outer | {""}, to)
    read = {name for new_node in replacements for name in new_node.input}
    uses_all_inputs = all(value.name in read for value in inputs)
    if not (uses_all_inputs and all(_matches_schema(new_node, to) for new_node in replacements)):
        return None
    if opset < _COORDINATES_SINCE <= to:
        return _with_old_coordinates(replacements, values)
    return replacements


def _with_old_coordinates(replacements: NodeList, values: Values) -> NodeList | None:
    """Nodes made of an Upsample or an early Resize, whose pixels begin at the edge of the image.

    ONNX Runtime takes the nearest pixel before where it enlarges, and the one behind where it
    shrinks.  None if it is not known which it does.
    """
    import onnx

    made = {node.output[0]: node.attribute[0].t for node in replacements if not node.input}
    for node in replacements:
        if node.op_type != "Resize":
            continue
        node.attribute.append(
            onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric")
        )
        if any(each.name == "mode" and each.s == b"linear" for each in node.attribute):
            continue
        scales = made.get(node.input[2], values.constants.get(node.input[2]))
        found = onnx.numpy_helper.to_array(scales) if scales is not None else None
        if found is None or ((found > 1).any() and (found < 1).any()):
            return None
        nearest = "ceil" if (found < 1).any() else "floor"
        node.attribute.append(onnx.helper.make_attribute("nearest_mode", nearest))
    return replacements


def _matches_schema(node: onnx.NodeProto, opset: int) -> bool:
    """Whether a node matches its operator's schema: some adapters only change the version."""
    import onnx

    schema = onnx.defs.get_schema(node.op_type, opset)
    given = {attribute.name for attribute in node.attribute}
    needed = {name for name, attribute in schema.attributes.items() if attribute.required}
    return (
        needed <= given <= schema.attributes.keys()
        and schema.min_input <= len(node.input) <= schema.max_input
        and len(node.output) <= schema.max_output
    )


def _inlined(graph: onnx.GraphProto, node: onnx.NodeProto, outer: set[str], to: int) -> NodeList:
    """Nodes of a converted graph; inner values get names after `node`, constants become nodes."""
    import onnx

    replacements = [
        onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in graph.initializer
        if tensor.name not in outer
    ]
    replacements += graph.node
    for new_node in replacements:
        for names in (new_node.input, new_node.output):
            for index, name in enumerate(names):
                if name not in outer:
                    names[index] = f"{node.output[0]}/opset{to}/{name}"
    return replacements


class Values:
    """Small constants and inferred types of a model's values, computed when first used.

    A name that subgraphs use for different values is left out.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = without_weights(model)

    @cached_property
    def constants(self) -> dict[str, onnx.TensorProto]:
        found: dict[str, list[onnx.TensorProto]] = {}
        for graph in every_graph(self._model):
            given = {info.name for info in graph.input}
            for name, constant in constant_tensors(graph).items():
                if name not in given:
                    tensor = copy.deepcopy(constant)
                    tensor.name = name
                    found.setdefault(name, []).append(tensor)
        return {
            name: tensors[0]
            for name, tensors in found.items()
            if not tensors[0].external_data and all(tensor == tensors[0] for tensor in tensors)
        }

    @cached_property
    def infos(self) -> dict[str, onnx.ValueInfoProto]:
        from onnx.helper import make_tensor_value_info as make_info

        found: dict[str, list[onnx.ValueInfoProto]] = {}
        for graph in every_graph(inferred(self._model, by_values=False)):
            for info in declared_values(graph):
                found.setdefault(info.name, []).append(info)
            for tensor in graph.initializer:
                info = make_info(tensor.name, tensor.data_type, list(tensor.dims))
                found.setdefault(tensor.name, []).append(info)
        return {
            name: infos[0]
            for name, infos in found.items()
            if all(info.type == infos[0].type for info in infos)
        }


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large initializers of the main graph are external, without any data."""
    light = type(model)()
    _copy_fields(model, light, but="graph")
    _copy_fields(model.graph, light.graph, but="initializer")
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL_ELEMENTS:
            light.graph.initializer.add().CopyFrom(tensor)
            continue
        stub = light.graph.initializer.add(
            name=tensor.name, data_type=tensor.data_type, dims=tensor.dims
        )
        stub.data_location = stub.EXTERNAL
        stub.external_data.add(key="location", value=_NO_FILE)
    return light


def _copy_fields(source: Message, target: Message, but: str) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if hasattr(value, "MergeFrom"):
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def missing_in_target(node: onnx.NodeProto, source: Schema, target: Schema) -> str:
    """What the target schema cannot express, even with an adapter; empty if nothing."""
    op, before, after = node.op_type, source.since_version, target.since_version
    first, last = sorted((before, after))
    otherwise = _NEW_MEANING | _ADAPTED_MEANING if before < after else _NEW_MEANING
    if any(name == op and first < version <= last for name, version in otherwise):
        return "another meaning"
    for attribute in node.attribute:
        if attribute.name not in target.attributes:
            known = source.attributes.get(attribute.name)
            if known is None or not _same_value(attribute, known.default_value):
                return f"no {attribute.name}"
        for (name, version), new in _NEW_VALUES.items():
            changed = name == op and after < version <= before
            if changed and attribute.s in new.get(attribute.name, ()):
                return f"no {attribute.name}={attribute.s.decode()}"
    return ""


def required_by_target(node: onnx.NodeProto, source: Schema, target: Schema) -> str:
    """What the target schema needs beyond the node as it is; empty if nothing."""
    if target.deprecated:
        return "is deprecated"
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in target.attributes.items():
        if name in given:
            continue
        before = source.attributes.get(name)
        if attribute.required:
            return f"needs {name}"
        if before is None:
            return f"has {name} as an attribute"
        if not _same_value(before.default_value, attribute.default_value):
            return f"has another default of {name}"
    if not _match(node.input, source.inputs, target.inputs):
        return "has other inputs"
    return "" if _match(node.output, source.outputs, target.outputs) else "has other outputs"


def _match(values: Sequence[str], source: Sequence[Formal], target: Sequence[Formal]) -> bool:
    """Whether each value is the same parameter in both schemas, and no required one is missing."""
    for index, name in enumerate(values):
        source_parameter, target_parameter = (
            side[min(index, len(side) - 1)] if side else None for side in (source, target)
        )
        if not name:
            continue
        if (
            source_parameter is None
            or target_parameter is None
            or source_parameter.name != target_parameter.name
        ):
            return False
        if index >= len(target) and target_parameter.option != target_parameter.option.Variadic:
            return False
    return all(
        parameter.option == parameter.option.Optional
        or parameter.min_arity == 0
        or (index < len(values) and values[index])
        for index, parameter in enumerate(target)
    )


def _same_value(one: onnx.AttributeProto, other: onnx.AttributeProto) -> bool:
    """Whether two attributes, which may both be unset, have the same value."""
    import onnx

    if one.ref_attr_name or other.ref_attr_name or one.type != other.type:
        return False
    if one.type == one.UNDEFINED:
        return True
    return bool(onnx.helper.get_attribute_value(one) == onnx.helper.get_attribute_value(other))
