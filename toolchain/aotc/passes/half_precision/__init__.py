"""Compute in float16 or bfloat16 what is computed in float32, except for nodes that are kept.

Inputs and outputs of the model keep their types; where they are in half precision already, casts
between them and what is now computed in it are removed.  A value that is made in one type and read
in the other is cast once, however many nodes read it; a constant is stored in each type in which it
is read.  Control flow is kept, with all that is in its subgraphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from aotc.backends.kernels.type_names import stated_types
from aotc.contract.manifest.toolchain import HALF_PRECISION
from aotc.passes.base import Pass, all_names, rename_captured
from aotc.passes.half_precision.boundaries import is_half
from aotc.passes.half_precision.folded_casts import fold_casts
from aotc.passes.half_precision.half_types import HALF_TYPES, HalfName
from aotc.passes.half_precision.typed_graph import TypedGraph, typed_graph
from aotc.records import field, record

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Read = Callable[[onnx.TensorProto], np.ndarray[Any, Any]]

_FLOAT = 1


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

    def options(self) -> dict[str, object]:
        """The type; what is kept stands in the record beside it."""
        return {"to": self.to}

    def requires(self, model: onnx.ModelProto) -> str:
        types = stated_types(model.graph)
        untyped = [name for node in model.graph.node for name in node.output if name]
        untyped = [name for name in untyped if name not in types]
        return f"{untyped[0]} has no type" if untyped else ""

    def apply(self, model: onnx.ModelProto) -> None:
        half = HALF_TYPES[self.to]
        retype(typed_graph(model, half.tensor_name, self.ep), half, self.kept, self.read)
        fold_casts(model, half)


class WantedType(Protocol):
    """A type in which float32 values shall be computed: its ONNX names, and tensors of it."""

    @property
    def name(self) -> str:
        """As numpy has it."""

    @property
    def onnx_type(self) -> int:
        """The number of `TensorProto.DataType`."""

    def tensor(self, values: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
        """A tensor of `values` in this type."""


def retype(
    graph: TypedGraph, wanted: WantedType, kept: frozenset[str], read: Read | None = None
) -> None:
    """Rewrite a typed graph in place: what its slots allow is computed in `wanted`."""
    indices = {index for index, node in enumerate(graph.nodes) if node.name in kept}
    _Rewrite(graph, wanted, indices, read).run()


def count_casts(model: onnx.ModelProto, before: onnx.ModelProto) -> int:
    """How many casts `model` has that `before` had not."""
    names = {node.name for node in before.graph.node}
    return sum(node.op_type == "Cast" and node.name not in names for node in model.graph.node)


@record(frozen=False, kw_only=False)
class _Rewrite:
    """One rewrite of a main graph: which values exist in which type so far."""

    graph: TypedGraph
    half: WantedType
    kept: set[int]
    read: Read | None
    # By value and whether it is in half precision: its name there.
    named: dict[tuple[str, bool], str] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Rewrite the nodes in order, with casts where they are first needed."""
        main = self.graph.model.graph
        self.used = all_names(self.graph.model)
        for index, original in enumerate(self.graph.nodes):
            self._node(index, _copy(original))
        del main.node[:]
        main.node.extend(self.nodes)
        read = {name for node in self.nodes for name in node.input}
        read |= {name for index in self.graph.captured for name in self.graph.captured[index]}
        read |= self.graph.outputs
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
        renamed = {}
        for name in sorted(self.graph.captured.get(index, ())):
            found = self._value(name, False) if self.graph.is_float(name) else name
            if found != name:
                renamed[name] = found
        if renamed:
            rename_captured(node, renamed)
        slots = self.graph.slots[index]
        for at, name in enumerate(node.input):
            if self.graph.is_float(name):
                node.input[at] = self._value(name, changes and at in slots.inputs)
        made = []
        for at, name in enumerate(node.output):
            if changes and at in slots.outputs:
                inner = name
                if name in self.graph.outputs:
                    inner = self._free(f"{name}_{self.half.name}")
                    made.append((inner, name))
                node.output[at] = self.named[name, True] = inner
        if changes and slots.outputs:
            self._attributes(node)
        self.nodes.append(node)
        for inner, name in made:
            self._cast(inner, name, to_half=False)
            self.named[name, False] = name

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
            self.named[key] = self._free(f"{name}_{suffix}")
            self._cast(source, self.named[key], to_half=wanted)
        return self.named[key]

    def _constant(self, tensor: onnx.TensorProto) -> str:
        import onnx

        name = self._free(f"{tensor.name}_{self.half.name}")
        if self.read is None:
            made = onnx.TensorProto(name=name, data_type=self.half.onnx_type, dims=tensor.dims)
        else:
            made = self.half.tensor(self.read(tensor), name)
        self.constants.append(made)
        return name

    def _cast(self, source: str, target: str, *, to_half: bool) -> None:
        import onnx

        kind = self.half.onnx_type if to_half else _FLOAT
        name = self._free(f"cast_{target}")
        self.nodes.append(onnx.helper.make_node("Cast", [source], [target], name=name, to=kind))

    def _attributes(self, node: onnx.NodeProto) -> None:
        """Change the attribute that decides the type of the output, if there is one."""
        import onnx

        if node.op_type == "Cast":
            node.attribute.remove(next(one for one in node.attribute if one.name == "to"))
            node.attribute.append(onnx.helper.make_attribute("to", self.half.onnx_type))
        elif node.op_type == "ConstantOfShape":
            stated = [one for one in node.attribute if one.name == "value"]
            values = onnx.numpy_helper.to_array(stated[0].t) if stated else _zero()
            del node.attribute[:]
            node.attribute.append(onnx.helper.make_attribute("value", self.half.tensor(values, "")))

    def _value_types(self, main: onnx.GraphProto) -> None:
        """The types of all values of the new graph."""
        infos = {info.name: info for info in (*main.value_info, *main.input, *main.output)}
        made = {name for node in self.nodes for name in node.output}
        wanted = []
        for (name, in_half), now in self.named.items():
            if name in self.graph.constants or now in self.graph.outputs or now not in made:
                continue
            info = _copy(infos[name])
            info.name = now
            info.type.tensor_type.elem_type = self.half.onnx_type if in_half else _FLOAT
            wanted.append(info)
        changed = {info.name for info in wanted}
        others = [info for info in main.value_info if info.name not in changed]
        others = [info for info in others if info.name in made]
        del main.value_info[:]
        main.value_info.extend((*others, *wanted))

    def _free(self, name: str) -> str:
        while name in self.used:
            name += "_"
        self.used.add(name)
        return name


def _zero() -> np.ndarray[Any, Any]:
    import numpy as np

    return np.zeros(1, np.float32)


def _copy(message: Any) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made
