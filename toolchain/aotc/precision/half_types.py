"""A main graph as half precision sees it: types, slots, subgraphs, and the numbers it can hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from aotc.base.records import record
from aotc.graph.kernels import KernelTable, opsets_of, pair_values, signature_of_node
from aotc.graph.passes.base import set_nodes
from aotc.graph.types import stated_types, type_proto
from aotc.graph.view import GraphView, captured_values, has_subgraphs, made_values, subgraphs
from aotc.spec.providers import STANDARD

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
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
    signature = signature_of_node(node, opsets, ep, KernelTable.load())
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
            for kernel in KernelTable.load().registered(ep, domain, op)
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
