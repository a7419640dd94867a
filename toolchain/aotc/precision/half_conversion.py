"""Compute in float16 or bfloat16 what is computed in float32, except for nodes that are kept.

Inputs and outputs of the model keep their types; where they are in half precision already, casts
between them and what is now computed in it are removed.  A value that is made in one type and read
in the other is cast once, however many nodes read it; a constant is stored in each type in which it
is read.  Bodies of control flow are changed as well: what enters and leaves them is in float32, and
what they read of the graph around them is cast there, once, and not in each iteration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from aotc.base.records import field, record, replace
from aotc.graph.kernels import KernelTable, opsets_of, pair_values, signature_of_node
from aotc.graph.passes.base import (
    Pass,
    all_names,
    cast_node,
    free_name,
    rename_captured,
    rename_read,
    set_nodes,
)
from aotc.graph.types import stated_types, type_proto
from aotc.graph.view import (
    GraphView,
    NodeLinks,
    attribute_of,
    captured_by,
    captured_values,
    declared_values,
    every_graph,
    every_node,
    has_subgraphs,
    made_values,
    read_values,
    subgraphs,
)
from aotc.spec.providers import STANDARD
from aotc.spec.variant import HALF_PRECISION, STORED_IN_HALF

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import onnx

    Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]


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
# The type of their output is an attribute.
_TYPED_BY_ATTRIBUTE: Final = frozenset({"Cast", "ConstantOfShape"})
# Sums over whole axes and counted positions need more digits than half precision has; what is
# random differs by type.
ALWAYS_KEPT: Final = frozenset(
    {
        "Bernoulli",
        "CumSum",
        "EyeLike",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Range",
    }
)
FLOAT: Final = "tensor(float)"
# Above the smallest normal numbers of both types.
_NORMAL: Final = 1e-4
HalfName = Literal["float16", "bfloat16"]
_FLOAT = 1
# Cheap in float32 too.
_CHEAP: Final = MOVING | {
    "Abs", "Add", "Clip", "Div", "Gelu", "LeakyRelu", "Max", "Min", "Mul", "Neg", "Relu",
    "Sigmoid", "Sqrt", "Sub", "Tanh",
}  # fmt: skip


class TypedGraph(GraphView):
    """A main graph whose values all have types, as `half`, in ONNX's spelling, can change it.

    `slots` are those of its nodes by index, and `constants` what no caller can replace.
    """

    def __init__(self, model: onnx.ModelProto, half: str, ep: str) -> None:
        super().__init__(model.graph)
        self.model = model
        self.types = stated_types(model.graph)
        opsets = opsets_of(model)
        self.slots = [
            Slots() if has_subgraphs(node) else slots_of(node, self.types, opsets, half, ep)
            for node in self.nodes
        ]
        # Before IR version 4, initializers are defaults of inputs.
        given = {value.name for value in model.graph.input}
        self.constants = {t.name: t for t in model.graph.initializer if t.name not in given}

    def is_float(self, name: str) -> bool:
        """Whether a value is a tensor of float32."""
        return self.types.get(name) == FLOAT

    def touches_float(self, index: int) -> bool:
        """Whether a node reads or makes float32, itself or in its subgraphs."""
        return any(map(self.is_float, (*self.reads[index], *self.makes[index])))


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
        set_nodes(model.graph, kept)


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


@record(kw_only=False)
class Slots:
    """Positions of a node's float32 inputs and outputs that change if the node does."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inputs or self.outputs)


