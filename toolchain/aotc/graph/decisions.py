"""What decides outputs of whole numbers and truth values: the last floats before them.

Behind such an output are nodes that carry, convert and combine whole numbers, up to those that make
them of floats: an ArgMax, a TopK, a comparison, a rounding.  There a `Decision` cuts the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aotc.base.records import field, record
from aotc.graph.partition.division import keep_constants
from aotc.graph.types import inferred
from aotc.graph.view import GraphView, attribute_of, every_node, has_subgraphs
from aotc.spec.precision import Decided, DecidedOutput
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    import onnx

_FLOATS: Final = frozenset({"float", "double", "float16", "bfloat16"})
_ROUNDINGS: Final = frozenset({"Round", "Floor", "Ceil"})
_COMPARISONS: Final = frozenset(
    {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "IsInf", "IsNaN"}
)
_SUMS: Final = frozenset({"ReduceSum", "CumSum", "Sum"})
# What makes whole numbers of floats, or carries them on as floats.
_CONVERSIONS: Final = frozenset({"Cast", "CastLike", "DequantizeLinear"})
_LAYOUT: Final = frozenset(
    {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Slice", "Gather"}
)
# Steps stay steps through these: what follows a rounding is looked through up to it.
_CARRIERS: Final = _LAYOUT | {
    *("Concat", "Expand", "Tile", "Pad", "Where", "Clip", "Relu", "Min", "Max"),
    *("Add", "Sub", "Mul", "Div", "Neg", "Abs", "Mod"),
}
# Their whole numbers are rounded inside of them, so that nothing can be read before it.
_ROUNDED_INSIDE: Final = frozenset({"QLinearConv", "QLinearMatMul"})
_OPAQUE: Final = _ROUNDED_INSIDE | {
    *("ConvInteger", "MatMulInteger", "NonMaxSuppression", "NonZero", "Unique", "Compress"),
    *("Multinomial", "Bernoulli"),
}
_KEEP_ORDER: Final = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast"})
_MAX_NODES: Final = 128
_MAX_DEPTH: Final = 16


@record
class Choice:
    """An ArgMax, ArgMin or TopK: its indices, the scores that they choose from, and how."""

    indices: str
    scores: str
    axis: int
    largest: bool
    ranked: bool
    keeps_axis: bool


@record
class Decision:
    """What decides one output: floats and choices at which `nodes`, by index, begin.

    `nodes` make `target` of them and of `given`, which no float decides: the output itself, or the
    truth values of which a NonZero makes the places of the output.  `plain`: `target` has the
    values of its one choice, in their order.  Without `floats` and `choices` nothing can be read
    where it is decided.
    """

    stated: DecidedOutput
    target: str
    floats: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    given: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    plain: bool = False

    @property
    def read(self) -> tuple[str, ...]:
        """All values that say how it was decided."""
        of_choices = [name for each in self.choices for name in (each.indices, each.scores)]
        return tuple(dict.fromkeys((*self.floats, *of_choices, *self.given)))


@record(frozen=False)
class _Part:
    """What was found behind a value; `loose` are floats that go on as they are, unrounded."""

    nodes: set[int] = field(default_factory=set)
    floats: dict[str, None] = field(default_factory=dict)
    choices: dict[str, Choice] = field(default_factory=dict)
    given: dict[str, None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    opaque: set[str] = field(default_factory=set)
    loose: bool = False

    @property
    def decided(self) -> bool:
        return bool(self.floats or self.choices or self.opaque)

    def add(self, other: _Part) -> None:
        self.nodes |= other.nodes
        self.floats |= other.floats
        self.choices |= other.choices
        self.given |= other.given
        self.seen |= other.seen
        self.opaque |= other.opaque
        self.loose |= other.loose


class Decisions:
    """The decisions about values of one model, by default about its outputs.

    Its types are inferred only where a value may be decided.  The model must not change meanwhile.
    """

    def __init__(self, model: onnx.ModelProto, names: Iterable[str] = ()) -> None:
        self._view = GraphView(model.graph)
        self.model = model
        outputs = [each for each in model.graph.output if each.type.HasField("tensor_type")]
        kinds = {each.name: _element(each.type.tensor_type.elem_type) for each in outputs}
        wanted = [
            name
            for name in names or kinds
            if kinds.get(name) not in {*_FLOATS, "string"} or self._may_be_whole(name)
        ]
        self._types: dict[str, str] = {}
        if wanted:
            view = GraphView(inferred(model).graph)
            constants = {t.name: _element(t.data_type) for t in model.graph.initializer}
            self._types = {**view.element_types, **constants}
        found = ((name, self._of_output(name)) for name in wanted)
        self.by_output = {name: each for name, each in found if each is not None}

    @property
    def stated(self) -> dict[str, DecidedOutput]:
        """By output, what its values are."""
        return {name: each.stated for name, each in self.by_output.items()}

    def _may_be_whole(self, value: str) -> bool:
        """Whether a float is a rounding or a conversion away from whole numbers."""
        pending = [value]
        for _ in range(_MAX_DEPTH):
            node = self._view.maker(pending.pop()) if pending else None
            if node is None or node.domain not in STANDARD:
                continue
            if node.op_type in _ROUNDINGS | _CONVERSIONS:
                return True
            if node.op_type in _CARRIERS:
                pending += [name for name in node.input if name]
        return False

    def _of_output(self, name: str) -> Decision | None:
        if self._types.get(name) in _FLOATS:
            steps = self._steps(name, 0)
            return None if steps is None or steps.loose else self._decision(name, steps)
        places = self._places(name)
        part = _Part()
        if places is not None:
            target, axis = places
            self._value(target, part, 0)
            # Of a float itself it is not said how far from zero counts.
            if self._types.get(target) in _FLOATS or not part.decided:
                part.opaque.add("NonZero")
            return self._decision(target, part, DecidedOutput(kind="places", axis=axis))
        self._value(name, part, 0)
        return self._decision(name, part) if part.decided else None

    def _decision(
        self, target: str, part: _Part, stated: DecidedOutput | None = None
    ) -> Decision | None:
        stated = stated or DecidedOutput(kind=self._kind(target, part))
        if part.opaque:
            return Decision(stated=stated, target=target)
        nodes = tuple(sorted(part.nodes))
        ops = {self._view.nodes[at].op_type for at in nodes}
        return Decision(
            stated=stated,
            target=target,
            floats=tuple(part.floats),
            choices=tuple(part.choices.values()),
            given=tuple(part.given),
            nodes=nodes,
            plain=len(part.choices) == 1 and not part.floats and ops <= _KEEP_ORDER,
        )

    def _kind(self, target: str, part: _Part) -> Decided:
        if part.opaque:
            return "rounded" if part.opaque <= _ROUNDED_INSIDE else "other"
        if part.choices:
            ranked = any(each.ranked for each in part.choices.values())
            return "ranking" if ranked else "choice"
        ops = {self._view.nodes[at].op_type for at in part.nodes}
        truths = self._types.get(target) == "bool"
        if not truths and ops & _SUMS and ops & _COMPARISONS:
            return "count"
        return "threshold" if truths or ops & _COMPARISONS else "rounded"

    def _places(self, value: str) -> tuple[str, int] | None:
        """What a NonZero reads whose places `value` lists, and the axis along which it does."""
        axis, flat = 1, False
        for _ in range(_MAX_DEPTH):
            node = self._view.maker(value)
            if node is None or node.domain not in STANDARD:
                return None
            if node.op_type == "NonZero":
                return node.input[0], 0 if flat else axis
            if node.op_type == "Transpose":
                axis = 1 - axis
            elif node.op_type in ("Squeeze", "Reshape", "Flatten"):
                flat = True
            elif node.op_type not in ("Cast", "Identity"):
                return None
            value = node.input[0]
        return None

    def _value(self, name: str, part: _Part, depth: int) -> None:
        """Add what makes a value that whole numbers are made of."""
        if not name or name in part.seen:
            return
        part.seen.add(name)
        if name in self._view.initializers:
            return
        index = self._view.producers.get(name)
        if self._types.get(name) in _FLOATS:
            node = self._view.maker(name)
            if node is not None and node.op_type == "Constant":
                part.nodes.add(self._view.producers[name])
            elif (steps := self._steps(name, depth)) is not None:
                part.add(steps)
            else:
                part.floats[name] = None
        elif index is None:
            part.given[name] = None
        else:
            self._whole(name, index, part, depth)

    def _whole(self, name: str, index: int, part: _Part, depth: int) -> None:
        node = self._view.nodes[index]
        op = node.op_type
        standard = node.domain in STANDARD
        if standard and op in ("Shape", "Size"):
            part.given[name] = None
        elif standard and (choice := self._choice(node, name)) is not None:
            part.choices[name] = choice
        elif (
            not standard
            or has_subgraphs(node)
            or op in _OPAQUE
            or len(part.nodes) >= _MAX_NODES
            or depth > _MAX_NODES
            or name not in self._types
        ):
            if self._reads_floats(index):
                part.opaque.add(op)
            else:
                part.given[name] = None
        else:
            part.nodes.add(index)
            for read in node.input:
                self._value(read, part, depth + 1)

    def _choice(self, node: onnx.NodeProto, name: str) -> Choice | None:
        if self._types.get(node.input[0] if node.input else "") not in _FLOATS:
            return None
        scores = node.input[0]
        if node.op_type in ("ArgMax", "ArgMin"):
            return Choice(
                indices=name,
                scores=scores,
                axis=attribute_of(node, "axis", 0),
                largest=node.op_type == "ArgMax",
                ranked=False,
                keeps_axis=bool(attribute_of(node, "keepdims", 1)),
            )
        if node.op_type == "TopK" and list(node.output).index(name) == 1:
            return Choice(
                indices=name,
                scores=scores,
                axis=attribute_of(node, "axis", -1),
                largest=bool(attribute_of(node, "largest", 1)),
                ranked=True,
                keeps_axis=True,
            )
        return None

    def _reads_floats(self, index: int) -> bool:
        """Whether floats other than constants are among what makes the values of a node."""
        behind, _ = self._view.behind(self._view.makes[index])
        inner = [node for at in behind for node in every_node(self._view.nodes[at])]
        read = {name for node in inner for name in node.input} - self._view.initializers
        # Of what a body computes itself nothing is known here.
        return any(self._types.get(name, "float") in _FLOATS for name in read if name)

    def _steps(self, name: str, depth: int) -> _Part | None:
        """What makes a float of whole numbers, or of steps; None if it is a float like others."""
        node = self._view.maker(name)
        if node is None or depth > _MAX_DEPTH or node.domain not in STANDARD:
            return None
        index, op = self._view.producers[name], node.op_type
        if op in _ROUNDINGS:
            part = _Part(nodes={index})
            self._value(node.input[0], part, depth + 1)
            return part
        if op in _CONVERSIONS and self._types.get(node.input[0]) not in _FLOATS:
            part = _Part(nodes={index})
            for read in node.input:
                self._value(read, part, depth + 1)
            return part if part.decided else None
        if op not in _CARRIERS and op != "Cast":
            return None
        part = _Part(nodes={index})
        stepped = False
        floats = []
        for read in node.input:
            if not read or read in self._view.initializers:
                continue
            if self._types.get(read) in _FLOATS:
                steps = self._steps(read, depth + 1)
                if steps is None:
                    floats.append(read)
                else:
                    part.add(steps)
                    stepped = True
            else:
                self._value(read, part, depth + 1)
                stepped |= part.decided
        if not stepped:
            return None
        for read in floats:
            maker = self._view.maker(read)
            if maker is not None and maker.op_type == "Constant":
                part.nodes.add(self._view.producers[read])
            else:
                part.floats[read] = None
                part.loose = True
        return part

    def tail(self, decision: Decision, kinds: dict[str, int]) -> onnx.ModelProto:
        """The model that makes the target of a decision of the values that it reads.

        `kinds` are element types, as ONNX numbers them.  External data stays where it is.
        """
        import onnx

        tail = onnx.ModelProto()
        tail.ir_version = self.model.ir_version
        tail.opset_import.extend(self.model.opset_import)
        tail.graph.name = "decision"
        tail.graph.node.extend(self._view.nodes[at] for at in decision.nodes)
        scores = {each.scores for each in decision.choices} - {*decision.floats, *decision.given}
        for name in decision.read:
            if name not in scores:
                value = tail.graph.input.add(name=name)
                value.type.tensor_type.elem_type = kinds[name]
        tail.graph.output.add(name=decision.target)
        keep_constants(tail.graph, self._view)
        return tail

    def equalities(self, decision: Decision) -> list[tuple[str, str]]:
        """The operands of each comparison of floats for equality."""
        nodes = (self._view.nodes[at] for at in decision.nodes)
        return [
            (node.input[0], node.input[1])
            for node in nodes
            if node.op_type == "Equal" and self._types.get(node.input[0]) in _FLOATS
        ]


def _element(number: int) -> str:
    import onnx

    return onnx.TensorProto.DataType.Name(number).lower()
