"""What the outputs and the conditions of a model depend on, and the numbers it compares with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aotc.base.records import field, record
from aotc.graph.passes.with_sizes import gathered_sizes, sliced_sizes
from aotc.graph.types import inferred
from aotc.graph.view import attribute_of, constant_names, constant_tensors, named_subgraphs
from aotc.sizes.shown import Ends, OutputTraits, Part
from aotc.spec.parted import PartedAxis
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx

# What they answer depends on sizes, and not on values.
_READS_SIZES: Final = frozenset({"Shape", "Size"})
_FLOATS: Final = frozenset({"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"})
# Operators that pass on numbers as they are, or change all of them alike.
_PASSES_ON: Final = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Cast"),
        *("Gather", "Expand", "Tile", "Concat", "Split", "Round", "Floor", "Ceil"),
    }
)
_BY_A_NUMBER: Final = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide}
_ENDS: Final[Mapping[str, tuple[float, ...]]] = {
    "Sigmoid": (0.0, 1.0),
    "HardSigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Tanh": (-1.0, 1.0),
    "Erf": (-1.0, 1.0),
    "Softsign": (-1.0, 1.0),
    "Relu": (0.0,),
}
# The share of values at the ends from which an answer shows nothing.  A Relu leaves most values at
# 0 by intention, and of a Softmax over many classes most are; there nothing else may be left.
_NEARLY_ALL: Final = 0.99
_LIMITS: Final = {"Softmax": 1.0, "Relu": 0.999}
_COMPARES: Final = frozenset(
    {
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Clip", "Min", "Max"),
        *("Sub", "Add", "Where", "ThresholdedRelu", "Mod"),
    }
)
_MAX_ELEMENTS: Final = 16
_MAX_NUMBERS: Final = 6
# A Concat of more is one of equal things, such as the steps of a loop.
_MAX_PARTS: Final = 16
_MAX_STEPS: Final = 64


@record(kw_only=False)
class Maker:
    """A node with the values that it reads (for control flow, also inside it) and makes."""

    node: onnx.NodeProto
    reads: tuple[str, ...]


@record(kw_only=False)
class ControlSite:
    """A node with subgraphs, the values that it reads itself, and what each subgraph is given.

    `results` are what its subgraphs make, by attribute.
    """

    node: onnx.NodeProto
    reads: tuple[str, ...]
    given: Mapping[str, tuple[str, ...]]
    results: Mapping[str, tuple[str, ...]]


@record(frozen=False)
class Dependence:
    """Who makes which value of a model without functions, in all scopes.

    A value is its name; in a subgraph, the path of its node and attribute comes first.  What a
    subgraph is given counts as made by its node, of all that this reads.
    """

    makers: dict[str, Maker] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    floats: frozenset[str] = frozenset()
    control: list[ControlSite] = field(default_factory=list)
    sizes: dict[str, Sequence[int | None]] = field(default_factory=dict)
    """The sizes of values, as far as they are inferred; and below it the values of shapes."""
    shapes: dict[str, Sequence[int | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto, *, with_sizes: bool = False) -> Dependence:
        """That of a model whose functions are inlined; of large constants without values.

        `with_sizes`: what follows from sizes that are the same in all calls is constant.
        """
        from onnx import TensorProto

        found = cls()
        if with_sizes:
            model = inferred(model)
        weights = constant_names(model.graph)
        given = [value for value in model.graph.input if value.name not in weights]
        found.inputs = tuple(value.name for value in given)
        found.floats = frozenset(
            value.name
            for value in given
            if TensorProto.DataType.Name(value.type.tensor_type.elem_type) in _FLOATS
        )
        found._add(model.graph, "", {name: name for name in found.inputs})
        return found

    def _add(self, graph: onnx.GraphProto, scope: str, outer: Mapping[str, str]) -> dict[str, str]:
        """Add a graph; returns its values by name, those around it included."""
        from onnx import TensorProto, numpy_helper

        names = dict(outer)
        for value in (*graph.input, *graph.value_info, *graph.output):
            if value.type.tensor_type.HasField("shape"):
                dims = value.type.tensor_type.shape.dim
                self.sizes[scope + value.name] = [
                    dim.dim_value if dim.HasField("dim_value") else None for dim in dims
                ]
        for name in constant_names(graph):
            names[name] = scope + name
            self.constants[scope + name] = None
        for name, tensor in constant_tensors(graph).items():
            names[name] = scope + name
            if TensorProto.DataType.Name(tensor.data_type) in _FLOATS:
                self.floats |= {scope + name}
            small = int(np.prod(tensor.dims, dtype=np.int64)) <= _MAX_ELEMENTS
            if small and tensor.data_location == TensorProto.DEFAULT:
                self.constants[scope + name] = numpy_helper.to_array(tensor)
        for index, node in enumerate(graph.node):
            names.update((name, scope + name) for name in node.output if name)
            own = tuple(names.get(name, "") for name in node.input)
            if node.op_type == "Constant" and not node.input:
                for name in node.output:
                    self.constants.setdefault(scope + name, _stated(node))
                continue
            follows = self._by_sizes(node, own, scope) if self.sizes else None
            if follows is not None:
                self.constants[scope + node.output[0]] = follows
                continue
            reads = dict.fromkeys(own)
            given: dict[str, tuple[str, ...]] = {}
            made: dict[str, tuple[str, ...]] = {}
            for attribute, subgraph in named_subgraphs(node):
                place = f"{scope}{index}.{attribute}/"
                formal = {value.name: place + value.name for value in subgraph.input}
                known = self._add(subgraph, place, {**names, **formal})
                results = tuple(known.get(value.name, "") for value in subgraph.output)
                # What a loop is given may be what its body made before.
                before = Maker(node, tuple(filter(None, (*own, *results))))
                self.makers.update(dict.fromkeys(formal.values(), before))
                reads |= dict.fromkeys(results)
                given[attribute], made[attribute] = tuple(formal.values()), results
            if made:
                self.control.append(ControlSite(node, own, given, made))
            maker = Maker(node, tuple(filter(None, reads)))
            self.makers.update((scope + name, maker) for name in node.output if name)
        return names

    def _by_sizes(self, node: onnx.NodeProto, own: Sequence[str], scope: str) -> Any:
        """The value of a node that known sizes alone decide; None for any other."""
        if node.domain not in STANDARD or not own or len(node.output) != 1:
            return None
        kind, made, known = node.op_type, scope + node.output[0], self.shapes.get(own[0])
        index = [self.constants.get(name) for name in own[1:]]
        if kind == "Shape" and (sizes := self.sizes.get(own[0])) is not None:
            start, end = attribute_of(node, "start", 0), attribute_of(node, "end", len(sizes))
            self.shapes[made] = sizes[start:end]
        elif kind == "Size" and known is not None:
            return np.array(len(known))
        elif kind == "Gather" and known is not None:
            return gathered_sizes(known, index[0], node)
        elif kind == "Slice" and known is not None:
            if (part := sliced_sizes(known, index)) is not None:
                self.shapes[made] = part
        elif kind in ("Cast", "Identity", "Squeeze", "Unsqueeze"):
            if known is not None:
                self.shapes[made] = known
            return self.constants.get(own[0])
        found = self.shapes.get(made)
        return np.array(found) if found is not None and None not in found else None

    def behind(self, value: str, *, through_sizes: bool = False) -> tuple[set[str], list[Maker]]:
        """The graph inputs and constants that decide a value, and the nodes in between.

        Nodes that read sizes alone end the way, unless it goes `through_sizes`.
        """
        leaves: set[str] = set()
        nodes: dict[int, Maker] = {}
        pending, seen = [value], {value}
        while pending:
            name = pending.pop()
            maker = self.makers.get(name)
            if maker is None:
                leaves.add(name)
                continue
            if maker.node.op_type in _READS_SIZES and not through_sizes:
                continue
            nodes[id(maker)] = maker
            for read in maker.reads:
                if read and read not in seen:
                    seen.add(read)
                    pending.append(read)
        return leaves, list(nodes.values())

    def read_by(self, value: str, *, through_sizes: bool = False) -> tuple[str, ...]:
        """The graph inputs by whose values (`through_sizes`: or sizes) a value is decided."""
        leaves, _ = self.behind(value, through_sizes=through_sizes)
        return tuple(name for name in self.inputs if name in leaves)

    def traits(self, output: str) -> OutputTraits:
        """What the graph tells of an output."""
        return OutputTraits(
            name=output,
            reads=self.read_by(output),
            computes=self.computes(output),
            ends=self.ends(output),
        )

    def part_traits(self, output: str, parted: Sequence[PartedAxis]) -> Iterator[OutputTraits]:
        """The same of the parts that are joined to an output near its end."""
        for axis in parted:
            if len(axis.joined) > _MAX_PARTS:
                continue
            ends = (*(start - 1 for start in axis.starts[1:]), None)
            for value, first, last in zip(axis.joined, axis.starts, ends, strict=False):
                part = Part(output=output, value=value, axis=axis, first=first, last=last)
                yield OutputTraits(
                    name=f"{output}, {part.place}",
                    reads=self.read_by(value),
                    computes=self.computes(value),
                    ends=self.ends(value),
                    part=part,
                )

    def in_loop(self, value: str) -> bool:
        """Whether a value may differ between the trips of a loop, or follows from one."""
        return any(maker.node.op_type in ("Loop", "Scan") for maker in self.behind(value)[1])

    def deciding(self, site: ControlSite) -> tuple[str, ...]:
        """The values by which an If, Loop or Scan decides what it runs."""
        kind = site.node.op_type
        found = list(site.reads[: 2 if kind == "Loop" else 1])
        if kind == "Loop":
            # The body says after each trip whether there is another one.
            again = site.results["body"][0] if site.results["body"] else ""
            maker = self.makers.get(again)
            while maker is not None and maker.node.op_type == "Identity":
                again = maker.reads[0]
                maker = self.makers.get(again)
            if again not in site.given["body"][1:2]:
                found.append(again)
        return tuple(filter(None, found))

    def computes(self, value: str) -> bool:
        """Whether numbers in floating point, which a precision changes, decide a value."""
        leaves, nodes = self.behind(value)
        return not leaves.isdisjoint(self.floats) or any(
            maker.node.op_type == "Cast" and _makes_floats(maker.node) for maker in nodes
        )

    def ends(self, value: str) -> Ends | None:
        """The ends of the operator whose numbers a value has; None without such an operator."""
        changes: list[tuple[Any, Any, bool]] = []
        for _ in range(_MAX_STEPS):
            maker = self.makers.get(value)
            if maker is None or maker.node.domain not in STANDARD:
                return None
            kind = maker.node.op_type
            numbers = self._ends_of(maker)
            if numbers:
                array = np.array(numbers, np.float64)
                for function, number, swapped in reversed(changes):
                    array = function(number, array) if swapped else function(array, number)
                if not np.isfinite(array).all():
                    return None
                ends = tuple(sorted(set(array.tolist())))
                return Ends(op_type=kind, numbers=ends, limit=_LIMITS.get(kind, _NEARLY_ALL))
            if kind in _BY_A_NUMBER and len(maker.reads) == 2:
                known: list[Any] = [self.constants.get(name) for name in maker.reads]
                at = next((i for i, each in enumerate(known) if each is not None), None)
                if at is None or known[at].size != 1:
                    return None
                changes.append((_BY_A_NUMBER[kind], float(known[at].reshape(())), at == 0))
                value = maker.reads[1 - at]
            elif kind in _PASSES_ON and (kind != "Concat" or len(set(maker.reads)) == 1):
                if kind == "Cast" and _is_truth(self, maker.reads[0]):
                    return None
                value = maker.reads[0]
            else:
                return None
        return None

    def _ends_of(self, maker: Maker) -> tuple[float, ...]:
        kind = maker.node.op_type
        if kind in _ENDS:
            return _ENDS[kind]
        if kind == "Clip":
            stated: list[Any] = [attribute_of(maker.node, name, None) for name in ("min", "max")]
            read = [self.constants.get(name) for name in maker.node.input[1:]]
            numbers = [float(each) for each in stated if each is not None]
            known = [each for each in read if each is not None and each.size == 1]
            numbers += [float(each.reshape(())) for each in known]
            return tuple(number for number in numbers if abs(number) < np.finfo(np.float32).max)
        return ()

    def compared(self, value: str) -> list[float]:
        """Numbers that the model compares with, or cuts off at, on the way to a value."""
        _, nodes = self.behind(value, through_sizes=True)
        found: dict[float, None] = {}
        for maker in nodes:
            if maker.node.op_type not in _COMPARES:
                continue
            for name in maker.reads:
                known = self.constants.get(name)
                if known is not None and known.dtype.kind in "fiu":
                    found.update(dict.fromkeys(known.reshape(-1).astype(np.float64).tolist()))
        numbers = [each for each in found if np.isfinite(each) and abs(each) < 1e30]
        return sorted(numbers, key=abs)[-_MAX_NUMBERS:]


def _is_truth(traced: Dependence, value: str) -> bool:
    """Whether a value is of truth values, as far as its node tells."""
    maker = traced.makers.get(value)
    return maker is not None and maker.node.op_type in {
        *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "And", "Or", "Xor"),
        *("IsNaN", "IsInf"),
    }


def _makes_floats(node: onnx.NodeProto) -> bool:
    from onnx import TensorProto

    return TensorProto.DataType.Name(attribute_of(node, "to", 1)) in _FLOATS


def _stated(node: onnx.NodeProto) -> Any:
    """The value of a Constant; None if it is large, text or sparse."""
    for name in ("value_float", "value_floats", "value_int", "value_ints"):
        stated: Any = attribute_of(node, name, None)
        if stated is not None:
            array = np.asarray(stated)
            return array if array.size <= _MAX_ELEMENTS else None
    return None