def slots_of(
    node: onnx.NodeProto, types: Mapping[str, str], opsets: Mapping[str, int], half: str, ep: str
) -> Slots:
    """The slots of `node` for the type `half`, in ONNX's spelling; empty if it cannot change.

    `types` are those of values by name.  A parameter that its operator only has in float32, such as
    the scales of `Resize`, is no slot, and neither are results whose type no input decides.
    """
    standard = node.domain in STANDARD
    inputs = frozenset(i for i, name in enumerate(node.input) if types.get(name) == FLOAT)
    outputs = frozenset(i for i, name in enumerate(node.output) if types.get(name) == FLOAT)
    if not inputs and not outputs:
        return Slots()
    if standard and node.op_type in _TYPED_BY_ATTRIBUTE:
        return Slots(inputs, outputs)
    signature = signature_of_node(node, opsets, ep, KernelTable.load(ep))
    if signature is None:
        return Slots()
    domain = "" if standard else node.domain
    variables = _half_variables(domain, node.op_type, opsets.get(domain, 1), half, ep)
    given = [formal.kind for formal, _ in pair_values(signature.inputs, node.input)]
    made = [formal.kind for formal, _ in pair_values(signature.outputs, node.output)]
    changing = {given[i] for i in inputs if i < len(given)} & variables
    return Slots(
        frozenset(i for i in inputs if i < len(given) and given[i] in changing),
        frozenset(i for i in outputs if i < len(made) and made[i] in changing),
    )


@cache
def _half_variables(domain: str, op: str, opset: int, half: str, ep: str) -> frozenset[str]:
    """The type variables of an operator that may be `half`."""
    import onnx

    try:
        # The stubs of onnx lack the constraints of schemas.
        schema: Any = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return frozenset(
            variable
            for kernel in KernelTable.load(ep).registered(ep, domain, op)
            for variable, allowed in kernel.types.items()
            if half in allowed
        )
    return frozenset(
        one.type_param_str for one in schema.type_constraints if half in one.allowed_type_strs
    )


@record
class HalfType:
    """One type: its largest finite number, and the number by which ONNX knows it."""

    name: HalfName
    largest: float
    onnx_type: int

    @property
    def tensor_name(self) -> str:
        """In the spelling of ONNX's schemas."""
        return f"tensor({self.name})"

    def rounded(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """`values` in this type, rounded to nearest; what is too large becomes infinite."""
        import ml_dtypes
        import numpy as np

        kind = np.float16 if self.name == "float16" else ml_dtypes.bfloat16
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(kind)

    def holds(self, values: np.ndarray[Any, Any]) -> bool:
        """Whether no finite number becomes infinite, and not all that differ from 0 become 0."""
        import numpy as np

        if values.size:
            magnitude = max(float(values.max()), -float(values.min()))
            # Most constants; the rest is for what is tiny, infinite or no number.
            if _NORMAL <= magnitude <= self.largest:
                return True
        rounded = self.rounded(values)
        if bool(np.any(np.isinf(rounded.astype(np.float32)) & np.isfinite(values))):
            return False
        nonzero = values != 0
        return not bool(np.any(nonzero)) or bool(np.any(rounded[nonzero] != 0))

    def tensor(self, values: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
        """A tensor of `values` in this type."""
        import onnx

        return onnx.numpy_helper.from_array(self.rounded(values), name)


# Numbers are those of `TensorProto.DataType`, which never change.
HALF_TYPES: Final[Mapping[str, HalfType]] = {
    "float16": HalfType(name="float16", largest=65504.0, onnx_type=10),
    "bfloat16": HalfType(name="bfloat16", largest=3.3895313892515355e38, onnx_type=16),
}


def body_models(
    graph: TypedGraph, node: onnx.NodeProto
) -> Iterator[tuple[onnx.GraphProto, onnx.ModelProto]]:
    """Each body of a node of `graph`, and a copy of it as a model, changed like a main graph.

    What a body captures are its inputs then, or constants; it enters and leaves it in float32.
    Bodies with values of unknown type, or that capture such values, are left out.
    """
    import onnx

    for body in subgraphs(node):
        made = onnx.ModelProto(
            ir_version=graph.model.ir_version, opset_import=graph.model.opset_import
        )
        made.graph.CopyFrom(body)
        lift_constants(made)
        types = stated_types(made.graph)
        known = True
        for name in sorted(captured_values(made.graph)):
            if name in graph.constants:
                made.graph.initializer.append(graph.constants[name])
                continue
            kind = type_proto(graph.types.get(name, ""))
            if kind is None:
                known = False
                break
            made.graph.input.append(onnx.ValueInfoProto(name=name, type=kind))
        if known and types.keys() >= set(made_values(made.graph)):
            yield body, made


def adopt_body(body: onnx.GraphProto, model: onnx.ModelProto) -> None:
    """Give `body` the nodes of its changed model, without what it captures."""
    outer = captured_values(body)
    own = [tensor for tensor in model.graph.initializer if tensor.name not in outer]
    made = set(made_values(model.graph))
    infos = [info for info in model.graph.value_info if info.name in made]
    del body.node[:], body.initializer[:], body.value_info[:]
    body.node.extend(model.graph.node)
    body.initializer.extend(own)
    body.value_info.extend(infos)


@record
class HalfPrecision(Pass):
    """Change a model whose values all have types; `kept` are names of nodes that stay in float32.

    `read` returns the values of a tensor, which may be external.  Without it only types are
    changed, which is enough to ask which kernels there are.
    """

    name = HALF_PRECISION

    to: HalfName
    ep: str
    kept: frozenset[str] = field(default_factory=frozenset)
    read: Read | None = None
    # Constants are cast by nodes, and stay where they are: for graphs that are run once.
    cast_constants: bool = False

    def options(self) -> dict[str, object]:
        """The type; what is kept stands in the record beside it."""
        return {"to": self.to}

    def requires(self, model: onnx.ModelProto) -> str:
        return what_is_untyped(model.graph)

    def apply(self, model: onnx.ModelProto) -> None:
        half = HALF_TYPES[self.to]
        retype(
            TypedGraph(model, half.tensor_name, self.ep),
            half,
            self.ep,
            self.kept,
            self.read,
            cast_constants=self.cast_constants,
        )
        fold_casts(model, half)


def what_is_untyped(graph: onnx.GraphProto) -> str:
    """What a rewrite of types lacks: a value of a node without a type; empty if all have one."""
    types = stated_types(graph)
    return next((f"{name} has no type" for name in made_values(graph) if name not in types), "")


class WantedType(Protocol):
    """A type in which float32 values shall be computed: its ONNX names, and tensors of it."""

    @property
    def name(self) -> str:
        """As numpy has it."""

    @property
    def tensor_name(self) -> str:
        """In the spelling of ONNX's schemas."""

    @property
    def onnx_type(self) -> int:
        """The number of `TensorProto.DataType`."""

    def tensor(self, values: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
        """A tensor of `values` in this type."""


def retype(
    graph: TypedGraph,
    wanted: WantedType,
    ep: str,
    kept: frozenset[str],
    read: Read | None = None,
    *,
    cast_constants: bool = False,
) -> None:
    """Rewrite a typed graph in place: what its slots allow is computed in `wanted`."""
    _Rewrite(
        graph=graph,
        half=wanted,
        ep=ep,
        kept={index for index, node in enumerate(graph.nodes) if node.name in kept},
        kept_names=kept,
        read=read,
        cast_constants=cast_constants,
        used=all_names(graph.model),
    ).run()


def count_casts(model: onnx.ModelProto, before: onnx.ModelProto) -> int:
    """How many casts `model` has that `before` had not."""
    names = {node.name for node in every_node(before)}
    return sum(node.op_type == "Cast" and node.name not in names for node in every_node(model))


@record(frozen=False, kw_only=False)
class _Rewrite:
    """One rewrite of a main graph: which values exist in which type so far."""

    graph: TypedGraph
    half: WantedType
    ep: str
    kept: set[int]
    kept_names: frozenset[str]
    read: Read | None
    cast_constants: bool
    used: set[str]
    # That of the graph around a body.
    outer: _Rewrite | None = None
    # By value and whether it is in half precision: its name there.
    named: dict[tuple[str, bool], str] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def run(self) -> None:
        """Rewrite the nodes in order, with casts where they are first needed."""
        main = self.graph.model.graph
        for index, original in enumerate(self.graph.nodes):
            self._node(index, _copy(original))
        set_nodes(main, self.nodes)
        read = {name for node in self.nodes for name in read_values(node)}
        read.update(self.graph.outputs)
        unread = [
            tensor
            for tensor in main.initializer
            if tensor.name in read or not self.graph.is_float(tensor.name)
        ]
        del main.initializer[:]
        main.initializer.extend(unread)
        main.initializer.extend(self.constants)
        self._value_types(main)

    def _node(self, index: int, node: onnx.NodeProto) -> None:
        changes = index not in self.kept and bool(self.graph.slots[index])
        in_half: dict[str, str] = {}
        if index not in self.kept:
            for body, copy in body_models(self.graph, node):
                in_half |= self._body(body, copy)
        renamed = {}
        for name in sorted(captured_by(node)):
            found = self._value(name, False) if self.graph.is_float(name) else name
            if found != name:
                renamed[name] = found
        # Only then, as a value in half precision has the name of the float32 one.
        for names in (renamed, in_half):
            if names:
                rename_captured(node, names)
        slots = self.graph.slots[index]
        for at, name in enumerate(node.input):
            if self.graph.is_float(name):
                node.input[at] = self._value(name, changes and at in slots.inputs)
        made = []
        for at, name in enumerate(node.output):
            if changes and at in slots.outputs:
                inner = name
                if name in self.graph.outputs:
                    inner = free_name(f"{name}_{self.half.name}", self.used)
                    made.append((inner, name))
                node.output[at] = self.named[name, True] = inner
        if changes and slots.outputs:
            self._attributes(node)
        self.nodes.append(node)
        for inner, name in made:
            self._cast(inner, name, to_half=False)
            self.named[name, False] = name

    def _body(self, body: onnx.GraphProto, inner: onnx.ModelProto) -> dict[str, str]:
        """Change a body, of which `inner` is a copy; returns what it reads in half precision.

        That is cast around it, not in each iteration: the names here by those in the body.
        """
        graph = TypedGraph(inner, self.half.tensor_name, self.ep)
        kept = {i for i, node in enumerate(graph.nodes) if node.name in self.kept_names}
        captured = captured_values(body)
        replace(self, graph=graph, kept=kept, outer=self, named={}, nodes=[], constants=[]).run()
        in_half = {}
        for node in list(inner.graph.node):
            if not _is_cast_to(node, self.half) or node.input[0] not in captured:
                continue
            if self.graph.is_float(node.input[0]):
                in_half[node.output[0]] = self._value(node.input[0], True)
                inner.graph.node.remove(node)
        adopt_body(body, inner)
        return in_half

    def _value(self, name: str, wanted: bool) -> str:
        """The name under which a float32 value is read in half precision, or in float32."""
        key = (name, wanted)
        if key in self.named:
            return self.named[key]
        made_in_half = is_half(self.graph, name, self.kept)
        if wanted == made_in_half:
            self.named[key] = name
        elif (tensor := self.graph.constants.get(name)) is not None:
            self.named[key] = self._constant(tensor)
        else:
            source = self.named.get((name, made_in_half), name)
            suffix = self.half.name if wanted else "float32"
            self.named[key] = free_name(f"{name}_{suffix}", self.used)
            self._cast(source, self.named[key], to_half=wanted)
        return self.named[key]

    def _constant(self, tensor: onnx.TensorProto) -> str:
        import onnx

        if self.outer is not None and tensor.name in self.outer.graph.constants:
            return self.outer._value(tensor.name, True)
        name = free_name(f"{tensor.name}_{self.half.name}", self.used)
        if self.cast_constants:
            self._cast(tensor.name, name, to_half=True)
            return name
        if self.read is None:
            made = onnx.TensorProto(name=name, data_type=self.half.onnx_type, dims=tensor.dims)
        else:
            made = self.half.tensor(self.read(tensor), name)
        main = self
        while main.outer is not None:
            main = main.outer
        # Weights of bodies too are stored outside of the graph.
        main.constants.append(made)
        return name

    def _cast(self, source: str, target: str, *, to_half: bool) -> None:
        kind = self.half.onnx_type if to_half else _FLOAT
        self.nodes.append(cast_node(source, target, kind, self.used))

    def _attributes(self, node: onnx.NodeProto) -> None:
        """Change the attribute that decides the type of the output, if there is one."""
        import numpy as np
        import onnx

        if node.op_type == "Cast":
            node.attribute.remove(next(one for one in node.attribute if one.name == "to"))
            node.attribute.append(onnx.helper.make_attribute("to", self.half.onnx_type))
        elif node.op_type == "ConstantOfShape":
            stated = [one for one in node.attribute if one.name == "value"]
            values = onnx.numpy_helper.to_array(stated[0].t) if stated else np.zeros(1, np.float32)
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", self.half.tensor(values, "")))

    def _value_types(self, main: onnx.GraphProto) -> None:
        """The types of all values of the new graph."""
        import onnx

        infos = {info.name: info for info in declared_values(main)}
        made = {name for node in self.nodes for name in node.output}
        wanted = []
        for (name, in_half), now in self.named.items():
            if now in self.graph.outputs or now not in made:
                continue
            if name in self.graph.constants:
                info = onnx.helper.make_tensor_value_info(
                    now, _FLOAT, list(self.graph.constants[name].dims)
                )
            else:
                info = _copy(infos[name])
            info.name = now
            info.type.tensor_type.elem_type = self.half.onnx_type if in_half else _FLOAT
            wanted.append(info)
        changed = {info.name for info in wanted}
        others = [info for info in main.value_info if info.name not in changed]
        others = [info for info in others if info.name in made]
        del main.value_info[:]
        main.value_info.extend((*others, *wanted))


def _is_cast_to(node: onnx.NodeProto, half: WantedType) -> bool:
    return node.op_type == "Cast" and attribute_of(node, "to", 0) == half.onnx_type


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


def is_half(graph: TypedGraph, name: str, kept: set[int]) -> bool:
    """Whether a value is made in half precision; graph inputs are not."""
    index = graph.producers.get(name)
    if index is None or index in kept:
        return False
    return list(graph.nodes[index].output).index(name) in graph.slots[index].outputs


def read_in_half(graph: TypedGraph, index: int, name: str, kept: set[int]) -> set[bool]:
    """In which precisions a node reads a value: half (True), float32 (False), or both."""
    if index in kept:
        return {False}
    slots = graph.slots[index].inputs
    found = {at in slots for at, given in enumerate(graph.nodes[index].input) if given == name}
    return found | ({False} if name in graph.captured.get(index, ()) else set())


def casts_of(graph: TypedGraph, name: str, kept: set[int]) -> int:
    """How many casts one value needs: none or one, shared by all that read it."""
    if not graph.is_float(name) or name in graph.constants:
        return 0
    home = is_half(graph, name, kept)
    wanted = {
        precision
        for index in graph.readers.get(name, ())
        for precision in read_in_half(graph, index, name, kept)
    }
    if name in graph.outputs:
        wanted.add(False)
    return int((not home) in wanted)


def saving_nodes(graph: TypedGraph, kept: set[int]) -> set[int]:
    """Cheap nodes beside `kept` ones that take fewer casts in float32 than in half precision."""
    now = set(kept)
    changed = True
    while changed:
        changed = False
        for index, node in enumerate(graph.nodes):
            if index in now or not graph.slots[index] or node.op_type not in _CHEAP:
                continue
            if not _is_beside(graph, index, now):
                continue
            names = {name for name in (*node.input, *node.output) if name}
            before = sum(casts_of(graph, name, now) for name in names)
            if sum(casts_of(graph, name, now | {index}) for name in names) < before:
                now.add(index)
                changed = True
    return now - kept


def _is_beside(graph: TypedGraph, index: int, kept: set[int]) -> bool:
    node = graph.nodes[index]
    before = {graph.producers.get(name) for name in node.input if graph.is_float(name)}
    after = {
        reader
        for name in node.output
        if graph.is_float(name)
        for reader in graph.readers.get(name, ())
    }
    return bool((before | after) & kept)


def fold_casts(model: onnx.ModelProto, half: HalfType) -> None:
    """Remove casts of the main graph from `half` to `half`; its values must all have types.

    Where inputs and outputs were in half precision and the inside was not, they are left of the
    casts between.  One stays where it passes an input or a constant on as an output, or one output
    as another.
    """
    graph = model.graph
    types = stated_types(graph)
    outputs = {value.name for value in graph.output}
    makers = {name: node for node in graph.node for name in node.output}
    for cast in list(graph.node):
        if not _is_cast_to(cast, half) or types.get(cast.input[0]) != half.tensor_name:
            continue
        source, target = cast.input[0], cast.output[0]
        if target not in outputs:
            renamed = {target: source}
        elif source in makers and source not in outputs:
            maker = makers[target] = makers[source]
            maker.output[list(maker.output).index(source)] = target
            renamed = {source: target}
        else:
            continue
        graph.node.remove(cast)
        rename_read(graph.node, renamed)
        infos = [info for info in graph.value_info if info.name not in renamed]
        del graph.value_info[:]
        graph.value_info.extend(infos)


def interface_elements(graph: onnx.GraphProto) -> set[int]:
    """The element types in which inputs are read and outputs made, apart from casts there."""
    view = NodeLinks(graph.node)
    cast = {node.output[0] for node in view.nodes if node.op_type == "Cast"}
    found = {value.type.tensor_type.elem_type for value in graph.output if value.name not in cast}
    for value in graph.input:
        readers = [view.nodes[at] for at in view.readers.get(value.name, ())]
        if readers and all(node.op_type == "Cast" for node in readers):
            found |= {one.i for node in readers for one in node.attribute if one.name == "to"}
        else:
            found.add(value.type.tensor_type.elem_type)
    return found


# Store weights in float16 or bfloat16 that are computed with in float32.
#
# ONNX Runtime's CPU has few kernels for half precision, and casts before and after each.  So only
# the stored weights change: a cast makes each one float32 again, which ONNX Runtime folds when it
# loads the graph, at any level but `disable`.

# A cast takes about as many bytes as a smaller weight would save.
MIN_BYTES: Final = 1024

# A graph, as its place in `every_graph`, and the name of its initializer: two bodies
# may both have one of that name.
Weight = tuple[int, str]


@record
class StoreInHalf(Pass):
    """Change weights of the main graph and of bodies; `kept` are those that stay.

    `read` returns the values of a tensor, which may be external.  Raises `RuntimeError` for one
    that the type does not hold: `kept` has to name it.
    """

    name = STORED_IN_HALF

    to: HalfName
    read: Read
    kept: frozenset[Weight] = field(default_factory=frozenset)
    # Weights are cast by nodes, and stay where they are: for graphs that are run once.
    cast_constants: bool = False

    def options(self) -> dict[str, object]:
        """The type, and that of what is computed; what is kept stands in the record beside it."""
        return {"to": self.to, "computed_in": "float32"}

    def apply(self, model: onnx.ModelProto) -> None:
        half = HALF_TYPES[self.to]
        used = all_names(model)
        # Bodies are found after the nodes around them are replaced by copies.
        for at, graph in enumerate(every_graph(model)):
            casts = []
            for tensor in list(large_weights(graph)):
                if (at, tensor.name) in self.kept:
                    continue
                stored = free_name(f"{tensor.name}_{self.to}", used)
                casts.append(cast_node(stored, tensor.name, _FLOAT, used))
                if self.cast_constants:
                    full = free_name(f"{tensor.name}_float32", used)
                    casts.insert(-1, cast_node(full, stored, half.onnx_type, used))
                    tensor.name = full
                else:
                    values = self.read(tensor)
                    if not half.holds(values):
                        raise RuntimeError(f"{self.to} does not hold the values of {tensor.name}")
                    tensor.CopyFrom(half.tensor(values, stored))
            set_nodes(graph, [*casts, *graph.node])


def large_weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The float32 initializers of one graph that are worth a cast; no defaults of inputs."""
    given = {value.name for value in graph.input}
    for tensor in graph.initializer:
        size = 4 * math.prod(tensor.dims)
        if tensor.data_type == _FLOAT and size >= MIN_BYTES and tensor.name not in given:
            yield tensor
